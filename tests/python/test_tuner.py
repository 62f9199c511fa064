"""What a loader tunes, and what it says of that."""

from __future__ import annotations

from pathlib import Path

import foreload
import numpy as np
import pytest


def test_statistics_say_what_is_tuned(dataset: Path) -> None:
    """The values are there, and those that were given stay."""
    loader = foreload.ImageLoader(dataset, batch_size=4, image_size=32, queue_depth=3)
    batches = iter(loader)
    for _ in batches:
        pass
    tuner = batches.stats()["tuner"]
    assert tuner["on"] is True
    assert tuner["queue_depth"] == 3
    assert "queue_depth" in tuner["fixed"]
    assert tuner["prefetch"] >= 1
    assert tuner["cores"] is None
    assert len(tuner["decisions"]) == min(tuner["changes"], 64)


def test_it_can_be_turned_off(dataset: Path) -> None:
    """With `tune=False` all stays, and the batches are the same."""

    def bytes_of(**settings: object) -> list[bytes]:
        loader = foreload.ImageLoader(dataset, batch_size=4, image_size=32, seed=3, **settings)
        return [np.from_dlpack(batch.images).tobytes() for batch in loader]

    batches = iter(foreload.ImageLoader(dataset, batch_size=4, image_size=32, tune=False))
    list(batches)
    tuner = batches.stats()["tuner"]
    assert tuner["on"] is False
    assert set(tuner["fixed"]) == {"threads", "queue_depth", "prefetch"}
    assert bytes_of() == bytes_of(tune=False) == bytes_of(resources=foreload.Resources(cpu=0.3))


def test_a_budget_is_a_share(dataset: Path) -> None:
    """A budget bounds threads, and says how many processors it is."""
    batches = iter(foreload.ImageLoader(dataset, batch_size=4, image_size=32, resources={"cpu": 0.01}))
    list(batches)
    tuner = batches.stats()["tuner"]
    assert tuner["threads"] == 1
    assert 0 < tuner["cores"] < 100
    for wrong in (0, -0.5, 1.5, float("nan"), "half"):
        with pytest.raises(foreload.ConfigError, match="cpu"):
            foreload.ImageLoader(dataset, cpu=wrong)
