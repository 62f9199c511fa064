"""The transforms that `_made.py` makes of the core's table. `make stub` writes this file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foreload.transforms._base import Choice, Container, Mix, TimmSpecs, Transform

__all__ = [
    "RandomResizedCrop",
    "Resize",
    "RandomResize",
    "RandomShortestSize",
    "ScaleJitter",
    "CenterCrop",
    "RandomCrop",
    "Pad",
    "RandomZoomOut",
    "RandomIoUCrop",
    "RandomHorizontalFlip",
    "RandomVerticalFlip",
    "Grayscale",
    "RandomGrayscale",
    "ColorJitter",
    "RandomPhotometricDistort",
    "RandomChannelPermutation",
    "RandomInvert",
    "RandomPosterize",
    "RandomSolarize",
    "RandomAutocontrast",
    "RandomEqualize",
    "RandomAdjustSharpness",
    "GaussianBlur",
    "RandomRotation",
    "RandomAffine",
    "AutoAugment",
    "RandAugment",
    "TrivialAugmentWide",
    "AugMix",
    "TimmRandAugment",
    "RandomErasing",
    "RandomApply",
    "RandomChoice",
    "RandomOrder",
    "ToDtype",
    "Normalize",
    "MixUp",
    "CutMix",
]

@dataclass(frozen=True)
class RandomResizedCrop(Transform):
    """Crops a part of random area and shape at a random place, and resizes it.

    Args:
        size: The output's size in pixels: the side of a square, or (height, width).
        scale: The bounds of the crop's share of the image's area, which is uniform between them.
        ratio: The bounds of the crop's width / height, which is log-uniform between them.
        interpolation: `bilinear`, `bicubic`, `lanczos` (all antialiased, as torchvision's `antialias=True`), `nearest`
            or `nearest-exact`; or torchvision's `InterpolationMode`.
    """

    size: int | Sequence[int]
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (0.75, 1.3333333333333333)
    interpolation: Any = "bilinear"

@dataclass(frozen=True)
class Resize(Transform):
    """Resizes the whole image.

    Args:
        size: The length of the shorter side in pixels, which keeps the shape; or (height, width). None with `max_size`:
            the longer side becomes that long.
        interpolation: The same as for `RandomResizedCrop`.
        max_size: The most pixels of the longer side, where `size` is the length of the shorter side.
    """

    size: int | Sequence[int] | None
    interpolation: Any = "bilinear"
    max_size: int | None = None

@dataclass(frozen=True)
class RandomResize(Transform):
    """Resizes the whole image so that its shorter side has a random length.

    Args:
        min_size: The least length in pixels.
        max_size: The first length that is too long: the longest is one less, as in torchvision.
        interpolation: The same as for `RandomResizedCrop`.
    """

    min_size: int
    max_size: int
    interpolation: Any = "bilinear"

@dataclass(frozen=True)
class RandomShortestSize(Transform):
    """Resizes the whole image so that its shorter side has one of several lengths.

    Args:
        min_size: The lengths in pixels, each as likely as any other; or the only one.
        max_size: The most pixels of the longer side, to which an image is shrunk where it would be longer.
        interpolation: The same as for `RandomResizedCrop`.
    """

    min_size: int | Sequence[int]
    max_size: int | None = None
    interpolation: Any = "bilinear"

@dataclass(frozen=True)
class ScaleJitter(Transform):
    """Resizes the whole image to a random multiple of the largest size that fits into a rectangle.

    Args:
        target_size: The rectangle's (width, height) in pixels: in this order, as torchvision computes it.
        scale_range: The bounds of the multiple, which is uniform between them.
        interpolation: The same as for `RandomResizedCrop`.
    """

    target_size: Sequence[int]
    scale_range: Sequence[float] = (0.1, 2.0)
    interpolation: Any = "bilinear"

@dataclass(frozen=True)
class CenterCrop(Transform):
    """Crops the middle of an image; a smaller image is padded with black.

    Args:
        size: The output's size in pixels: the side of a square, or (height, width).
    """

    size: int | Sequence[int]

@dataclass(frozen=True)
class RandomCrop(Transform):
    """Pads an image, and crops a part of it at a random place.

    The sample of an image that is smaller than the crop fails, unless `pad_if_needed` is set.

    Args:
        size: The output's size in pixels: the side of a square, or (height, width).
        padding: The pixels added before the crop: on all sides; or (left and right, top and bottom); or (left, top,
            right, bottom).
        pad_if_needed: Whether a smaller image is padded on both sides by what it lacks.
        fill: The grey level of added pixels, or the levels of R, G and B; for `constant`.
        padding_mode: `constant`; `edge`, the nearest pixel; `reflect`, mirrored without repeating the outermost pixel;
            `symmetric`, mirrored with it.
    """

    size: int | Sequence[int]
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: int | Sequence[int] = 0
    padding_mode: str = "constant"

@dataclass(frozen=True)
class Pad(Transform):
    """Adds pixels around the image.

    Args:
        padding: The pixels added: on all sides; or (left and right, top and bottom); or (left, top, right, bottom).
        fill: The same as for `RandomCrop`.
        padding_mode: The same as for `RandomCrop`.
    """

    padding: int | Sequence[int]
    fill: int | Sequence[int] = 0
    padding_mode: str = "constant"

@dataclass(frozen=True)
class RandomZoomOut(Transform):
    """Puts the image at a random place of a larger canvas at random.

    Args:
        fill: The same as for `RandomCrop`.
        side_range: The bounds of the canvas' sides as multiples of the image's, at least 1.
        p: The probability that an image gets a canvas.
    """

    fill: int | Sequence[int] = 0
    side_range: Sequence[float] = (1.0, 4.0)
    p: float = 0.5

@dataclass(frozen=True)
class RandomIoUCrop(Transform):
    """Crops a part that shares enough of its area with one of the sample's boxes, as SSD does.

    The boxes are the one field of `fields.Boxes` that follows the image. Those whose centre is outside of the crop
    become zeros and keep their rows. An image without a box whose centre is inside of it stays whole.

    Args:
        min_scale: The least share of the image's width, and of its height.
        max_scale: The largest share, at most 1.
        min_aspect_ratio: The least width / height of the crop.
        max_aspect_ratio: The largest width / height of the crop.
        sampler_options: The overlaps, of which one is drawn that crop and box must have: the area that they share, by
            that which they cover together. From 1 on it leaves the image whole. None means 0, 0.1, 0.3, 0.5, 0.7, 0.9
            and 1.
        trials: The crops that are tried before another overlap is drawn, at most 1000. After 100 overlaps the image
            stays whole.
    """

    min_scale: float = 0.3
    max_scale: float = 1.0
    min_aspect_ratio: float = 0.5
    max_aspect_ratio: float = 2.0
    sampler_options: Sequence[float] | None = None
    trials: int = 40

@dataclass(frozen=True)
class RandomHorizontalFlip(Transform):
    """Mirrors left and right at random.

    Args:
        p: The probability that an image is mirrored.
    """

    p: float = 0.5

@dataclass(frozen=True)
class RandomVerticalFlip(Transform):
    """Mirrors top and bottom at random.

    Args:
        p: The probability that an image is mirrored.
    """

    p: float = 0.5

@dataclass(frozen=True)
class Grayscale(Transform):
    """Converts to grey: .2989 R + .587 G + .114 B, truncated, as torchvision does with uint8 tensors.

    It comes after the geometry and before `ToDtype`.

    Args:
        num_output_channels: 3, unlike torchvision's default of 1: images keep R, G and B, which become equal.
    """

    num_output_channels: int = 3

@dataclass(frozen=True)
class RandomGrayscale(Transform):
    """Converts to grey at random, as `Grayscale` does.

    Args:
        p: The probability of grey.
    """

    p: float = 0.1

@dataclass(frozen=True)
class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random factors, in an order that is random, too.

    What is None does not change. A factor with equal bounds is fixed: `ColorJitter(brightness=(1.5, 1.5))`.

    Args:
        brightness: How far the factor may go from 1, but not below 0; or its bounds, from 0 on.
        contrast: The same, of contrast.
        saturation: The same, of saturation.
        hue: How far the hue may turn, as a share of a full turn from 0 to 0.5; or its bounds, from -0.5 to 0.5.
    """

    brightness: float | Sequence[float] | None = None
    contrast: float | Sequence[float] | None = None
    saturation: float | Sequence[float] | None = None
    hue: float | Sequence[float] | None = None

@dataclass(frozen=True)
class RandomPhotometricDistort(Transform):
    """Distorts colours as SSD does: brightness, contrast, saturation and hue, and the order of the channels.

    Contrast changes before saturation and hue, or after them, each with probability 1/2.

    Args:
        brightness: The bounds of the factor of brightness, from 0 on.
        contrast: The bounds of the factor of contrast.
        saturation: The bounds of the factor of saturation.
        hue: The bounds of the turn of the hue, as a share of a full turn, from -0.5 to 0.5.
        p: The probability of each change.
    """

    brightness: Sequence[float] = (0.875, 1.125)
    contrast: Sequence[float] = (0.5, 1.5)
    saturation: Sequence[float] = (0.5, 1.5)
    hue: Sequence[float] = (-0.05, 0.05)
    p: float = 0.5

@dataclass(frozen=True)
class RandomChannelPermutation(Transform):
    """Puts the channels into random order."""

@dataclass(frozen=True)
class RandomInvert(Transform):
    """Makes the negative at random: level x becomes 255 - x.

    Args:
        p: The probability of the negative.
    """

    p: float = 0.5

@dataclass(frozen=True)
class RandomPosterize(Transform):
    """Keeps the highest bits of each level, at random.

    Args:
        bits: The number of bits that are kept, 0 to 8.
        p: The probability that only these are kept.
    """

    bits: int
    p: float = 0.5

@dataclass(frozen=True)
class RandomSolarize(Transform):
    """Inverts levels from a threshold on, at random.

    Args:
        threshold: The first level that is inverted, 0 to 255.
        p: The probability of inverting.
    """

    threshold: float
    p: float = 0.5

@dataclass(frozen=True)
class RandomAutocontrast(Transform):
    """Stretches the levels of each channel to 0..255, at random.

    Args:
        p: The probability of stretching.
    """

    p: float = 0.5

@dataclass(frozen=True)
class RandomEqualize(Transform):
    """Makes the histogram of each channel even, at random.

    Args:
        p: The probability of an even histogram.
    """

    p: float = 0.5

@dataclass(frozen=True)
class RandomAdjustSharpness(Transform):
    """Sharpens or smooths at random.

    Args:
        sharpness_factor: From 0 on: 0 smooths, 1 changes nothing, 2 sharpens.
        p: The probability of a change.
    """

    sharpness_factor: float
    p: float = 0.5

@dataclass(frozen=True)
class GaussianBlur(Transform):
    """Blurs by a Gaussian filter of random width. Beyond its borders the image is mirrored.

    Args:
        kernel_size: The number of pixels along x and y that the filter covers, odd; or (along x, along y). An image
            must be larger than half of it.
        sigma: The standard deviation in pixels; or its bounds, between which it is uniform.
    """

    kernel_size: int | Sequence[int]
    sigma: float | Sequence[float] = (0.1, 2.0)

@dataclass(frozen=True)
class RandomRotation(Transform):
    """Rotates by a random angle. The image keeps its size.

    Args:
        degrees: How far the angle goes from 0, or its bounds; in degrees, counter-clockwise.
        interpolation: `nearest`, `bilinear` or `bicubic`, without antialiasing; or torchvision's `InterpolationMode`.
        expand: False: all images of a batch have one size, which a rotation keeps.
        center: The fixed point (x, y) in pixels, from the image's left and top. None: the centre.
        fill: What is shown outside of the image: one value of 0..255, or three for R, G and B. None: black, which
            `bilinear` and `bicubic` mix with the image at its border, as torchvision does.
    """

    degrees: float | Sequence[float]
    interpolation: Any = "nearest"
    expand: bool = False
    center: Sequence[float] | None = None
    fill: float | Sequence[float] | None = 0

@dataclass(frozen=True)
class RandomAffine(Transform):
    """Rotates, moves, scales and shears by random amounts. The image keeps its size.

    Args:
        degrees: How far the angle goes from 0, or its bounds; in degrees, clockwise.
        translate: How far the image moves along x and y, as shares of its width and height; a whole number of pixels is
            drawn. None: it does not move.
        scale: The bounds of the factor of its size. None: it is not scaled.
        shear: How far it is sheared along x from 0, or the bounds of that; or four numbers, the bounds along x, then
            along y; in degrees. None: it is not sheared.
        interpolation: The same as for `RandomRotation`.
        fill: The same as for `RandomRotation`.
        center: The same as for `RandomRotation`.
    """

    degrees: float | Sequence[float]
    translate: Sequence[float] | None = None
    scale: Sequence[float] | None = None
    shear: float | Sequence[float] | None = None
    interpolation: Any = "nearest"
    fill: float | Sequence[float] | None = 0
    center: Sequence[float] | None = None

@dataclass(frozen=True)
class AutoAugment(Transform):
    """Applies one of 25 pairs of operations that were found by search (Cubuk et al., 2018).

    Args:
        policy: The dataset for which they were found: `imagenet`, `cifar10` or `svhn`; or torchvision's
            `AutoAugmentPolicy`.
        interpolation: The same as for `RandomRotation`.
        fill: The same as for `RandomRotation`; here None by default.
    """

    policy: Any = "imagenet"
    interpolation: Any = "nearest"
    fill: float | Sequence[float] | None = None

@dataclass(frozen=True)
class RandAugment(TimmSpecs):
    """Applies some of 14 operations, all of one strength (Cubuk et al., 2019).

    `RandAugment.timm` makes timm's, which has another distribution.

    Args:
        num_ops: The number of operations; one may be drawn several times.
        magnitude: The number of the strength, from 0.
        num_magnitude_bins: The number of strengths, at least 2.
        interpolation: The same as for `RandomRotation`.
        fill: The same as for `RandomRotation`; here None by default.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"
    fill: float | Sequence[float] | None = None

@dataclass(frozen=True)
class TrivialAugmentWide(Transform):
    """Applies one of 14 operations, of random strength (Müller and Hutter, 2021).

    Args:
        num_magnitude_bins: The number of strengths, at least 2.
        interpolation: The same as for `RandomRotation`.
        fill: The same as for `RandomRotation`; here None by default.
    """

    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"
    fill: float | Sequence[float] | None = None

@dataclass(frozen=True)
class AugMix(Transform):
    """Mixes an image with what several chains of operations make of it (Hendrycks et al., 2019).

    Args:
        severity: How many of ten strengths are drawn from, the weakest first.
        mixture_width: The number of chains, at most 16.
        chain_depth: The number of operations of a chain, at most 16. Where it is not above 0: 1 to 3, at random.
        alpha: The parameter of the distributions of weights, Beta for the image and Dirichlet for the chains.
        all_ops: Whether brightness, colour, contrast and sharpness are among the operations.
        interpolation: The same as for `RandomRotation`; here `bilinear` by default.
        fill: The same as for `RandomRotation`; here None by default.
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: Any = "bilinear"
    fill: float | Sequence[float] | None = None

@dataclass(frozen=True)
class TimmRandAugment(Transform):
    """Applies some of 15 operations, as timm's `rand_augment_transform` does; `RandAugment.timm` makes it of a spec.

    Each operation that is drawn is applied with a probability, and has a magnitude of its own from a normal
    distribution. What operations do is what torchvision's do to tensors; images move by fractions of pixels as timm's
    do, by at most 45 % of their size.

    Args:
        num_ops: The number of operations that are drawn; one may be drawn several times.
        magnitude: The mean of magnitudes; 10 is the full strength.
        magnitude_std: The standard deviation of magnitudes. Above 100 they are uniform from 0 to `magnitude`.
        magnitude_max: The largest magnitude.
        increasing: Whether posterising, solarising and the factors of colours, too, become stronger with the magnitude.
        p: The probability of each operation that is drawn.
        interpolation: The same as for `RandomRotation`; or `random`, bilinear or bicubic, each time at random.
        fill: What warps show outside of the image: one value of 0..255, or three for R, G and B.
    """

    num_ops: int = 2
    magnitude: float = 10.0
    magnitude_std: float = 0.0
    magnitude_max: float = 10.0
    increasing: bool = False
    p: float = 0.5
    interpolation: Any = "random"
    fill: float | Sequence[float] = 128

@dataclass(frozen=True)
class RandomErasing(Transform):
    """Overwrites a random rectangle, at random. An image gets none if ten attempts do not fit into it.

    It may stand anywhere after the geometry, and `value` is on the scale of the values there: grey levels before
    `ToDtype`, floats after it, normalised ones after `Normalize`.

    Args:
        p: The probability of a rectangle.
        scale: The bounds of its share of the image's area, which is uniform between them.
        ratio: The bounds of its height / width, which is log-uniform between them.
        value: What is written: a number; three, for R, G and B; `random`, a standard normal number for each value,
            which timm calls `pixel` (either is taken); or `color`, one for each channel of the rectangle, timm's
            `rand`. Normal numbers are for floats.
    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: float | Sequence[float] | str = 0.0

@dataclass(frozen=True)
class RandomApply(Container):
    """Applies all transforms of a list, or none of them, at random.

    Args:
        transforms: Transforms that change pixels, flips, and other lists of such.
        p: The probability that they are applied.
    """

    transforms: Sequence[Transform]
    p: float = 0.5

@dataclass(frozen=True)
class RandomChoice(Choice):
    """Applies one transform of a list.

    Args:
        transforms: Transforms that change pixels, flips, and other lists of such; or for `mix=` of a loader `MixUp` and
            `CutMix`, of which one is drawn for each batch.
        p: The weight of each, which need not add up to 1. None: all are equally likely.
    """

    transforms: Sequence[Transform] | Sequence[Mix]
    p: Sequence[float] | None = None

@dataclass(frozen=True)
class RandomOrder(Container):
    """Applies all transforms of a list in random order.

    Args:
        transforms: Transforms that change pixels, flips, and other lists of such.
    """

    transforms: Sequence[Transform]

@dataclass(frozen=True)
class ToDtype(Transform):
    """Converts the images' element type.

    Args:
        dtype: `float32`, `float16`, `bfloat16` or `uint8`, as a text or as NumPy's or torch's type.
        scale: True: floats have values of 0..1, unlike torchvision's default. False: they have values of 0..255, also
            for `Normalize`.
    """

    dtype: Any
    scale: bool = True

@dataclass(frozen=True)
class Normalize(Transform):
    """Subtracts the mean of each channel and divides by the standard deviation.

    Args:
        mean: The means of R, G and B, on the scale of the values, which is 0..1 after `ToDtype(dtype)`.
        std: The standard deviations of R, G and B, on the same scale.
    """

    mean: Sequence[float]
    std: Sequence[float]

@dataclass(frozen=True, kw_only=True)
class MixUp(Mix):
    """Blends each image with its partner: λ·image + (1 - λ)·partner, and their labels alike.

    λ is drawn for each global batch from Beta(alpha, alpha), as in Zhang et al., "mixup: Beyond Empirical Risk
    Minimization".

    Args:
        alpha: Both parameters of the Beta distribution, above 0.
        num_classes: The length of the soft labels, float32 [n, num_classes]. None: class numbers are not mixed, and
            `Batch.mixed` has those of the partners, and λ.
    """

    alpha: float = 1.0
    num_classes: int | None = None

@dataclass(frozen=True, kw_only=True)
class CutMix(Mix):
    """Pastes a rectangle of the partner into each image, and mixes their labels by the areas.

    λ and the rectangle are drawn for each global batch, λ from Beta(alpha, alpha). The sides of the rectangle are √(1 -
    λ) of the image's, its centre is any pixel, and λ becomes the share of the image that is left; as in torchvision,
    and in Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features".

    Args:
        alpha: Both parameters of the Beta distribution, above 0.
        num_classes: The length of the soft labels, as of `MixUp`.
    """

    alpha: float = 1.0
    num_classes: int | None = None
