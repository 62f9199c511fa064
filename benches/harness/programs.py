"""Programs that a benchmark runs: their output, their peak memory, and the reason if they fail."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from harness import accounting
from harness.environments import ROOT, Unavailable, last_lines

BENCHES = ROOT / "benches"
TIMEOUT = 1800
MEMORY_INTERVAL = 0.1
LONGEST = 600
"""The most characters of a program's error output that a result keeps."""


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
    """Run a program; return its stdout, with stderr if `together`.

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


def side_by_side(calls: Mapping[str, Callable[[], Any]], jobs: int) -> Iterator[tuple[str, Any]]:
    """Make calls in threads, `jobs` at a time; yield the name and result of each as it ends."""
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(call): name for name, call in calls.items()}
        try:
            for done in as_completed(running):
                yield running[done], done.result()
        finally:
            for other in running:
                other.cancel()


def reason(error: BaseException) -> str:
    """Return why something was not measured, without the folder of this checkout."""
    text = str(error) if isinstance(error, Unavailable) else f"{type(error).__name__}: {error}"
    return text.replace(f"{ROOT}/", "")


class Worker:
    """A process that answers lines of its stdin with lines on its stdout; it ends with the block."""

    def __init__(
        self, words: list[object], variables: Mapping[str, str] | None = None, errors: Any = None
    ) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors, "text": True}
        self.process = subprocess.Popen([str(word) for word in words], env=variables, **pipes)

    def send(self, line: str) -> None:
        """Send a line.

        Raises:
            Unavailable: The process has ended.
        """
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Unavailable(f"it ended with code {self.process.wait()}") from error

    def read(self, seconds: float | None = None) -> str:
        """Return the next line.

        Raises:
            Unavailable: The process has ended, or says nothing in time.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                raise Unavailable(f"no answer within {seconds:.0f} s")
        if not (line := self.process.stdout.readline()):
            raise Unavailable(f"it ended with code {self.process.wait()}")
        return line

    def end(self, seconds: float = 10) -> None:
        """Close the process's stdin, and kill it if it does not end in time."""
        # A worker that failed has closed its end.
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *failure: object) -> None:
        self.end(10 if failure[0] is None else 0)
