"""Waits of tests for events. Each wait has a deadline, and its error names the missing event."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def until(what: str, look: Callable[[], T], enough: Callable[[T], Any] = bool, seconds: float = 60) -> T:
    """Call `look` until `enough` accepts its result, and return the result.

    Raises:
        TimeoutError: It took too long. The error has `what` was waited for, and the last result of `look`.
    """
    deadline = time.monotonic() + seconds
    while not enough(seen := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}; last seen: {seen!r}")
        time.sleep(0.01)
    return seen


def settled(what: str, look: Callable[[], T], seconds: float) -> T:
    """Wait until the result of `look` has not changed for this many seconds, and return it."""

    def looks() -> tuple[T, T]:
        before = look()
        time.sleep(seconds)
        return before, look()

    return until(f"{what} for {seconds:g} s", looks, lambda two: two[0] == two[1])[1]
