"""Translates torchvision's `ImageFolder` and its transforms into settings and transforms of Foreload.

torchvision is never imported: its classes are known by module and name. A class derived from one of them is another
class, because what it changes cannot be known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any

from foreload import ConfigError, transforms
from foreload._core import DTYPES, IMAGE_EXTENSIONS, compiled_size
from foreload._errors import config_error

_READ = tuple(f".{extension}" for extension in IMAGE_EXTENSIONS)
_FLOATS = tuple(dtype for dtype in DTYPES if dtype != "uint8")
_COMPARED_PATHS = 1000

_ON_BATCHES = (
    "leave it out here and apply torchvision.transforms.v2.{name} to the batches that come (they may be on the GPU); "
    "it draws once a call, so call it for each image, or for parts of a batch, where that is too seldom"
)
_ON_GREY_LEVELS = (
    "end the transforms with PILToTensor(), which makes batches of uint8, and apply torchvision.transforms.v2.{name}, "
    "ToDtype(torch.float32, scale=True) and Normalize to those (they may be on the GPU); it draws once a call, so call "
    "it for each image, or for parts of a batch, where that is too seldom"
)
_COLOURS = ("AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix", "JPEG")
_WHAT_TO_DO = {
    **dict.fromkeys(_COLOURS, _ON_GREY_LEVELS),
    "RandomSizedCrop": "use RandomResizedCrop, its name today",
    "RandomIoUCrop": "a crop cannot be chosen by boxes here; use RandomResizedCrop, and boxes with shares=True",
    "FiveCrop": "evaluate with Resize and CenterCrop",
    "TenCrop": "evaluate with Resize and CenterCrop",
    "Scale": "use Resize, its name today",
}
_RANDOM = ("Random", "ScaleJitter")
"""How the names of transforms begin that draw random numbers."""
_NOTHING_TO_DO = ("Identity", "RGB", "ToPureTensor")
"""Foreload's images are RGB in plain tensors."""


def settings_of(dataset: Any) -> dict[str, Any]:
    """The settings of `foreload.torch.ImageDataset` that mean what `dataset` does.

    Args:
        dataset: A `torchvision.datasets.ImageFolder` or `ImageNet`, or a `torch.utils.data.Subset` of one.

    Raises:
        ConfigError: It does something that Foreload does not do; the message says what, and what to do.
    """
    dataset, indices = _subset(dataset)
    _check_dataset(dataset)
    steps = _Reader().read(dataset.transform)
    is_training = any(type(step).__name__.startswith(_RANDOM) for step in steps)
    settings = {"path": _folder(dataset), "train": is_training, "transforms": steps}
    return settings if indices is None else {**settings, "indices": indices}


def merged(taken: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The settings of the dataset together with the caller's, which may not repeat them.

    Raises:
        ConfigError: One is given twice. Only a float type may be replaced by another float type.
    """
    given = dict(given)
    dtype = str(given.get("dtype")).removeprefix("torch.")
    if dtype in _FLOATS and taken["transforms"][-1:] and _dtype_of(taken["transforms"]) in _FLOATS:
        taken = {**taken, "transforms": [_of_dtype(step, dtype) for step in taken["transforms"]]}
        del given["dtype"]
    for name in taken.keys() & given.keys():
        raise config_error(
            name,
            f"is {given[name]!r}, and {taken[name]!r} by the dataset: leave it out, or change the "
            "dataset or its transforms",
        )
    return {**taken, **given}


def _dtype_of(steps: list[transforms.Transform]) -> str:
    """The element type of the images that a list makes."""
    return next((step.dtype for step in reversed(steps) if isinstance(step, transforms.ToDtype)), "uint8")


def _of_dtype(step: transforms.Transform, dtype: str) -> transforms.Transform:
    """The step, with this type in the place of another float type."""
    if isinstance(step, transforms.ToDtype) and step.dtype in _FLOATS:
        return transforms.ToDtype(dtype, scale=step.scale)
    return step


def check_same_samples(dataset: Any, loader: Any) -> None:
    """Check that the samples and class numbers of `loader` are those of the whole ImageFolder.

    Classes and the number of samples are compared always, paths of some 1000 samples, evenly spread: a file that took
    the place of another between two of these is not noticed.

    Raises:
        ConfigError: They differ; the message names the class or the path.
    """
    dataset, _ = _subset(dataset)
    numbers = getattr(dataset, "wnid_to_idx", dataset.class_to_idx)
    ours = {name: number for number, name in enumerate(loader.classes)}
    for name in sorted({*numbers, *ours}):
        if numbers.get(name) != ours.get(name):
            raise config_error(
                "dataset",
                f"class {name!r} has number {numbers.get(name)} in class_to_idx and "
                f"{ours.get(name)} in Foreload, which numbers the directories in the order of their names: make the "
                "ImageFolder without a find_classes() of your own",
            )
    anew = "make the ImageFolder anew, and say rebuild_index=True"
    step = max(1, len(dataset.samples) // _COMPARED_PATHS)
    for number in range(0, len(dataset.samples), step):
        theirs = str(dataset.samples[number][0])
        within = os.path.relpath(theirs, _folder(dataset))
        if number >= loader.samples or not str(loader.locate(number)[0]).endswith(os.sep + within):
            raise config_error(
                "dataset",
                f"{theirs} is sample {number} of the ImageFolder and not of the directory as "
                f"Foreload indexed it: {anew}",
            )
    if len(dataset.samples) != loader.samples:
        raise config_error(
            "dataset",
            f"the ImageFolder has {len(dataset.samples)} samples, the directory as Foreload indexed "
            f"it {loader.samples}: {anew}",
        )


def _folder(dataset: Any) -> str:
    """The directory of class directories."""
    return os.fspath(getattr(dataset, "split_folder", dataset.root))


def _subset(dataset: Any) -> tuple[Any, list[int] | None]:
    """The dataset within (subsets of) subsets, and the numbers of its samples that they have."""
    indices = None
    while _is(dataset, "torch.utils.data", "Subset"):
        of_this = [int(index) for index in dataset.indices]
        indices = of_this if indices is None else [of_this[index] for index in indices]
        dataset = dataset.dataset
    return dataset, indices


def _check_dataset(dataset: Any) -> None:
    """Check that a dataset reads images as Foreload does."""
    kind = type(dataset)
    if not _is(dataset, "torchvision.datasets", "ImageFolder", "ImageNet"):
        raise config_error(
            "dataset",
            f"is a {kind.__module__}.{kind.__qualname__}, must be torchvision's ImageFolder or "
            "ImageNet itself, or a Subset of one: what another class changes cannot be taken over",
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
            f"is a function of yours, must be left out: Foreload takes all {', '.join(_READ)} "
            "files; take the files you want with a torch.utils.data.Subset",
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
            f"{other} is none of the files that Foreload reads ({', '.join(_READ)}): convert such files",
        )


def _is(thing: Any, package: str, *names: str) -> bool:
    """Whether the class of `thing` is one of these, not derived from one, in this package or a module of it."""
    module = type(thing).__module__
    return type(thing).__name__ in names and (module == package or module.startswith(f"{package}."))


@dataclass
class _Reader:
    """Goes through the transforms in their order, and translates each into Foreload's."""

    steps: list[transforms.Transform] = field(default_factory=list)
    dtype: str | None = None
    """The element type of the tensor so far; None while it is still a PIL image."""
    place: str = ""
    """The transform at hand, for errors."""

    def read(self, transform: Any) -> list[transforms.Transform]:
        """Translate a whole `transform` into a list."""
        steps = list(_flatten(transform))
        size = None
        for number, step in enumerate(steps, start=1):
            name = type(step).__name__
            self.place = f"step {number} of {len(steps)}, {step!r},"
            if isinstance(step, SimpleNamespace):
                name, self.place = step.name, f"{step.name} of {step.owner}"
            elif not _is(step, "torchvision.transforms", *_NOTHING_TO_DO, *_READERS):
                raise self._unknown(step)
            if name in _READERS:
                size = self._add(name, step)
        if size is None:
            raise config_error(
                "transform",
                "lacks what makes all images the same size, must have RandomResizedCrop, "
                "RandomCrop, CenterCrop, or Resize to a height and a width",
            )
        if self.dtype is None:
            raise config_error("transform", "ends in PIL images, must end in tensors: add ToTensor()")
        return self.steps

    def _add(self, name: str, step: Any) -> tuple[int, int] | None:
        """Add a step, if Foreload can do it there; return the size of the images after it, if all have the same."""
        known = len(self.steps)
        try:
            self.steps += _READERS[name](self, step, name)
            return compiled_size(transforms.to_json(self.steps))
        except ConfigError as refusal:
            # The core's message about the last step must name torchvision's transform.
            ours = type(self.steps[-1]).__name__ if len(self.steps) > known else name
            said = str(refusal)
            if said.startswith("config: transforms: "):
                said = said.partition(f"{ours}: ")[2]
                raise self._refusal(said) from None
            raise

    def same(self, step: Any, name: str) -> list[transforms.Transform]:
        """Foreload's transform of the same name, with the same parameters."""
        kind = getattr(transforms, name)
        parameters = {parameter.name: getattr(step, parameter.name) for parameter in fields(kind)}
        if "interpolation" in parameters:
            parameters["interpolation"] = self._interpolation(step)
        return [kind(**parameters)]

    def random_crop(self, step: Any, _: str) -> list[transforms.Transform]:
        """Translate a padding transform; v2 stores `padding` in another order than it takes it."""
        padding = step.padding
        if padding is not None and _is(step, "torchvision.transforms.v2", "RandomCrop"):
            left, right, top, bottom = padding
            padding = (left, top, right, bottom)
        return [transforms.RandomCrop(step.size, padding, step.pad_if_needed, step.fill, step.padding_mode)]

    def to_grey_levels(self, step: Any, _: str) -> list[transforms.Transform]:
        """Keep values of 0..255."""
        self._check_image("leave it out, these are tensors already")
        self.dtype = "uint8"
        return []

    def to_tensor(self, step: Any, _: str) -> list[transforms.Transform]:
        """Make values of 0..1, float32."""
        self._check_image(
            "leave it out, these are tensors already; ToDtype(torch.float32, scale=True) scales them"
        )
        self.dtype = "float32"
        return [transforms.ToDtype("float32")]

    def convert(self, step: Any, _: str) -> list[transforms.Transform]:
        """Translate to `ToDtype` with the user's scale; ConvertImageDtype always scales."""
        if self.dtype is None:
            raise self._refusal("must come after ToImage() or PILToTensor()")
        wanted = step.dtype if not isinstance(step.dtype, dict) else None
        dtype = str(wanted).removeprefix("torch.")
        if dtype not in (*_FLOATS, "uint8"):
            raise self._refusal(f"must say one of torch.{', torch.'.join(_FLOATS)}, torch.uint8")
        self.dtype = dtype
        return [transforms.ToDtype(dtype, scale=getattr(step, "scale", True))]

    def normalize(self, step: Any, name: str) -> list[transforms.Transform]:
        """The same."""
        if self.dtype not in _FLOATS:
            raise self._refusal(
                "must come after ToTensor(), or ToImage() and ToDtype(torch.float32, scale=True)"
            )
        if len(step.mean) != 3 or len(step.std) != 3:
            raise self._refusal("must have three means and three deviations: Foreload's images are RGB")
        return self.same(step, name)

    def _interpolation(self, step: Any) -> Any:
        """The interpolation of pixels, which must be antialiased where torchvision can leave that out."""
        # torchvision's enumeration in v1, a text in v2; the preset of weights has one too.
        interpolation = getattr(step.interpolation, "value", step.interpolation)
        # PIL images are always antialiased, whatever `antialias` says. Tensors are if it is True: torchvision takes
        # None for False, and so it takes "warn", the default before 0.17.
        antialias = getattr(step, "antialias", True)
        if self.dtype is not None and antialias is not True and not str(interpolation).startswith("nearest"):
            raise self._refusal(
                f"has antialias={antialias!r}, by which torchvision does not antialias tensors, must have "
                "antialias=True, as Foreload has"
            )
        return interpolation

    def _check_image(self, what_to_do: str) -> None:
        if self.dtype is not None:
            raise self._refusal(f"takes PIL images: {what_to_do}")

    def _refusal(self, problem: str) -> ConfigError:
        return config_error("transform", f"{self.place} {problem}")

    def _unknown(self, step: Any) -> ConfigError:
        """The error for a transform that Foreload does not have, with what can be done."""
        name = getattr(step, "__name__", type(step).__name__)
        if type(step).__module__.startswith("torchvision.transforms"):
            what = _WHAT_TO_DO.get(name, _ON_BATCHES).format(name=name)
        else:
            what = "leave it out here and apply it to the batches that come"
        return self._refusal(f"is not known to Foreload: {what}")


_OTHERWISE = ("Transform", "Views", "RandomApply", "RandomChoice", "RandomOrder", "RandomErasing")
"""What of Foreload's has no class of torchvision's with the same parameters."""

_READERS = {
    **{name: _Reader.same for name in transforms.__all__ if name not in _OTHERWISE},
    "RandomCrop": _Reader.random_crop,
    "PILToTensor": _Reader.to_grey_levels,
    "ToImage": _Reader.to_grey_levels,
    "ToTensor": _Reader.to_tensor,
    "ConvertImageDtype": _Reader.convert,
    "ToDtype": _Reader.convert,
    "Normalize": _Reader.normalize,
}
"""How each class of torchvision's is translated; those with Foreload's names and parameters need no line here."""


def _flatten(transform: Any) -> Iterator[Any]:
    """The transforms one after another, out of the containers that hold them."""
    if transform is None or _is(transform, "torch.nn", "Identity"):
        return
    if _is(transform, "torchvision.transforms", "Compose"):
        for step in transform.transforms:
            yield from _flatten(step)
    elif _is(transform, "torch.nn", "Sequential") or _is(
        transform, "torchvision.transforms.v2", "Sequential"
    ):
        for step in transform:
            yield from _flatten(step)
    elif _is(transform, "torchvision.transforms", "ImageClassification"):
        yield from _preset(transform)
    else:
        yield transform


def _preset(transform: Any) -> Iterator[SimpleNamespace]:
    """The steps of `weights.transforms()`."""

    def step(name: str, **parameters: Any) -> SimpleNamespace:
        return SimpleNamespace(name=name, owner="ImageClassification", **parameters)

    how = {"interpolation": transform.interpolation, "antialias": transform.antialias}
    yield step("Resize", size=transform.resize_size, max_size=None, **how)
    yield step("CenterCrop", size=transform.crop_size)
    yield step("PILToTensor")
    yield step("ConvertImageDtype", dtype="float32")
    yield step("Normalize", mean=transform.mean, std=transform.std)
