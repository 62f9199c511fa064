"""Processes that tests start and kill. None outlives its test: `conftest.py` calls `end_all` after each test.

The moments of kills are drawn from a seed, which is printed; `FORELOAD_SEED` sets it.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_begun = contextlib.ExitStack()


def seed() -> int:
    """Return a new seed, or that of `FORELOAD_SEED`, and print it."""
    chosen = int(os.environ.get("FORELOAD_SEED", random.SystemRandom().randrange(10**9)))
    print(f"FORELOAD_SEED={chosen}")
    return chosen


def begun(process: T) -> T:
    """Register a process to be killed after the test, if it still runs then, and return it."""
    _begun.callback(end, process)
    return process


def begin(*command: object, **settings: Any) -> subprocess.Popen:
    """Start a program, which is killed after the test if it still runs."""
    return begun(subprocess.Popen([str(word) for word in command], **settings))


def end(process: Any) -> None:
    """Kill a process and wait for its end; it may have ended already. Classes other than `Popen` wait in `kill`."""
    process.kill()
    if isinstance(process, subprocess.Popen):
        process.wait()
        for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
            with contextlib.suppress(OSError):
                pipe.close()


def end_all() -> None:
    """Kill all processes that this test has started."""
    _begun.close()


def end_within(rng: random.Random, span: tuple[float, float], *processes: Any) -> None:
    """Kill processes at a random moment; `span` gives the bounds in seconds from now."""
    time.sleep(rng.uniform(*span))
    for process in processes:
        end(process)


def again_and_again(
    rng: random.Random, kills: int, span: tuple[float, float], victims: dict[str, Callable[[], int]]
) -> Counter[str]:
    """Kill `victims` at random moments, each of them once and then any of them; return how many processes died.

    Each victim's function kills it, starts it again, and returns the number of processes that it killed.
    """
    killed: Counter[str] = Counter()
    order = rng.sample(list(victims), len(victims))
    while order or killed.total() < kills:
        time.sleep(rng.uniform(*span))
        victim = order.pop() if order else rng.choice(list(victims))
        killed[victim] += victims[victim]()
    print(f"killed: {dict(killed)}")
    return killed
