"""The structure of a step of the probe: a list of cells, each of which returns the fields of one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import driver

from . import library


class Context:
    """The common state of the cells of one process: the device's context is current while they run."""

    def __init__(self, images: Path | None, short: bool) -> None:
        self.images, self.short = images, short
        self.handles: dict[str, library.Handle] = {}

    @cached_property
    def stream(self) -> int:
        """Return a stream that does not wait for the default one."""
        return driver.stream(0)

    def handle(self, backend: str) -> library.Handle:
        """Return one of nvJPEG's handles, made once per process."""
        if backend not in self.handles:
            self.handles[backend] = library.Handle(backend)
        return self.handles[backend]


class Cell:
    """One question: its name, the function that answers it, and the known fields of its line."""

    def __init__(self, label: str, answer: Callable[[Context], dict], **known: object) -> None:
        self.label, self.answer, self.known = label, answer, known


@dataclass
class Step:
    """Cells that share a process. A cell that ends the process loses only its own line; the next cells run in a new
    process.
    """

    name: str
    cells: list[Cell]
    limit: float = 10.0
    """The time limit of a cell in seconds, without imports and the start of CUDA."""
    on_device: bool = True
    most: float = 60.0
    """The time limit of all cells in seconds, because later steps need time, too."""
