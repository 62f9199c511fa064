"""Processes that share batches, which tests stop, kill and watch."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import kills
from waiting import until

PROGRAM = Path(__file__).with_name("shared_consumer.py")
PATIENCE = 60.0
"""The longest wait of a test for any single event, in seconds."""


class Consumer:
    """A process of `shared_consumer.py`."""

    def __init__(self, runtime: Path, dataset: Path, epochs: int = 1, **order: Any) -> None:
        settings = {"batch_size": 4, "image_size": 32, "device": "cpu", "shared": True} | order.pop(
            "settings", {}
        )
        words = {"dataset": str(dataset), "epochs": epochs, "settings": settings} | order
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(words)],
            env=os.environ | {"FORELOAD_RUNTIME_DIR": str(runtime)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[dict[str, Any]] = []
        self._arrived: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.errors = ""
        self._readers = [
            threading.Thread(target=work, daemon=True) for work in (self._read, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()
        kills.begun(self)

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            # A killed process may leave an incomplete line.
            if line.endswith("\n"):
                said = json.loads(line)
                self.lines.append(said)
                self._arrived.put(said)
        self._arrived.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr
        self.errors = self.process.stderr.read()

    def next(self) -> dict[str, Any]:
        """Return the next line."""
        line = self._arrived.get(timeout=PATIENCE)
        assert line is not None, self.errors
        return line

    def go_on(self) -> None:
        """Make a process that waits after each batch take the next one."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> list[dict[str, Any]]:
        """Wait for the end of the process, and return all its lines about batches."""
        while self._arrived.get(timeout=PATIENCE) is not None:
            pass
        code = self.process.wait(PATIENCE)
        self._close()
        assert code == 0, self.errors
        assert self.lines[-1].get("end"), self.lines[-1:]
        return self.batches()

    def _close(self) -> None:
        for reader in self._readers:
            reader.join(PATIENCE)
        kills.end(self.process)

    def batches(self) -> list[dict[str, Any]]:
        """Return the lines about batches so far."""
        return [line for line in self.lines if "sha" in line]

    def kill(self) -> list[dict[str, Any]]:
        """Kill the process, and return its lines about batches."""
        self.process.kill()
        self._close()
        return self.batches()

    def signal(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)


def shas(batches: list[dict[str, Any]]) -> list[str]:
    """Return the digests of batches."""
    return [batch["sha"] for batch in batches]


def producers(runtime: Path) -> list[int]:
    """Return the ids of the processes that produce batches for consumers in a runtime directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                is_ours = f"FORELOAD_RUNTIME_DIR={runtime}".encode() in (
                    entry / "environ"
                ).read_bytes().split(b"\0")
            except OSError:
                continue
            if b"produce" in words and is_ours:
                found.append(int(entry.name))
    return found


def none_are_left(runtime: Path) -> None:
    """Wait until no producer is left, and check that only names remain in the directory."""
    until("producers without consumers end", lambda: producers(runtime), lambda left: not left, PATIENCE)
    assert all(file.stat().st_size == 0 for file in (runtime / "foreload/shared").iterdir())


def kill_producers(runtime: Path) -> int:
    """Kill all producers, and return their number."""
    killed = 0
    for pid in producers(runtime):
        try:
            os.kill(pid, signal.SIGKILL)
            killed += 1
        except ProcessLookupError:
            continue
    return killed
