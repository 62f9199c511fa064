"""Runs commands of the kit: their output goes to the log at once, and each has a time limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

GRACE = 8.0
"""The seconds between asking a command to end (SIGINT: it reports its results so far) and killing it with its
children."""
DRAIN = 10.0
"""The time in seconds for reading the remaining output of an ended command."""
OVERDUE = 124
"""The exit code of a command that did not end within its time."""


def call(
    words: list[str], seconds: float, environment: Mapping[str, str], folder: Path, say: Callable[[str], None]
) -> tuple[int, str]:
    """Run a command and its children for at most `seconds`; return exit code and output, also given to `say`."""
    # A background process of a shell ignores SIGINT, and so would its children.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    said: list[str] = []

    def listen() -> None:
        for line in process.stdout:
            said.append(line)
            say(line.rstrip())

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    code = None
    try:
        code = process.wait(max(seconds, 1.0))
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    finally:
        # Leftover processes would affect the next measurement.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # A process that hangs in a driver does not end even then; the others must not wait for it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    listener.join(DRAIN)
    if not listener.is_alive():
        process.stdout.close()
    return OVERDUE if code is None else code, "".join(said)


def last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it said nothing")


def failed(name: str, code: int, said: str, seconds: float) -> str:
    if code == OVERDUE:
        return f"{name} did not end within {seconds:.0f} s"
    return f"{name}: {last_line(said)}" if code >= 0 else f"{name}: ended by {signal.Signals(-code).name}"
