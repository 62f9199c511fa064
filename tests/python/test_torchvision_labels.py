"""`ImageDataset.from_torchvision` with an `ImageFolder` whose labels were changed by the program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import need
from foreload import ConfigError

with need("torchvision"):
    import numpy as np
    import torch
    from foreload.torch import ImageDataset
    from torch.utils.data import Subset
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

EVALUATION = v2.Compose([v2.Resize(70), v2.CenterCrop(64), v2.PILToTensor()])


def relabelled(root: Path, label: Callable[[int], Any], samples: slice = slice(None)) -> ImageFolder:
    """Return the dataset, in which `label` has changed the labels of some samples."""
    theirs = ImageFolder(str(root), EVALUATION)
    theirs.samples[samples] = [(path, label(number)) for path, number in theirs.samples[samples]]
    return theirs


@pytest.mark.parametrize(
    ("label", "samples", "message"),
    [
        (
            lambda number: number - 1,
            slice(30, 31),
            r"030\.jpg has the label 0.* 1 by its directory.*\(1 of 60",
        ),
        (
            lambda number: 2 - number,
            slice(None),
            r"000\.jpg has the label 2.* 0 by its directory.*\(40 of 60",
        ),
        (lambda number: number + 0.5, slice(None), r"has the label 0\.5"),
        (lambda number: [number, 1], slice(None), r"has the label \[0, 1\]"),
        (lambda number: [number] * number, slice(None), r"has the label \[\]"),
        (lambda number: f"class {number}", slice(None), "has the label 'class 0'"),
    ],
)
def test_labels_of_ones_own_are_refused(
    label: Callable[[int], Any], samples: slice, message: str, dataset: Path
) -> None:
    theirs = relabelled(dataset, label, samples)
    for taken in (theirs, Subset(theirs, [7])):
        with pytest.raises(ConfigError, match=f"^config: dataset: .*{message}.*labels=.* manifest"):
            ImageDataset.from_torchvision(taken, batch_size=4)


@pytest.mark.parametrize("label", [int, float, np.int32, torch.tensor])
def test_labels_of_the_directories_are_so_by_any_type(label: Callable[[int], Any], dataset: Path) -> None:
    ours = ImageDataset.from_torchvision(relabelled(dataset, label), batch_size=60)
    assert ours.targets.tolist() == [number // 20 for number in range(60)]


def test_the_remedy_gives_these_labels(dataset: Path) -> None:
    theirs = relabelled(dataset, lambda number: 2 - number)
    labels = [label for _, label in theirs.samples]
    for taken, expected in ((theirs, labels), (Subset(theirs, [45, 7]), [0, 2])):
        _, found = next(iter(ImageDataset.from_torchvision(taken, batch_size=60, labels=labels)))
        assert found.tolist() == expected
    numbered = ImageDataset.from_torchvision(
        theirs, batch_size=60, class_names=["class_2", "class_1", "class_0"]
    )
    assert numbered.targets.tolist() == labels
