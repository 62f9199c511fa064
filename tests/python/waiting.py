"""Waits of tests for something that happens by itself. Each wait has a deadline, and names what did not happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def until(what: str, look: Callable[[], T], enough: Callable[[T], Any] = bool, seconds: float = 60) -> T:
    """Call `look` until `enough` accepts what it returns, and return that.

    Raises:
        TimeoutError: That took longer. The error says `what` was waited for, and what `look` returned last.
    """
    deadline = time.monotonic() + seconds
    while not enough(seen := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}; last seen: {seen!r}")
        time.sleep(0.01)
    return seen


def settled(what: str, look: Callable[[], T], seconds: float) -> T:
    """Wait until `look` returns the same as so many seconds before, and return that."""

    def looks() -> tuple[T, T]:
        before = look()
        time.sleep(seconds)
        return before, look()

    return until(f"{what} for {seconds:g} s", looks, lambda two: two[0] == two[1])[1]
