"""Translates torchvision's `ImageFolder` into settings of Foreload; torchvision is never imported."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from foreload import transforms
from foreload._core import IMAGE_EXTENSIONS, is_random
from foreload._errors import config_error
from foreload._transform_reader import FLOATS, is_a, read

_READ = tuple(f".{extension}" for extension in IMAGE_EXTENSIONS)
_COMPARED_PATHS = 1000

_ONLY_OURS = (".jfif", ".jpe")
"""The extensions of images that Foreload reads and ImageFolder does not."""


def settings_of(dataset: Any) -> dict[str, Any]:
    """Return the settings of `foreload.torch.ImageDataset` that are equivalent to `dataset`.

    Args:
        dataset: A `torchvision.datasets.ImageFolder` or `ImageNet`, or a `torch.utils.data.Subset` of one.

    Raises:
        ConfigError: It does something that Foreload does not support; the message says what, and what to do.
    """
    dataset, indices = _subset(dataset)
    _check_dataset(dataset)
    steps = read(dataset.transform)
    is_training = is_random(transforms.to_json(steps))
    settings = {"path": _folder(dataset), "train": is_training, "transforms": steps}
    return settings if indices is None else {**settings, "indices": indices}


def merged(taken: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the dataset together with the caller's, which may not repeat them.

    Raises:
        ConfigError: One is given twice. Only a float type may be replaced by another float type.
    """
    given = dict(given)
    dtype = str(given.get("dtype")).removeprefix("torch.")
    if dtype in FLOATS and taken["transforms"][-1:] and _dtype_of(taken["transforms"]) in FLOATS:
        taken = {**taken, "transforms": [_of_dtype(step, dtype) for step in taken["transforms"]]}
        del given["dtype"]
    for name in taken.keys() & given.keys():
        raise config_error(
            name,
            f"is {given[name]!r}, but {taken[name]!r} in the dataset: remove it, or change the "
            "dataset or its transforms",
        )
    return {**taken, **given}


def _dtype_of(steps: list[transforms.Transform]) -> str:
    """Return the element type of the images that a list makes."""
    return next((step.dtype for step in reversed(steps) if isinstance(step, transforms.ToDtype)), "uint8")


def _of_dtype(step: transforms.Transform, dtype: str) -> transforms.Transform:
    """Return the step, with another float type replaced by this one."""
    if isinstance(step, transforms.ToDtype) and step.dtype in FLOATS:
        return transforms.ToDtype(dtype, scale=step.scale)
    return step


def check_same_samples(
    dataset: Any, loader: Any, *, are_numbered: bool = False, are_labeled: bool = False
) -> None:
    """Check that the samples and class numbers of `loader` are those of the whole ImageFolder.

    If classes `are_numbered` by `class_names=`, the user chose their numbers, which are not compared. The same holds
    for labels, if samples `are_labeled` by `labels=`.

    Classes, the number of samples and their labels are always compared. Paths are compared for about 1000 samples,
    evenly spread. A file that replaced another one of its class between two of these is not noticed.

    Raises:
        ConfigError: They differ; the message names the class or the path.
    """
    dataset, _ = _subset(dataset)
    numbers = getattr(dataset, "wnid_to_idx", dataset.class_to_idx)
    ours = {name: number for number, name in enumerate(loader.classes)}
    for name in () if are_numbered else sorted({*numbers, *ours}):
        if name not in ours and os.path.isdir(os.path.join(_folder(dataset), name)):
            raise config_error(
                "dataset",
                f"{name!r} is a class of the ImageFolder, which numbers the classes after it one higher than Foreload "
                "does: Foreload leaves out hidden and system names (docs/layouts.md); remove the directory",
            )
        if numbers.get(name) != ours.get(name):
            raise config_error(
                "dataset",
                f"class {name!r} has number {numbers.get(name)} in class_to_idx and "
                f"{ours.get(name)} in Foreload, which numbers the directories in the order of their names: make the "
                "ImageFolder without your own find_classes(), or pass class_names=",
            )
    anew = "make the ImageFolder again, and pass rebuild_index=True"
    step = max(1, len(dataset.samples) // _COMPARED_PATHS)
    for number in range(0, len(dataset.samples), step):
        theirs = str(dataset.samples[number][0])
        within = os.path.relpath(theirs, _folder(dataset))
        own = str(loader.locate(number)[0]) if number < loader.samples else ""
        if own.lower().endswith(_ONLY_OURS):
            raise config_error(
                "dataset",
                f"{own} is an image that Foreload reads and ImageFolder does not: move it, or rename it to .jpg",
            )
        if not own.endswith(os.sep + within):
            raise config_error(
                "dataset",
                f"{theirs} is sample {number} of the ImageFolder, but not of the directory as "
                f"Foreload indexed it: {anew}",
            )
    if len(dataset.samples) != loader.samples:
        anew = f"{anew}; Foreload, but not ImageFolder, reads files that end in {' and '.join(_ONLY_OURS)}"
        raise config_error(
            "dataset",
            f"the ImageFolder has {len(dataset.samples)} samples, but the directory as Foreload indexed "
            f"it has {loader.samples}: {anew}",
        )
    if not are_numbered and not are_labeled:
        _check_same_labels(dataset, loader)


def _check_same_labels(dataset: Any, loader: Any) -> None:
    """Check that each sample has the label of its class directory, because a program may have changed labels.

    Raises:
        ConfigError: Some have other labels; the message names the first.
    """
    try:
        labels = np.asarray([label for _, label in dataset.samples])
    except ValueError:
        # The labels are lists of different lengths.
        labels = np.zeros(0)
    ours = loader.targets
    are_numbers = labels.shape == ours.shape and labels.dtype.kind in "biuf"
    differ = labels != ours if are_numbers else np.ones(len(ours), bool)
    if not differ.any():
        return
    first = int(np.argmax(differ))
    path, label = dataset.samples[first]
    raise config_error(
        "dataset",
        f"{path} has the label {label!r} in samples, but {ours[first]} by its directory ({differ.sum()} of {len(ours)} "
        "samples differ): Foreload has the labels from the directories. Pass labels=[label for _, label in "
        "dataset.samples], or write a manifest with path and label of each sample and load that",
    )


def _folder(dataset: Any) -> str:
    """Return the directory of class directories."""
    return os.fspath(getattr(dataset, "split_folder", dataset.root))


def _subset(dataset: Any) -> tuple[Any, list[int] | None]:
    """Return the dataset within (subsets of) subsets, and the numbers of its samples that they have."""
    indices = None
    while is_a(dataset, "torch.utils.data", "Subset"):
        of_this = [int(index) for index in dataset.indices]
        indices = of_this if indices is None else [of_this[index] for index in indices]
        dataset = dataset.dataset
    return dataset, indices


def _check_dataset(dataset: Any) -> None:
    """Check that a dataset reads images as Foreload does."""
    kind = type(dataset)
    if not is_a(dataset, "torchvision.datasets", "ImageFolder", "ImageNet"):
        raise config_error(
            "dataset",
            f"is a {kind.__module__}.{kind.__qualname__}, must be torchvision's ImageFolder or "
            "ImageNet itself, or a Subset of one: changes by another class cannot be taken over",
        )
    if dataset.target_transform is not None:
        raise config_error(
            "target_transform",
            f"is {dataset.target_transform!r}, must be None: apply it to the labels of each "
            "batch, for instance with a table as a tensor, table[labels]",
        )
    if dataset.extensions is None:
        raise config_error(
            "is_valid_file",
            f"is your own function, must be removed: Foreload takes all {', '.join(_READ)} "
            "files; choose files with a torch.utils.data.Subset",
        )
    loader = dataset.loader
    if getattr(loader, "__module__", "") != "torchvision.datasets.folder":
        raise config_error(
            "loader", f"is {loader!r}, must be torchvision's own: Foreload reads and decodes itself, to RGB"
        )
    other = next((path for path, _ in dataset.samples if not str(path).lower().endswith(_READ)), None)
    if other is not None:
        raise config_error(
            "dataset",
            f"{other} is not a file that Foreload reads ({', '.join(_READ)}): convert such files",
        )
