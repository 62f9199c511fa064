"""The installed `foreload` command: the Rust command line, started by a Python script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import foreload
import kills
from waiting import until

SCRIPT = Path(sys.executable).with_name("foreload")


def run(*arguments: object, program: tuple[object, ...] = (SCRIPT,)) -> subprocess.CompletedProcess[str]:
    """Run the command outside of any activated environment."""
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    command = [str(word) for word in (*program, *arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_script_and_module_are_the_same_program() -> None:
    for program in ((SCRIPT,), (sys.executable, "-m", "foreload")):
        version = run("--version", program=program)
        assert version.stdout.startswith(f"foreload {foreload.__version__}")
        assert "Usage: foreload" in run("--help", program=program).stdout


def test_exit_codes_pass_through(tmp_path: Path) -> None:
    assert run("doctor").returncode == 0
    assert run("index", tmp_path / "nowhere").returncode == 1
    assert run("sing").returncode == 2


def test_synth_finds_the_photographs_of_its_environment(tmp_path: Path) -> None:
    made = run("synth", tmp_path / "made", "--images", 3, "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["images"] == 3
    benched = run("bench", tmp_path / "made", "--batch-size", 3, "--epochs", 1, "--json")
    assert benched.returncode == 0, benched.stderr
    assert json.loads(benched.stdout)["epochs"][0]["images"] == 3


def test_interrupt_ends_the_program(tmp_path: Path) -> None:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = kills.begin(SCRIPT, "synth", tmp_path / "many", "--images", 1_000_000, **quiet)

    def images() -> list[Path]:
        assert process.poll() is None
        return list((tmp_path / ".many.partial").glob("*/*.jpg"))

    until("the program writes an image", images)
    process.send_signal(signal.SIGINT)
    assert process.wait() == -signal.SIGINT
    assert not (tmp_path / "many").exists()
