"""Environments of other libraries (benches/harness/environments.py) are installed by one process at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kills

FOLDER = Path(__file__).resolve().parents[2] / "benches"
sys.path.append(str(FOLDER))
from harness import environments  # noqa: E402

OTHER = """
import pathlib, sys
from harness import environments
with environments.alone("torch", pathlib.Path(sys.argv[1])):
    print("its turn")
"""


def test_who_comes_second_says_so_and_waits(tmp_path: Path) -> None:
    with environments.alone("torch", tmp_path):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        words = [sys.executable, "-c", OTHER, tmp_path]
        other = kills.begin(*words, env={"PYTHONPATH": str(FOLDER)}, **pipes)
        assert other.stderr.readline() == "waiting for another process, which installs torch\n"
        assert other.poll() is None
        with environments.alone("dali", tmp_path):
            pass
    told, complaints = other.communicate(timeout=60)
    assert (told, complaints, other.returncode) == ("its turn\n", "", 0)


def test_a_process_that_ends_leaves_no_lock(tmp_path: Path) -> None:
    killed = f"{OTHER}\n    import os\n    os._exit(9)"
    words = [sys.executable, "-c", killed, tmp_path]
    assert subprocess.run(words, env={"PYTHONPATH": str(FOLDER)}, capture_output=True).returncode == 9
    with environments.alone("torch", tmp_path):
        pass
