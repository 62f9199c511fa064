"""A share of the node's processors, and what a loader says of it."""

from __future__ import annotations

from pathlib import Path

import foreload
import numpy as np
import pytest


def test_batches_are_the_same_within_a_share(dataset: Path) -> None:
    """Threads that rest change no byte."""

    def bytes_of(**settings: object) -> list[bytes]:
        loader = foreload.ImageLoader(dataset, batch_size=4, image_size=32, seed=3, **settings)
        return [np.from_dlpack(batch.images).tobytes() for batch in loader]

    assert bytes_of() == bytes_of(resources=foreload.Resources(cpu=0.3)) == bytes_of(cpu=0.3, threads=2)


def test_statistics_say_how_many_processors_a_share_is(dataset: Path) -> None:
    """It is None without a share."""

    def cores(**settings: object) -> float | None:
        batches = iter(foreload.ImageLoader(dataset, batch_size=4, image_size=32, **settings))
        list(batches)
        return batches.stats()["cores"]

    assert cores() is None
    assert 0 < cores(resources={"cpu": 0.01}) < 100


@pytest.mark.parametrize("wrong", [0, -0.5, 1.5, float("nan"), "half"])
def test_a_share_is_above_0_and_at_most_1(dataset: Path, wrong: object) -> None:
    """Another value is refused by its name."""
    with pytest.raises(foreload.ConfigError, match="cpu"):
        foreload.ImageLoader(dataset, cpu=wrong)
