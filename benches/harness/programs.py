"""Programs that a benchmark runs: their output, their peak memory, and the reason if they fail."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from harness import accounting
from harness.environments import ROOT, Unavailable, last_lines

BENCHES = ROOT / "benches"
TIMEOUT = 1800
MEMORY_INTERVAL = 0.1
LONGEST = 600
"""The most characters of a program's complaints that a result keeps."""


def python_path(*folders: str | Path) -> dict[str, str]:
    """Return an environment in which Python finds the harness and the modules of some folders."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (BENCHES, *folders)))}


def output_of(
    words: list[object],
    variables: Mapping[str, str] | None = None,
    timeout: float | None = TIMEOUT,
    together: bool = False,
    cwd: Path | None = None,
) -> str:
    """Run a program; return what it prints to stdout, with stderr if `together`.

    Raises:
        Unavailable: It failed, or did not end in time.
    """
    return run(words, variables, timeout, together, cwd)[0]


def json_of(
    words: list[object], variables: Mapping[str, str] | None = None, timeout: float | None = TIMEOUT
) -> dict:
    """Run a program; return the last JSON object that it prints."""
    return last_object(output_of(words, variables, timeout))


def last_object(output: str) -> dict:
    """Return the last JSON object that begins a line of a program's output."""
    begin = output.rfind("\n{") + 1
    try:
        return json.JSONDecoder().raw_decode(output[begin:])[0]
    except ValueError as error:
        raise Unavailable(f"printed no JSON: {last_lines(output)}") from error


def run(
    words: list[object],
    variables: Mapping[str, str] | None = None,
    timeout: float | None = TIMEOUT,
    together: bool = False,
    cwd: Path | None = None,
    watch_memory: bool = False,
) -> tuple[str, int]:
    """Run a program; return its output and, if `watch_memory`, the peak memory of it and its children in bytes."""
    peak, deadline = 0, time.monotonic() + (timeout or float("inf"))
    errors = subprocess.STDOUT if together else subprocess.PIPE
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": errors, "text": True}
    with subprocess.Popen([str(word) for word in words], env=variables, cwd=cwd, **pipes) as process:
        while True:
            try:
                output, complaints = process.communicate(timeout=MEMORY_INTERVAL if watch_memory else timeout)
                break
            except subprocess.TimeoutExpired:
                if not watch_memory or time.monotonic() > deadline:
                    process.kill()
                    raise Unavailable(f"no end after {timeout} s") from None
                peak = max(peak, accounting.tree_memory_bytes(process.pid))
            except BaseException:
                process.kill()
                raise
    if process.returncode != 0:
        raise Unavailable(f"exit code {process.returncode}: {last_lines(complaints or output, LONGEST)}")
    return output, peak


def reason(error: BaseException) -> str:
    """Return why something was not measured, without the folder of this checkout."""
    text = str(error) if isinstance(error, Unavailable) else f"{type(error).__name__}: {error}"
    return text.replace(f"{ROOT}/", "")
