"""The recipes of `foreload.recipes`, built from torchvision's and timm's own transforms like their sources.

The defaults of parameters are those of the sources. Other values make a wrong recipe, with which the comparison shows
which errors it can detect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from foreload import recipes
from PIL import Image
from torchvision.transforms import InterpolationMode, v2

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
CIFAR = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
LEVELS = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
"""The mean and deviation of images that are not normalised."""
CLASSES = 1000
BICUBIC = InterpolationMode.BICUBIC

Transform = Callable[[Any], torch.Tensor]


@dataclass(frozen=True)
class View:
    """A source's transform of an image for one output."""

    transform: Transform
    output: int = 0
    """The index of the view in Foreload's batch."""
    normalised: tuple[Sequence[float], Sequence[float]] = IMAGENET
    of_pillow: bool = False
    """Whether the transform takes Pillow's image, not a uint8 tensor."""


@dataclass(frozen=True)
class Contest:
    """A recipe of Foreload and the transforms of its source."""

    recipe: Callable[[], recipes.Recipe]
    views: Callable[[], list[View]]
    mix: Callable[[], Callable[[torch.Tensor, torch.Tensor], Any]] | None = None
    """The source's mixing of a batch of images and labels; None if there is none."""


def finish(normalised: tuple[Sequence[float], Sequence[float]] = IMAGENET) -> list[v2.Transform]:
    """Return the last steps: floats, normalised."""
    return [v2.ToDtype(torch.float32, scale=True), v2.Normalize(*normalised)]


def sometimes(p: float, *steps: v2.Transform) -> v2.Transform:
    """Return steps that are applied with probability `p`."""
    return v2.RandomApply(list(steps), p)


def resnet50_reference(erasing: float = 0.1, bins: int = 31, how: str = "bilinear") -> list[View]:
    """pytorch/vision, references/classification/presets.py, with the arguments of IMAGENET1K_V2."""
    steps = [
        v2.RandomResizedCrop(176, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.TrivialAugmentWide(num_magnitude_bins=bins, interpolation=InterpolationMode(how)),
        *finish(),
        v2.RandomErasing(erasing),
    ]
    return [View(v2.Compose(steps))]


def deit(policy: str = "rand-m9-mstd0.5-inc1", erasing: float = 0.25, mode: str = "pixel") -> list[View]:
    """facebookresearch/deit, datasets.py: timm's own transforms. ConvNeXt and Swin call them in the same way."""
    from timm.data import create_transform

    transform = create_transform(
        input_size=224,
        is_training=True,
        color_jitter=0.3,
        auto_augment=policy,
        interpolation="bicubic",
        re_prob=erasing,
        re_mode=mode,
        re_count=1,
    )
    (drawing,) = (step for step in transform.transforms if hasattr(step, "ops"))
    for op in drawing.ops:
        if op.aug_fn.__name__ == "posterize":
            op.aug_fn = posterize
    return [View(transform, of_pillow=True)]


def posterize(image: Image.Image, bits: int, **_: Any) -> Image.Image:
    """Keep some bits, as timm does; Pillow 13 refuses to keep none, which earlier versions did."""
    return image.point([level & (0xFF00 >> bits) for level in range(256)] * 3) if bits < 8 else image


def resnet50_mixing() -> Callable[[torch.Tensor, torch.Tensor], Any]:
    """pytorch/vision, references/classification/transforms.py."""
    mixes = [v2.MixUp(alpha=0.2, num_classes=CLASSES), v2.CutMix(alpha=1.0, num_classes=CLASSES)]
    return v2.RandomChoice(mixes)


def deit_mixing(mixup: float = 0.8) -> Callable[[torch.Tensor, torch.Tensor], Any]:
    """facebookresearch/deit, main.py: timm's."""
    from timm.data import Mixup

    return Mixup(mixup_alpha=mixup, cutmix_alpha=1.0, prob=1.0, switch_prob=0.5, num_classes=CLASSES)


def plain(
    scale: tuple[float, float], normalised: tuple[Sequence[float], Sequence[float]], flip: float
) -> list[View]:
    """Return only a bicubic crop and a flip: facebookresearch/mae, main_pretrain.py; open_clip, transform.py."""
    steps = [
        v2.RandomResizedCrop(224, scale, interpolation=BICUBIC, antialias=True),
        *([v2.RandomHorizontalFlip(flip)] if flip else []),
        *finish(normalised),
    ]
    return [View(v2.Compose(steps), normalised=normalised)]


def cifar(trivial_augment: bool = False, erasing: float = 0.0, padding: int = 4) -> list[View]:
    """kuangliu/pytorch-cifar, main.py."""
    steps = [
        v2.RandomCrop(32, padding=padding),
        v2.RandomHorizontalFlip(),
        *([v2.TrivialAugmentWide()] if trivial_augment else []),
        *finish(CIFAR),
        *([v2.RandomErasing(erasing)] if erasing else []),
    ]
    return [View(v2.Compose(steps), normalised=CIFAR)]


@dataclass(frozen=True)
class Contrast:
    """A view of contrastive learning: crop, colours, blur, solarising, and a flip before or after them."""

    side: int = 224
    scale: tuple[float, float] = (0.08, 1.0)
    how: InterpolationMode = BICUBIC
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.2, 0.1)
    jitter_p: float = 0.8
    grey: float = 0.2
    blur: float = 0.0
    kernel: int = 23
    sigma: tuple[float, float] = (0.1, 2.0)
    solarise: float = 0.0
    threshold: int = 128
    flip: float = 0.5
    flip_last: bool = False
    normalised: tuple[Sequence[float], Sequence[float]] = IMAGENET

    def view(self, output: int = 0) -> View:
        """Return the view."""
        colours = [
            sometimes(self.jitter_p, v2.ColorJitter(*self.jitter)),
            v2.RandomGrayscale(self.grey),
            sometimes(self.blur, v2.GaussianBlur(self.kernel, self.sigma)),
            v2.RandomSolarize(self.threshold, self.solarise),
        ]
        flip = [v2.RandomHorizontalFlip(self.flip)]
        steps = [
            v2.RandomResizedCrop(self.side, self.scale, interpolation=self.how, antialias=True),
            *(colours + flip if self.flip_last else flip + colours),
            *finish(self.normalised),
        ]
        return View(v2.Compose(steps), output, self.normalised)


def simclr(strength: float = 1.0) -> list[View]:
    """google-research/simclr, data_util.py, in torchvision's terms."""
    s = strength
    jitter = (0.8 * s, 0.8 * s, 0.8 * s, 0.2 * s)
    views = [Contrast(jitter=jitter, blur=0.5, normalised=LEVELS).view(output) for output in (0, 1)]
    # Both views have the same distribution, so one of them is enough.
    return views[:1]


MOCO = {"scale": (0.2, 1.0), "how": InterpolationMode.BILINEAR, "flip_last": True}


def moco_v3(**wrong: Any) -> list[View]:
    """facebookresearch/moco-v3, main_moco.py, with the crops of its ResNet-50."""
    first = Contrast(**MOCO, blur=1.0)
    return [first.view(), *moco_v3_second(**wrong)]


def moco_v3_second(**wrong: Any) -> list[View]:
    """Return only the second view."""
    return [Contrast(**{**MOCO, "blur": 0.1, "solarise": 0.2, **wrong}).view(1)]


def byol() -> list[View]:
    """google-deepmind/deepmind-research, byol/utils/augmentations.py, in torchvision's terms."""
    return [Contrast(blur=1.0).view(0), Contrast(blur=0.1, solarise=0.2).view(1)]


def dino() -> list[View]:
    """facebookresearch/dino, main_dino.py; all local crops have one distribution."""
    whole, part = (0.4, 1.0), (0.05, 0.4)
    return [
        Contrast(scale=whole, blur=1.0).view(0),
        Contrast(scale=whole, blur=0.1, solarise=0.2).view(1),
        Contrast(96, part, blur=0.5).view(2),
    ]


def dinov2(blurs: tuple[float, float, float] = (1.0, 0.1, 0.5)) -> list[View]:
    """facebookresearch/dinov2, data/augmentations.py."""
    whole, part = (0.32, 1.0), (0.05, 0.32)
    return [
        Contrast(scale=whole, blur=blurs[0], kernel=9).view(0),
        Contrast(scale=whole, blur=blurs[1], kernel=9, solarise=0.2).view(1),
        Contrast(96, part, blur=blurs[2], kernel=9).view(2),
    ]


CONTESTS: dict[str, Contest] = {
    "resnet50_reference": Contest(lambda: recipes.resnet50_reference(CLASSES), resnet50_reference),
    "resnet50_reference, mixed": Contest(
        lambda: recipes.resnet50_reference(CLASSES), resnet50_reference, resnet50_mixing
    ),
    "deit, convnext, swin": Contest(lambda: recipes.deit(CLASSES), deit),
    "deit, convnext, swin, mixed": Contest(lambda: recipes.deit(CLASSES), deit, deit_mixing),
    "mae": Contest(recipes.mae, lambda: plain((0.2, 1.0), IMAGENET, 0.5)),
    "simclr": Contest(recipes.simclr, simclr),
    "moco_v3": Contest(recipes.moco_v3, moco_v3),
    "byol": Contest(recipes.byol, byol),
    "dino": Contest(recipes.dino, dino),
    "dinov2": Contest(recipes.dinov2, dinov2),
    "dinov2, as trained": Contest(lambda: recipes.dinov2(as_trained=True), lambda: dinov2((0.0, 0.9, 0.5))),
    "clip": Contest(recipes.clip, lambda: plain((0.9, 1.0), CLIP, 0.0)),
    "cifar": Contest(recipes.cifar, cifar),
    "cifar, TrivialAugmentWide, erasing": Contest(
        lambda: recipes.cifar(trivial_augment=True, erasing=0.5), lambda: cifar(True, 0.5)
    ),
}
"""Each recipe with its source."""


def _moco(**wrong: Any) -> Contest:
    return Contest(recipes.moco_v3, lambda: moco_v3_second(**wrong))


def _of(name: str, views: Callable[[], list[View]]) -> Contest:
    return Contest(CONTESTS[name].recipe, views, CONTESTS[name].mix)


WRONG: dict[str, Contest] = {
    "moco_v3: grey 0.3, not 0.2": _moco(grey=0.3),
    "moco_v3: jitter 0.5, 0.5, 0.3, not 0.4, 0.4, 0.2": _moco(jitter=(0.5, 0.5, 0.3, 0.1)),
    "moco_v3: hue 0.2, not 0.1": _moco(jitter=(0.4, 0.4, 0.2, 0.2)),
    "moco_v3: jitter for 1, not 0.8": _moco(jitter_p=1.0),
    "moco_v3: blur for 0.3, not 0.1": _moco(blur=0.3),
    "moco_v3: solarising 0.3, not 0.2": _moco(solarise=0.3),
    "moco_v3: flips for 0.7, not 0.5": _moco(flip=0.7),
    "resnet50_reference: erasing 0.2, not 0.1": _of(
        "resnet50_reference", lambda: resnet50_reference(erasing=0.2)
    ),
    "resnet50_reference: nearest warps": _of("resnet50_reference", lambda: resnet50_reference(how="nearest")),
    "cifar: padding 5, not 4": _of("cifar", lambda: cifar(padding=5)),
    "mae: crops of 0.1, not 0.2": _of("mae", lambda: plain((0.1, 1.0), IMAGENET, 0.5)),
}
"""Recipes with sources that have one wrong number."""
