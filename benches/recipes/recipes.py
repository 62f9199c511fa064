"""The compared recipes: the steps for each image, and Foreload's aims. Every peer builds its pipeline from this table,
so that all do the same.

In every recipe a view is cropped, mirrored with probability 0.5, changed in its colours, and normalised, in this order;
the colour steps are in the order of `View`'s fields. Peers get a recipe's letter as their `--variant`.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.measure import SCALE, Options

CLASSES = 1000
"""The length of soft labels, as for ImageNet."""
FLIP = 0.5
RAND_AUGMENT = {"num_ops": 2, "magnitude": 9}
BLUR_SIGMA = (0.1, 2.0)
SOLARISE_FROM = 128
MIXUP_ALPHA = 0.2
CUTMIX_ALPHA = 1.0
ERASED_SCALE = (0.02, 0.33)
"""The bounds of the erased share of an image, torchvision's default."""
ERASED_RATIO = (0.3, 3.3)
"""The bounds of the erased rectangle's ratio of sides, torchvision's default."""


@dataclass(frozen=True)
class Jitter:
    """The largest changes of brightness, contrast, saturation and hue, as for torchvision's `ColorJitter`."""

    brightness: float
    contrast: float
    saturation: float
    hue: float
    p: float = 1.0
    """The probability that an image is changed."""

    @property
    def strengths(self) -> tuple[float, float, float, float]:
        return self.brightness, self.contrast, self.saturation, self.hue


@dataclass(frozen=True)
class View:
    """The steps of an image for one output. A number without a unit is the probability of its step."""

    side: int = 224
    scale: tuple[float, float] = SCALE
    """The bounds of the random crop's share of the area."""
    interpolation: str = "bilinear"
    """`bilinear` or `bicubic`, with antialiasing."""
    jitter: Jitter | None = None
    grey: float = 0.0
    blur: float = 0.0
    solarise: float = 0.0
    policy: str | None = None
    """`RandAugment`, with `RAND_AUGMENT`, or `TrivialAugmentWide`: one of their random lists of steps."""
    warp: str = "nearest"
    """The interpolation of the policy's rotations and shears: `nearest`, the default of its paper and of torchvision,
    or `bilinear`, which torchvision's reference trainings use.
    """

    @property
    def blur_kernel(self) -> int:
        """The side of the blur's kernel, a tenth of the image's as in SimCLR (Chen et al., 2020), and odd."""
        return self.side // 10 | 1


@dataclass(frozen=True)
class Aims:
    """Foreload's aims for a recipe; None if there is none."""

    cost: float | None = None
    """The most CPU time, relative to Foreload's own for the recipe `BASE`."""
    cost_avx2: float | None = None
    """The same for a processor without AVX-512; None if it does not differ."""
    saving: float | None = None
    """The least ratio of the best peer's CPU time to Foreload's."""
    torchvision: float | None = None
    """The least ratio of torchvision's CPU time to Foreload's."""


@dataclass(frozen=True)
class Recipe:
    """One recipe."""

    title: str
    views: tuple[View, ...]
    aims: Aims
    erasing: float = 0.0
    """The probability that a rectangle of the normalised image becomes 0."""
    mixing: bool = False
    """Whether batches are mixed, by MixUp or by CutMix with equal probability, with soft labels."""


SIMCLR = View(jitter=Jitter(0.8, 0.8, 0.8, 0.2, p=0.8), grey=0.2, blur=0.5)


def dino(side: int, scale: tuple[float, float], blur: float, solarise: float = 0.0) -> View:
    """Return a view of DINO (Caron et al., 2021); its views differ in these parameters."""
    jitter = Jitter(0.4, 0.4, 0.2, 0.1, p=0.8)
    return View(side, scale, "bicubic", jitter, grey=0.2, blur=blur, solarise=solarise)


GLOBAL, LOCAL = (0.4, 1.0), (0.05, 0.4)
"""The bounds of the area of DINO's crops."""
POLICY, TRIVIAL = Aims(cost=1.2, saving=6), Aims(cost=1.12, saving=5)
BASE = "a"
RECIPES: dict[str, Recipe] = {
    "a": Recipe("crop, flip", (View(),), Aims()),
    "b": Recipe(
        "ColorJitter(.4, .4, .4, .1)",
        (View(jitter=Jitter(0.4, 0.4, 0.4, 0.1)),),
        Aims(cost=1.3, cost_avx2=1.45, saving=3.5),
    ),
    "c": Recipe("RandAugment(2, 9)", (View(policy="RandAugment"),), POLICY),
    "c-bilinear": Recipe(
        "RandAugment(2, 9, bilinear)", (View(policy="RandAugment", warp="bilinear"),), POLICY
    ),
    "d": Recipe(
        "TrivialAugmentWide, RandomErasing(.1)", (View(policy="TrivialAugmentWide"),), TRIVIAL, erasing=0.1
    ),
    "d-bilinear": Recipe(
        "TrivialAugmentWide(bilinear), RandomErasing(.1)",
        (View(policy="TrivialAugmentWide", warp="bilinear"),),
        TRIVIAL,
        erasing=0.1,
    ),
    "e": Recipe("SimCLR, 2 views", (SIMCLR, SIMCLR), Aims(cost=1.9, saving=3.5, torchvision=12)),
    "f": Recipe(
        "DINO, 2 views of 224 and 8 of 96, bicubic",
        (dino(224, GLOBAL, 1.0), dino(224, GLOBAL, 0.1, solarise=0.2), *[dino(96, LOCAL, 0.5)] * 8),
        Aims(cost=3.8, saving=3.6, torchvision=12),
    ),
    "g": Recipe("MixUp(.2) or CutMix(1)", (View(),), Aims(cost=1.2), mixing=True),
}


def chosen(options: Options) -> Recipe:
    return RECIPES[options.variant]


def sides(options: Options) -> list[int]:
    return [view.side for view in chosen(options).views]
