"""`image_size_from=`: the size of images depends on the epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import checksums
from foreload import ConfigError, ImageLoader
from foreload import transforms as T


def load(dataset: Path, **settings: Any) -> ImageLoader:
    """Return a loader on the CPU whose images grow."""
    usual = {"batch_size": 12, "image_size": 16, "image_size_from": {1: 24, 3: (32, 40)}, "device": "cpu"}
    return ImageLoader(dataset, **{**usual, **settings})


def test_epochs_have_their_sizes(dataset: Path) -> None:
    loader = load(dataset)
    kept, shapes = [], []
    for _ in range(5):
        for batch in loader:
            images = np.from_dlpack(batch.images)
        kept.append((images, images.copy()))
        shapes.append(images.shape[2:])
    assert shapes == [(16, 16), (24, 24), (24, 24), (32, 40), (32, 40)]
    # The memory of batches that are kept is not reused.
    assert all((images == copy).all() for images, copy in kept)
    view = loader.view(0, 3)
    assert (view["output_height"], view["output_width"]) == (32, 40)


def test_an_earlier_epoch_comes_again_with_its_size(dataset: Path) -> None:
    # The epoch is longer than the read-ahead, so that the reading thread sleeps and is woken.
    loader = load(dataset, epoch_size=1200, threads=2)
    for epoch, size in ((0, 16), (1, 24), (0, 16), (1, 24)):
        loader.set_epoch(epoch)
        shapes = {np.from_dlpack(batch.images).shape[2:] for batch in loader}
        assert shapes == {(size, size)}


def test_a_training_goes_on_with_its_size(dataset: Path) -> None:
    loader = load(dataset)
    loader.set_epoch(1)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = [np.from_dlpack(batch.images).tobytes() for batch in batches]
    resumed = load(dataset)
    resumed.load_state_dict(state)
    assert [np.from_dlpack(batch.images).tobytes() for batch in resumed] == rest
    assert next(iter(resumed)).images.shape == (12, 3, 24, 24)


@pytest.mark.parametrize("wrong", [{0: 16}, {1: 0}, {"a": 16}, {1.5: 16}, [16, 24], {1: 20_000}])
def test_what_is_no_size_by_epoch_is_refused(dataset: Path, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"image_size_from: is .*, must be a dict that maps epochs, from 1"):
        load(dataset, image_size_from=wrong)


def test_a_list_of_transforms_has_one_size(dataset: Path) -> None:
    with pytest.raises(ConfigError, match="image_size_from: cannot be combined with transforms"):
        ImageLoader(dataset, image_size_from={1: 24}, transforms=[T.RandomResizedCrop(16)])


def test_the_command_line_takes_it(dataset: Path) -> None:
    usual = ["--batch-size", "12", "--image-size", "16", "--epochs", "2"]
    first, second = checksums(dataset, *usual)
    grown = checksums(dataset, *usual, "--image-size-from", "1:24;3:32,40")
    assert grown[0] == first
    assert grown[1] != second
