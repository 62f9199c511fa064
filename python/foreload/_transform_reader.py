"""Translates transforms of torchvision and timm into Foreload's.

Neither is ever imported: their classes are known by module and name. A class that is derived from one of them is not
translated, because its changes are unknown.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from types import SimpleNamespace
from typing import Any

from foreload import ConfigError, _timm, transforms
from foreload._core import DTYPES, compiled_size
from foreload._errors import config_error
from foreload._notices import warn
from foreload.transforms._elsewhere import ANYTHING, TORCHVISION, WHAT_TO_DO

FLOATS = tuple(dtype for dtype in DTYPES if dtype != "uint8")

_ON_GREY_LEVELS = (
    "end the transforms with PILToTensor(), which makes batches of uint8, and apply torchvision.transforms.v2.{name}, "
    "ToDtype(torch.float32, scale=True) and Normalize to the batches (they may be on the GPU). It draws once for each "
    "call: to draw more often, call it for each image, or for parts of a batch"
)
_WHAT_TO_DO = {
    **WHAT_TO_DO,
    "JPEG": _ON_GREY_LEVELS,
    "MixUp": "pass it to mix= of the loader, as foreload.transforms.{name}",
    "CutMix": "pass it to mix= of the loader, as foreload.transforms.{name}",
}
_INSTEAD_OF_TIMMS = {
    "AugMixAugment": "use torchvision's AugMix, whose operations are torchvision's",
    "ResizeKeepRatio": "remove train_crop_mode and crop_mode of create_transform",
    "TfPreprocessTransform": "remove tf_preprocessing of create_transform",
}
_NOTHING_TO_DO = ("Identity", "RGB", "ToPureTensor")
"""Foreload's images are RGB in plain tensors."""

_WARPS = "warps by 1 of 255 and by more near edges, bicubic ones by up to 11"
_POLICY = f"{_WARPS}, colours by 1"
_COLOURS = "hue by up to 14 of 255, contrast and saturation by 1"
_DIFFERS = {
    **dict.fromkeys(("Grayscale", "RandomGrayscale"), "grey by 1 of 255"),
    **dict.fromkeys(("ColorJitter", "RandomPhotometricDistort"), _COLOURS),
    "RandomAutocontrast": "autocontrast by 1 of 255",
    **dict.fromkeys(("RandomRotation", "RandomAffine"), _WARPS),
    **dict.fromkeys(("RandAugment", "TrivialAugmentWide", "AutoAugment", "AugMix"), _POLICY),
}
"""How much Pillow's arithmetic differs from that of tensors. Blurs do not differ, because torchvision also blurs PIL
images as tensors."""
_TIMM_DIFFERS = {"RandAugment": _POLICY, "AutoAugment": "grey by 1 of 255, blurs by up to 34"}
"""The same for timm's classes, which call Pillow themselves."""
_NEAREST = "nearest pixels where two are equally near"

_RESIZING = ("RandomResizedCrop", "Resize", "RandomResize", "RandomShortestSize", "ScaleJitter")
"""The transforms that resize with `interpolation`."""

_OF_PIL = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers of interpolations, which torchvision also takes."""


@dataclass
class _Reader:
    """Translates the transforms into Foreload's, in their order."""

    steps: list[transforms.Transform] = field(default_factory=list)
    dtype: str | None = None
    """The element type of the tensor so far; None while it is still a PIL image."""
    place: str = ""
    """The current transform, for errors."""

    of_pil: list[tuple[str, str]] = field(default_factory=list)
    """The transforms that torchvision would apply to PIL images, and how Pillow's arithmetic differs there."""
    of_floats: list[str] = field(default_factory=list)
    """The transforms that torchvision would apply to floats."""

    def read(self, transform: Any) -> list[transforms.Transform]:
        """Translate a whole `transform` into a list."""
        steps = list(_flatten(transform))
        size = None
        for number, step in enumerate(steps, start=1):
            self.place = f"step {number} of {len(steps)}, {_shown(step)},"
            if isinstance(step, SimpleNamespace):
                self.place = f"{step.name} of {step.owner}"
            name = _name_of(step)
            if (translate := self._translation(step)) is not None:
                size = self._add(translate, step, name)
        if size is None:
            raise config_error(
                "transform",
                "does not make all images the same size, must have RandomResizedCrop, "
                "RandomCrop, CenterCrop, or Resize to a height and a width",
            )
        if self.dtype is None:
            raise config_error("transform", "ends in PIL images, must end in tensors: add ToTensor()")
        return self.steps

    def _translation(self, step: Any) -> Translation | None:
        """Return the function that translates a step; None for a step that does not change Foreload's images."""
        if isinstance(step, SimpleNamespace) or is_a(step, "torchvision.transforms", *_READERS):
            return _READERS[_name_of(step)]
        if is_a(step, "timm.data", *_OF_TIMM):
            return _OF_TIMM[_name_of(step)]
        if not is_a(step, "torchvision.transforms", *_NOTHING_TO_DO):
            raise self._unknown(step)
        return None

    def _add(self, translate: Translation, step: Any, name: str) -> tuple[int, int] | None:
        """Add a step that Foreload supports there, and return the size of the images after it, if all have the same."""
        known = len(self.steps)
        try:
            self.steps += [self._resized(made) for made in translate(self, step, name)]
            return compiled_size(transforms.to_json(self.steps))
        except ConfigError as refusal:
            # The core counts the steps of Foreload's own list, which has no conversions to tensors. The error must name
            # the user's own step, which is torchvision's transform.
            ours = type(self.steps[-1]).__name__ if len(self.steps) > known else name
            prefix, said = "config: transforms: ", str(refusal)
            if said.startswith(prefix):
                _, is_named, behind = said.partition(f"{ours}: ")
                raise self._refusal(behind if is_named else said.removeprefix(prefix)) from None
            raise

    def _resized(self, made: transforms.Transform) -> transforms.Transform:
        """Return a transform as it resizes a PIL image, whose nearest pixels torch calls nearest-exact."""
        name = type(made).__name__
        if name not in _RESIZING:
            return made
        if self.dtype in FLOATS:
            self.of_floats.append(name)
        if self.dtype is not None or made.interpolation != "nearest":
            return made
        self.of_pil.append((name, _NEAREST))
        return replace(made, interpolation="nearest-exact")

    def _within(self, children: Iterable[Any]) -> list[list[transforms.Transform]]:
        """Translate the transforms within another one, each into a list."""
        outside, found = self.place, []
        for child in children:
            made: list[transforms.Transform] = []
            for step in _flatten(child):
                self.place = f"{outside.rstrip(',')}, within it {_shown(step)},"
                if (translate := self._translation(step)) is not None:
                    made += translate(self, step, _name_of(step))
            found.append(made)
        self.place = outside
        return found

    def random_apply(self, step: Any, _: str) -> list[transforms.Transform]:
        """Translate a list that is applied at random; lists within it are part of it."""
        within = [made for child in self._within(step.transforms) for made in child]
        return [transforms.RandomApply(within, float(step.p))]

    def random_choice(self, step: Any, _: str) -> list[transforms.Transform]:
        """Translate a choice. Equal weights become None."""
        weights = step.p if step.p is not None and len(set(step.p)) > 1 else None
        return [transforms.RandomChoice([_as_one(child) for child in self._within(step.transforms)], weights)]

    def random_order(self, step: Any, _: str) -> list[transforms.Transform]:
        """Translate a list of random order."""
        return [transforms.RandomOrder([_as_one(child) for child in self._within(step.transforms)])]

    def random_erasing(self, step: Any, _: str) -> list[transforms.Transform]:
        """Translate an erasing transform; v2 stores None for random values."""
        value = "random" if step.value is None else step.value
        return [transforms.RandomErasing(float(step.p), step.scale, step.ratio, value)]

    def same(self, step: Any, name: str) -> list[transforms.Transform]:
        """Return Foreload's transform of the same name, with the same parameters."""
        kind = getattr(transforms, name)
        parameters = {parameter.name: getattr(step, parameter.name) for parameter in fields(kind)}
        if "interpolation" in parameters:
            parameters["interpolation"] = self._interpolation(step)
        if self.dtype is None and name in _DIFFERS:
            self.of_pil.append((name, _DIFFERS[name]))
        return [kind(**parameters)]

    def random_crop(self, step: Any, _: str) -> list[transforms.Transform]:
        """Translate a padding transform; v2 stores `padding` in another order than it takes it."""
        padding = step.padding
        if padding is not None and is_a(step, "torchvision.transforms.v2", "RandomCrop"):
            left, right, top, bottom = padding
            padding = (left, top, right, bottom)
        return [transforms.RandomCrop(step.size, padding, step.pad_if_needed, step.fill, step.padding_mode)]

    def random_iou_crop(self, step: Any, _: str) -> list[transforms.Transform]:
        """Translate a crop that is chosen by boxes; v2 stores its overlaps under another name than it takes them."""
        ratios = (step.min_aspect_ratio, step.max_aspect_ratio)
        return [transforms.RandomIoUCrop(step.min_scale, step.max_scale, *ratios, step.options, step.trials)]

    def of_timm(self, step: Any, name: str) -> list[transforms.Transform]:
        """Translate a transform of timm that torchvision does not have."""
        made, why_not = _timm.translated(name, step)
        if made is None:
            raise self._refusal(why_not)
        if self.dtype is None and name in _TIMM_DIFFERS:
            self.of_pil.append((name, _TIMM_DIFFERS[name]))
        return [made]

    def to_grey_levels(self, step: Any, _: str) -> list[transforms.Transform]:
        """Keep values of 0..255."""
        self._check_image("remove it, these are tensors already")
        self.dtype = "uint8"
        return []

    def to_tensor(self, step: Any, _: str) -> list[transforms.Transform]:
        """Make values of 0..1, float32."""
        self._check_image(
            "remove it, these are tensors already; ToDtype(torch.float32, scale=True) scales them"
        )
        self.dtype = "float32"
        return [transforms.ToDtype("float32")]

    def convert(self, step: Any, _: str) -> list[transforms.Transform]:
        """Translate to `ToDtype` with the user's scale; ConvertImageDtype always scales."""
        if self.dtype is None:
            raise self._refusal("must come after ToImage() or PILToTensor()")
        wanted = step.dtype if not isinstance(step.dtype, dict) else None
        dtype = str(wanted).removeprefix("torch.")
        if dtype not in (*FLOATS, "uint8"):
            raise self._refusal(f"must be one of torch.{', torch.'.join(FLOATS)}, torch.uint8")
        self.dtype = dtype
        return [transforms.ToDtype(dtype, scale=getattr(step, "scale", True))]

    def normalize(self, step: Any, name: str) -> list[transforms.Transform]:
        """Translate Normalize, which needs floats."""
        if self.dtype not in FLOATS:
            raise self._refusal(
                "must come after ToTensor(), or ToImage() and ToDtype(torch.float32, scale=True)"
            )
        if len(step.mean) != 3 or len(step.std) != 3:
            raise self._refusal("must have three means and three deviations: Foreload's images are RGB")
        return self.same(step, name)

    def _interpolation(self, step: Any) -> Any:
        """Return the interpolation, which must be antialiased even where torchvision does not have to."""
        # It is torchvision's enumeration in v1 and in the preset of weights, and a string in v2.
        interpolation = getattr(step.interpolation, "value", step.interpolation)
        if type(interpolation) is int:
            interpolation = _OF_PIL.get(interpolation, interpolation)
        # PIL images are always antialiased, whatever `antialias` is. Tensors are antialiased if it is True: for
        # torchvision, None means False, and so does "warn", the default before 0.17.
        antialias = getattr(step, "antialias", True)
        if self.dtype is not None and antialias is not True and not str(interpolation).startswith("nearest"):
            raise self._refusal(
                f"has antialias={antialias!r}, with which torchvision does not antialias tensors, must have "
                "antialias=True, as in Foreload"
            )
        return interpolation

    def _check_image(self, what_to_do: str) -> None:
        if self.dtype is not None:
            raise self._refusal(f"takes PIL images: {what_to_do}")

    def _refusal(self, problem: str) -> ConfigError:
        return config_error("transform", f"{self.place} {problem}")

    def _unknown(self, step: Any) -> ConfigError:
        """Return the error for a transform that Foreload does not have, with what to do."""
        name = getattr(step, "__name__", type(step).__name__)
        if type(step).__module__.startswith("torchvision.transforms"):
            what = _WHAT_TO_DO.get(name, TORCHVISION).format(name=name)
        elif is_a(step, "timm.data", *_INSTEAD_OF_TIMMS):
            what = _INSTEAD_OF_TIMMS[name]
        elif isinstance(step, list | tuple):
            what = "it is several transforms: join them with Compose, or remove timm's separate=True"
        else:
            what = ANYTHING
        return self._refusal(f"is not supported by Foreload: {what}")


Translation = Callable[[_Reader, Any, str], list[transforms.Transform]]
"""A function that translates a step, given with its name, into Foreload's transforms."""

_OTHERWISE = (
    *("Transform", "Views", "MixUp", "CutMix", "TimmRandAugment"),
    *("RandomApply", "RandomChoice", "RandomOrder", "RandomErasing"),
)
"""The classes of Foreload without a class of torchvision with the same parameters."""

_READERS: dict[str, Translation] = {
    **{name: _Reader.same for name in transforms.__all__ if name not in _OTHERWISE},
    "RandomApply": _Reader.random_apply,
    "RandomChoice": _Reader.random_choice,
    "RandomOrder": _Reader.random_order,
    "RandomErasing": _Reader.random_erasing,
    "RandomCrop": _Reader.random_crop,
    "RandomIoUCrop": _Reader.random_iou_crop,
    "PILToTensor": _Reader.to_grey_levels,
    "ToImage": _Reader.to_grey_levels,
    "ToTensor": _Reader.to_tensor,
    "ConvertImageDtype": _Reader.convert,
    "ToDtype": _Reader.convert,
    "Normalize": _Reader.normalize,
}
"""How each class of torchvision is translated. Classes with Foreload's names and parameters need no line here."""

_OF_TIMM: dict[str, Translation] = {
    "RandomResizedCropAndInterpolation": _Reader.of_timm,
    "RandAugment": _Reader.of_timm,
    "AutoAugment": _Reader.of_timm,
    "RandomErasing": _Reader.of_timm,
    "MaybeToTensor": _Reader.to_tensor,
    "MaybePILToTensor": _Reader.to_grey_levels,
}
"""How each class of timm is translated."""


def read(transform: Any) -> list[transforms.Transform]:
    """Return Foreload's list for a transform of torchvision or timm, and warn if Pillow's arithmetic differs.

    Raises:
        ConfigError: It does something that Foreload does not support there; the message says what, and what to do.
    """
    reader = _Reader()
    steps = reader.read(transform)
    if reader.of_floats:
        warn(
            f"transform: {', '.join(dict.fromkeys(reader.of_floats))}: resizes uint8 values, but torchvision "
            "would resize floats, which it does not round, and with bicubic does not clamp to their range. To silence "
            "this, put the conversion to floats after it"
        )
    if reader.of_pil:
        names, differences = (dict.fromkeys(words) for words in zip(*reader.of_pil, strict=True))
        warn(
            f"transform: {', '.join(names)}: gives the values that torchvision gives for uint8 tensors. For "
            f"PIL images it uses Pillow, which gives other values ({'; '.join(differences)}). To silence this, put "
            "ToImage() before it"
        )
    return steps


def _as_one(steps: list[transforms.Transform]) -> transforms.Transform:
    """Return one transform that applies all of a list, which comes from a Compose or an Identity."""
    return steps[0] if len(steps) == 1 else transforms.RandomApply(steps, p=1.0)


def _shown(step: Any) -> str:
    """Return the `repr` of a step in one line; containers have several lines."""
    return textwrap.shorten(repr(step), 200, placeholder=" ...")


def _name_of(step: Any) -> str:
    return step.name if isinstance(step, SimpleNamespace) else type(step).__name__


def is_a(thing: Any, package: str, *names: str) -> bool:
    """Return whether the class of `thing` is one of these, not derived from one, in this package or a module of it."""
    module = type(thing).__module__
    return type(thing).__name__ in names and (module == package or module.startswith(f"{package}."))


def _flatten(transform: Any) -> Iterator[Any]:
    """Yield the transforms one after another, without the containers that hold them."""
    if transform is None or is_a(transform, "torch.nn", "Identity"):
        return
    if is_a(transform, "torchvision.transforms", "Compose"):
        for step in transform.transforms:
            yield from _flatten(step)
    elif is_a(transform, "torch.nn", "Sequential") or is_a(
        transform, "torchvision.transforms.v2", "Sequential"
    ):
        for step in transform:
            yield from _flatten(step)
    elif is_a(transform, "torchvision.transforms", "ImageClassification"):
        yield from _preset(transform)
    else:
        yield transform


def _preset(transform: Any) -> Iterator[SimpleNamespace]:
    """Yield the steps of `weights.transforms()`."""

    def step(name: str, **parameters: Any) -> SimpleNamespace:
        return SimpleNamespace(name=name, owner="ImageClassification", **parameters)

    how = {"interpolation": transform.interpolation, "antialias": transform.antialias}
    yield step("Resize", size=transform.resize_size, max_size=None, **how)
    yield step("CenterCrop", size=transform.crop_size)
    yield step("PILToTensor")
    yield step("ConvertImageDtype", dtype="float32")
    yield step("Normalize", mean=transform.mean, std=transform.std)
