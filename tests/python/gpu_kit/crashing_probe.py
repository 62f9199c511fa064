"""The probe with questions that crash its processes, to test the results that it still reports."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benches" / "gpu"))
import probe
from probing.steps import Cell, Step


def fails(_context: object) -> dict:
    """Raise the error of ctypes for a missing function."""
    raise AttributeError("libnvjpeg.so.13: undefined symbol: nvjpegNew")


def breaks(_context: object) -> dict:
    """Make a mistake in the probe itself, which must not count as an answer."""
    return None.anything


QUESTIONS = {
    "answered": lambda _context: {"value": 1 / 3},
    "aborts": lambda _context: os.abort(),
    "lacks a function": fails,
    "hangs": lambda _context: time.sleep(60) or {},
    "refused": lambda _context: {}["nothing"],
    "broken": breaks,
    "answered at last": lambda _context: {"value": 2},
}


def steps(_short: bool) -> list[Step]:
    """The steps: one with all of these questions, then one whose process fails before its questions."""
    cells = [Cell(label, answer) for label, answer in QUESTIONS.items()]
    return [Step("trials", cells, 0.5, on_device=False), Step("no device", cells[:2], 0.5)]


probe.all_steps = steps
if __name__ == "__main__":
    sys.exit(probe.main())
