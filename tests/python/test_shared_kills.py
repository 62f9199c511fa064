"""Producers and consumers die by SIGKILL at any moment: each training gets each batch once, and nothing is left."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import kills
import pytest
from conftest import THOROUGH
from consumers import Consumer, kill_producers, none_are_left, producers, shas
from test_shared import STEPS, alone
from waiting import until

KILLS = int(os.environ.get("FORELOAD_SHARED_KILLS", "320" if THOROUGH else "12"))
SETTINGS: list[dict[str, Any]] = [{}, {}, {"image_size": 48, "flip": 0.0, "dtype": "float16"}]
"""The settings of each training. The third has other transforms, and so producers of its own."""
PAUSE = 0.01
LONGEST_PAUSE = 0.6
"""The longest time between two kills, in seconds."""


def shared_memory() -> int:
    """Return the bytes of shared memory of this machine, including files without names."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Shmem:"))


@pytest.mark.timeout(120 + 3 * KILLS)
def test_each_training_gets_each_batch_once(dataset: Path, tmp_path: Path) -> None:
    rng = random.Random(kills.seed())
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    # Longer than the kills take; a consumer that reaches the end is not killed any more.
    epochs = 4 + KILLS * 2
    before = shared_memory()
    settings = [{"shared_window": 3} | own for own in SETTINGS]

    def training(number: int, state: dict | None = None) -> Consumer:
        return Consumer(runtime, dataset, epochs, settings=settings[number], pause=PAUSE, state=state)

    running = [training(number) for number in range(len(SETTINGS))]
    got: list[list[dict]] = [[] for _ in running]

    def kill_a_consumer() -> int:
        number = rng.randrange(len(SETTINGS))
        got[number] += running[number].kill()
        state = got[number][-1]["state"] if got[number] else None
        running[number] = training(number, state)
        return 1

    victims = {"producers": lambda: kill_producers(runtime), "consumers": kill_a_consumer}
    killed = kills.again_and_again(rng, KILLS, (0, LONGEST_PAUSE), victims)
    assert min(killed.values()) > 0
    # All of them continue after the last kill.
    for consumer in running:
        have = len(consumer.batches())
        while len(consumer.batches()) < have + 2 * STEPS:
            consumer.next()
    for number, consumer in enumerate(running):
        got[number] += consumer.kill()
    most = max(map(len, got))
    for number, (batches, own) in enumerate(zip(got, SETTINGS, strict=True)):
        assert len(batches) > STEPS
        expected = alone(dataset, -(-most // STEPS), **own)
        assert shas(batches) == expected[: len(batches)], f"training {number}"
    none_are_left(runtime)
    assert producers(runtime) == []
    # Other processes of the machine use shared memory, too; a lost buffer per producer would be much more.
    limit = before + 64 * 2**20
    until(f"shared memory falls to {limit} bytes", shared_memory, lambda taken: taken <= limit, seconds=20)
