"""Runs torchvision's functions with the draws that `ImageLoader.view` and `ImageLoader.mix` return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F

Drawn = dict[str, Any]
"""One operation on pixels, in the format of `view`."""


def placed(
    what: Any,
    view: Drawn,
    resize: Callable[[Any, list[int]], Any] = F.resize,
    flips_first: bool = False,
    **padding: Any,
) -> Any:
    """Return an image, a mask or boxes after a view's geometry: crop, pad, `resize`, pad, crop, flips.

    The nearest pixels of a mask differ if it is mirrored before the resize (`flips_first`). `padding` is passed to
    `pad`.
    """
    size = [view["resized_height"], view["resized_width"]]
    what = F.crop(what, view["y"], view["x"], view["height"], view["width"])
    what = F.pad(what, view["padding"], **padding) if any(view["padding"]) else what
    what = resize(flipped(what, view) if flips_first else what, size)
    left, top, width, height = (view[name] for name in ("left", "top", "output_width", "output_height"))
    behind = (left + width - size[1], top + height - size[0])
    margins = [max(0, added) for added in (-left, -top, *behind)]
    what = F.pad(what, margins, **padding)
    what = F.crop(what, top + margins[1], left + margins[0], height, width)
    return what if flips_first else flipped(what, view)


def flipped(what: Any, view: Drawn) -> Any:
    what = F.horizontal_flip(what) if view["flip"] else what
    return F.vertical_flip(what) if view["vertical_flip"] else what


def pillow_resize(image: torch.Tensor, size: list[int], interpolation: InterpolationMode) -> torch.Tensor:
    """Return a uint8 image resized by Pillow, columns before rows, as torch does it.

    By itself, Pillow resizes rows first if the height shrinks much more than the width, and rounds the intermediate
    result.
    """
    pillow, height = F.to_pil_image(image), image.shape[-2]
    for one_axis in ([height, size[1]], size):
        pillow = F.resize(pillow, one_axis, interpolation)
    return F.pil_to_tensor(pillow)


def replayed(image: torch.Tensor, drawn: Drawn) -> torch.Tensor:
    values = dict(drawn)
    name = values.pop("op")
    if name == "augmix":
        return weighted(image, values["weights"], [in_order(image, chain) for chain in values["chains"]])
    if name == "solarize_add":
        added = (image.int() + values["addition"]).clamp(0, 255).to(torch.uint8)
        return torch.where(image < values["threshold"], added, image)
    if name == "rgb_to_grayscale":
        values["num_output_channels"] = 3
    if "interpolation" in values:
        values["interpolation"] = InterpolationMode(values["interpolation"])
    if name == "erase":
        values["v"] = torch.tensor(values["v"], dtype=torch.uint8)[:, None, None]
    return getattr(F, name)(image, **values)


def in_order(image: torch.Tensor, ops: Sequence[Drawn]) -> torch.Tensor:
    """Return the result of several operations on a uint8 image, one after the other."""
    for drawn in ops:
        image = replayed(image, drawn)
    return image


def weighted(image: torch.Tensor, weights: Sequence[float], chains: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the weighted sum of torchvision's AugMix: the image's weight is 1 minus those of the chains."""
    mixed = torch.tensor(1 - sum(weights)) * image
    for weight, made in zip(weights, chains, strict=True):
        mixed += torch.tensor(weight) * made
    return mixed.to(torch.uint8)


def mixing(drawn: Drawn, classes: int) -> v2.Transform:
    """Return torchvision's MixUp or CutMix with the numbers that were drawn for a batch, instead of its own.

    It mixes each image with the one before it: so give it only the images of one mixing group.
    """
    kind = getattr(v2, drawn["transform"])

    class AsDrawn(kind):
        def make_params(self, _: Any) -> dict[str, Any]:
            if kind is v2.MixUp:
                return {"lam": drawn["lam"]}
            return {"box": drawn["box"], "lam_adjusted": drawn["lam"]}

    return AsDrawn(num_classes=classes)
