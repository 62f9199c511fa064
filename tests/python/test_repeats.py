"""`repeats=`: each sample several times in a global batch, augmented differently, spread over the ranks."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreload import ConfigError, FileLoader, ImageLoader
from foreload import transforms as T


def load(dataset: Path, **settings: Any) -> ImageLoader:
    """Return a loader of small images on the CPU."""
    usual = {"batch_size": 12, "image_size": 24, "seed": 3, "device": "cpu", "repeats": 3}
    return ImageLoader(dataset, **{**usual, **settings})


def ids(loader: ImageLoader, epoch: int = 0) -> list[list[int]]:
    """Return the samples of each batch."""
    return [np.from_dlpack(batch.sample_ids).tolist() for batch in loader.batches(epoch)]


def test_an_epoch_shows_a_part_of_the_samples_again_and_again(dataset: Path) -> None:
    loader = load(dataset)
    assert (len(loader), loader.epoch_size) == (5, 60)
    once, shown = ids(load(dataset, repeats=1)), ids(loader)
    flat = [sample for batch in once for sample in batch]
    for step, batch in enumerate(shown):
        assert Counter(batch) == dict.fromkeys(flat[4 * step : 4 * step + 4], 3)
        assert batch[:4] == batch[4:8] == batch[8:]
    # Other epochs use other samples, so that all samples come after some epochs.
    assert set().union(*(sample for epoch in range(12) for sample in ids(loader, epoch))) == set(range(60))


def test_each_repeat_is_augmented_by_itself(dataset: Path) -> None:
    loader = load(dataset)
    batch = next(iter(loader))
    images, samples = np.from_dlpack(batch.images), np.from_dlpack(batch.sample_ids)
    assert len({image.tobytes() for image in images}) == 12
    assert np.from_dlpack(batch.occurrences).tolist() == [0] * 4 + [1] * 4 + [2] * 4
    views = [repr(loader.view(int(samples[0]), 0, occurrence=n)) for n in range(3)]
    assert len(set(views)) == 3


def test_repeats_go_to_different_ranks_as_torchvisions_do(dataset: Path) -> None:
    """The share of a rank in torchvision's references: every world_size-th of a shuffled list with repeats."""
    whole = ids(load(dataset))
    for world in (2, 3):
        ranks = [
            ids(load(dataset, batch_size=12 // world, rank=rank, world_size=world)) for rank in range(world)
        ]
        for step, batch in enumerate(whole):
            parts = [rank[step] for rank in ranks]
            assert [*chain(*parts)] == batch, "the ranks together have the same global batch"
            in_a_row = np.repeat(batch[:4], 3)
            theirs = [Counter(in_a_row[rank::world].tolist()) for rank in range(world)]
            if world == 3:
                assert [Counter(part) for part in parts] == theirs
            # However they are assigned, no rank gets more repeats of a sample than necessary.
            assert max(max(Counter(part).values()) for part in parts) <= -(-3 // world)


def test_nobody_is_mixed_with_himself(dataset: Path) -> None:
    mix = T.MixUp(num_classes=3)
    for batch_size, repeats in [(8, 2), (12, 3), (16, 4), (20, 4), (24, 5)]:
        for batch in load(dataset, batch_size=batch_size, repeats=repeats, mix=mix):
            own = np.from_dlpack(batch.sample_ids).reshape(-1, 4)
            assert (own != np.roll(own, 1, axis=1)).all(), (batch_size, repeats)
    with pytest.raises(ConfigError, match=r"batch_size: is 8, .* with repeats=3 needs at least 12"):
        next(iter(load(dataset, batch_size=8, repeats=3, mix=mix)))
    # With two ranks there are enough.
    next(iter(load(dataset, batch_size=8, repeats=3, mix=mix, rank=1, world_size=2)))


def test_they_resume_and_a_checkpoint_knows_them(dataset: Path) -> None:
    loader = load(dataset)
    whole = [np.from_dlpack(batch.images).tobytes() for batch in loader.batches(0)]
    for step, _ in enumerate(loader, 1):
        resumed = load(dataset)
        resumed.load_state_dict(loader.state_dict())
        rest = [np.from_dlpack(batch.images).tobytes() for batch in resumed] if step < 5 else []
        assert rest == whole[step:]
    with pytest.raises(ConfigError, match="repeats was 3 and is 1"):
        load(dataset, repeats=1).load_state_dict(loader.state_dict())


def test_weights_and_order_and_files_have_them_too(dataset: Path) -> None:
    in_order = ids(load(dataset, shuffle=False))
    assert in_order[0] == [0, 1, 2, 3] * 3
    counts = Counter(chain(*ids(load(dataset, weights={"class_0": 9.0}, epoch_size=600))))
    assert all(count % 3 == 0 for count in counts.values())
    assert sum(count for sample, count in counts.items() if sample < 20) > 400
    files = FileLoader(dataset, batch_size=6, shuffle=True, repeats=2)
    assert all(Counter(batch).most_common(1)[0][1] == 2 for batch in ids(files))
    with pytest.raises(ConfigError, match="repeats: is 0, must be a whole number from 1"):
        load(dataset, repeats=0)
