"""The transforms that `_made.py` makes of the core's table. `make stub` writes this file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foreload.transforms._base import Choice, Container, Mix, TimmSpecs, Transform

__all__ = [
    "RandomResizedCrop",
    "Resize",
    "ResizeToCover",
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
    "Patchify",
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
    """Crops a box of random area and aspect ratio at a random place, and resizes it.

    Args:
        size: The output's size in pixels: the side of a square, (height, width), or `"bucket"`.
        scale: The bounds of the crop's area, as a fraction of the image's area; uniform between them.
        ratio: The bounds of the crop's width / height; log-uniform between them.
        interpolation: The filter: `bilinear`, `bicubic`, `lanczos` (all antialiased, as with torchvision's
            `antialias=True`), `nearest` or `nearest-exact`; or torchvision's `InterpolationMode`.
    """

    size: int | Sequence[int] | str
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (0.75, 1.3333333333333333)
    interpolation: Any = "bilinear"

@dataclass(frozen=True)
class Resize(Transform):
    """Resizes the whole image.

    Args:
        size: The length of the shorter side in pixels, which keeps the aspect ratio; (height, width); or `"bucket"`.
            None, with `max_size`: the longer side gets the length `max_size`.
        interpolation: The filter: `bilinear`, `bicubic`, `lanczos` (all antialiased), `nearest` or `nearest-exact`; or
            torchvision's `InterpolationMode`.
        max_size: The largest length of the longer side in pixels, if `size` is that of the shorter side.
    """

    size: int | Sequence[int] | str | None
    interpolation: Any = "bilinear"
    max_size: int | None = None

@dataclass(frozen=True)
class ResizeToCover(Transform):
    """Resizes the whole image to the smallest size of the same aspect ratio that covers `size`.

    A crop to `size` after it cuts off as little as possible: `size="bucket"` for both, with `buckets=` of the loader.

    Args:
        size: The size in pixels that the image covers: the side of a square, (height, width), or `"bucket"`.
        interpolation: The filter: `bilinear`, `bicubic`, `lanczos` (all antialiased), `nearest` or `nearest-exact`; or
            torchvision's `InterpolationMode`.
    """

    size: int | Sequence[int] | str
    interpolation: Any = "bilinear"

@dataclass(frozen=True)
class RandomResize(Transform):
    """Resizes the whole image so that its shorter side has a random length.

    Args:
        min_size: The smallest length in pixels.
        max_size: The upper bound of the length, exclusive: the largest length is one less, as in torchvision.
        interpolation: The filter: `bilinear`, `bicubic`, `lanczos` (all antialiased), `nearest` or `nearest-exact`; or
            torchvision's `InterpolationMode`.
    """

    min_size: int
    max_size: int
    interpolation: Any = "bilinear"

@dataclass(frozen=True)
class RandomShortestSize(Transform):
    """Resizes the whole image so that its shorter side has one of several lengths.

    Args:
        min_size: The lengths in pixels, all equally likely; or a single length.
        max_size: The largest length of the longer side in pixels. An image that would be longer is shrunk to it.
        interpolation: The filter: `bilinear`, `bicubic`, `lanczos` (all antialiased), `nearest` or `nearest-exact`; or
            torchvision's `InterpolationMode`.
    """

    min_size: int | Sequence[int]
    max_size: int | None = None
    interpolation: Any = "bilinear"

@dataclass(frozen=True)
class ScaleJitter(Transform):
    """Resizes the whole image to a random multiple of the largest size that fits into a rectangle.

    Args:
        target_size: The rectangle's (width, height) in pixels, in this order, as torchvision computes it.
        scale_range: The bounds of the multiple; uniform between them.
        interpolation: The filter: `bilinear`, `bicubic`, `lanczos` (all antialiased), `nearest` or `nearest-exact`; or
            torchvision's `InterpolationMode`.
    """

    target_size: Sequence[int]
    scale_range: Sequence[float] = (0.1, 2.0)
    interpolation: Any = "bilinear"

@dataclass(frozen=True)
class CenterCrop(Transform):
    """Crops the middle of an image; a smaller image is padded with black.

    Args:
        size: The output's size in pixels: the side of a square, (height, width), or `"bucket"`.
    """

    size: int | Sequence[int] | str

@dataclass(frozen=True)
class RandomCrop(Transform):
    """Pads an image, and crops it at a random place.

    An image that is smaller than the crop fails its sample, unless `pad_if_needed` is set.

    Args:
        size: The output's size in pixels: the side of a square, (height, width), or `"bucket"`.
        padding: The pixels added before the crop: on all sides; or (left and right, top and bottom); or (left, top,
            right, bottom).
        pad_if_needed: Whether a smaller image is padded by the number of missing pixels, on both sides.
        fill: The value of added pixels, 0 to 255, or the values of R, G and B. It is for `constant`.
        padding_mode: How added pixels are filled: `constant`, with `fill`; `edge`, with the nearest pixel; `reflect`,
            mirrored without repeating the outermost pixel; or `symmetric`, mirrored with it.
    """

    size: int | Sequence[int] | str
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: int | Sequence[int] = 0
    padding_mode: str = "constant"

@dataclass(frozen=True)
class Pad(Transform):
    """Adds pixels around the image.

    Args:
        padding: The pixels added: on all sides; or (left and right, top and bottom); or (left, top, right, bottom).
        fill: The value of added pixels, 0 to 255, or the values of R, G and B. It is for `constant`.
        padding_mode: How added pixels are filled: `constant`, with `fill`; `edge`, with the nearest pixel; `reflect`,
            mirrored without repeating the outermost pixel; or `symmetric`, mirrored with it.
    """

    padding: int | Sequence[int]
    fill: int | Sequence[int] = 0
    padding_mode: str = "constant"

@dataclass(frozen=True)
class RandomZoomOut(Transform):
    """Places the image on a larger canvas, at random.

    Args:
        fill: The value of added pixels, 0 to 255, or the values of R, G and B.
        side_range: The bounds of the canvas's sides, as multiples of the image's; at least 1.
        p: The probability that an image gets a canvas.
    """

    fill: int | Sequence[int] = 0
    side_range: Sequence[float] = (1.0, 4.0)
    p: float = 0.5

@dataclass(frozen=True)
class RandomIoUCrop(Transform):
    """Crops a part with enough intersection over union with one of the sample's boxes, as SSD does.

    The boxes are those of the only field of `fields.Boxes` that follows the image. Boxes with their centre outside of
    the crop become zeros and keep their rows. An image stays whole if no box has its centre inside of the image.

    Args:
        min_scale: The smallest width and height of the crop, as fractions of the image's.
        max_scale: The largest width and height of the crop, as fractions of the image's, at most 1.
        min_aspect_ratio: The smallest width / height of the crop.
        max_aspect_ratio: The largest width / height of the crop.
        sampler_options: The minimums of the intersection over union of crop and box. One of them is drawn for each
            image. A value of 1 or more leaves the image whole. None means 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1.
        trials: The number of crops that are tried before another minimum is drawn, at most 1000. After 100 minimums,
            the image stays whole.
    """

    min_scale: float = 0.3
    max_scale: float = 1.0
    min_aspect_ratio: float = 0.5
    max_aspect_ratio: float = 2.0
    sampler_options: Sequence[float] | None = None
    trials: int = 40

@dataclass(frozen=True)
class RandomHorizontalFlip(Transform):
    """Mirrors an image horizontally, at random.

    Args:
        p: The probability that an image is mirrored.
    """

    p: float = 0.5

@dataclass(frozen=True)
class RandomVerticalFlip(Transform):
    """Mirrors an image vertically, at random.

    Args:
        p: The probability that an image is mirrored.
    """

    p: float = 0.5

@dataclass(frozen=True)
class Patchify(Transform):
    """Cuts an image into square patches, as vision transformers take images of any size. It is the last of the list.

    The image is cropped to whole patches as by `CenterCrop`, together with the crops of the list. Images that are
    smaller than a patch fail their samples. `batch["image"]` is then a tuple of three tensors. The values are those of
    the patches of all images, row by row of each image, `[patches, 3 * patch * patch]`. The values of a patch are in
    the order of `memory_format`: (channel, row, column), or (row, column, channel) with `nhwc`. The second, int32 `[n +
    1]`, has the index of each image's first patch, then the number of all patches (`cu_seqlens`). The third, int32
    `[patches, 2]`, has the row and the column of each patch in its image.

    Args:
        patch: The side of a patch in pixels.
    """

    patch: int

@dataclass(frozen=True)
class Grayscale(Transform):
    """Converts to grey: .2989 R + .587 G + .114 B, truncated, as torchvision does for uint8 tensors.

    It must be after the geometry and before `ToDtype`.

    Args:
        num_output_channels: The number of channels. It must be 3, unlike torchvision's default of 1: images keep R, G
            and B, which become equal.
    """

    num_output_channels: int = 3

@dataclass(frozen=True)
class RandomGrayscale(Transform):
    """Converts to grey at random, as `Grayscale` does.

    Args:
        p: The probability that an image is converted.
    """

    p: float = 0.1

@dataclass(frozen=True)
class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random factors, in random order.

    A parameter that is None changes nothing. A factor with equal bounds is fixed: `ColorJitter(brightness=(1.5, 1.5))`.

    Args:
        brightness: The largest distance of the factor from 1, but the factor is never below 0; or its bounds, at least
            0.
        contrast: The same for the contrast.
        saturation: The same for the saturation.
        hue: The largest change of the hue, as a fraction of a full rotation from 0 to 0.5; or its bounds, from -0.5 to
            0.5.
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
        brightness: The bounds of the factor of brightness, at least 0.
        contrast: The bounds of the factor of contrast.
        saturation: The bounds of the factor of saturation.
        hue: The bounds of the change of the hue, as a fraction of a full rotation, from -0.5 to 0.5.
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
    """Inverts images at random: value x becomes 255 - x.

    Args:
        p: The probability that an image is inverted.
    """

    p: float = 0.5

@dataclass(frozen=True)
class RandomPosterize(Transform):
    """Keeps only the highest bits of each value, at random.

    Args:
        bits: The number of bits that are kept, 0 to 8.
        p: The probability that an image is posterised.
    """

    bits: int
    p: float = 0.5

@dataclass(frozen=True)
class RandomSolarize(Transform):
    """Inverts all values at or above a threshold, at random.

    Args:
        threshold: The lowest value that is inverted, 0 to 255.
        p: The probability that an image is solarised.
    """

    threshold: float
    p: float = 0.5

@dataclass(frozen=True)
class RandomAutocontrast(Transform):
    """Stretches the values of each channel to 0..255, at random.

    Args:
        p: The probability that an image is stretched.
    """

    p: float = 0.5

@dataclass(frozen=True)
class RandomEqualize(Transform):
    """Equalises the histogram of each channel, at random.

    Args:
        p: The probability that an image is equalised.
    """

    p: float = 0.5

@dataclass(frozen=True)
class RandomAdjustSharpness(Transform):
    """Sharpens or smooths at random.

    Args:
        sharpness_factor: The factor of the sharpness, at least 0: 0 smooths, 1 changes nothing, 2 sharpens.
        p: The probability that an image is changed.
    """

    sharpness_factor: float
    p: float = 0.5

@dataclass(frozen=True)
class GaussianBlur(Transform):
    """Blurs with a Gaussian filter of random width. The image is mirrored at its borders.

    Args:
        kernel_size: The odd number of pixels that the filter covers along x and y, or (along x, along y). The sides of
            an image must be larger than half of it.
        sigma: The standard deviation in pixels, or its bounds (uniform between them).
    """

    kernel_size: int | Sequence[int]
    sigma: float | Sequence[float] = (0.1, 2.0)

@dataclass(frozen=True)
class RandomRotation(Transform):
    """Rotates by a random angle. The image keeps its size.

    Args:
        degrees: The largest angle from 0 in either direction, or (low, high); in degrees, counter-clockwise.
        interpolation: The filter: `nearest`, `bilinear` or `bicubic`, without antialiasing; or torchvision's
            `InterpolationMode`.
        expand: Must be False: all images of a batch have the same size, which a rotation keeps.
        center: The fixed point (x, y) in pixels, from the image's left and top. None: the centre.
        fill: The value that is shown outside of the image, 0 to 255; or three for R, G and B. None: black, which
            `bilinear` and `bicubic` mix with the image at its border, as torchvision does.
    """

    degrees: float | Sequence[float]
    interpolation: Any = "nearest"
    expand: bool = False
    center: Sequence[float] | None = None
    fill: float | Sequence[float] | None = 0

@dataclass(frozen=True)
class RandomAffine(Transform):
    """Rotates, translates, scales and shears by random amounts. The image keeps its size.

    Args:
        degrees: The largest angle from 0 in either direction, or (low, high); in degrees, clockwise.
        translate: The largest translations along x and y, as fractions of width and height. A whole number of pixels is
            drawn. None: no translation.
        scale: The bounds of the scale factor. None: no scaling.
        shear: The largest shear angle along x from 0 in either direction, or its (low, high); or four numbers, the
            bounds along x, then along y; in degrees. None: no shear.
        interpolation: The filter: `nearest`, `bilinear` or `bicubic`, without antialiasing.
        fill: The value that is shown outside of the image, 0 to 255; or three for R, G and B. None: black, which
            `bilinear` and `bicubic` mix with the image at its border, as torchvision does.
        center: The fixed point (x, y) in pixels, from the image's left and top. None: the centre.
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
    """Applies one of 25 pairs of operations that were found by a search (Cubuk et al., 2018).

    Args:
        policy: The dataset of the search: `imagenet`, `cifar10` or `svhn`; or torchvision's `AutoAugmentPolicy`.
        interpolation: The filter of rotations and other warps: `nearest`, `bilinear` or `bicubic`.
        fill: The value that is shown outside of the image, 0 to 255; or three for R, G and B. None: black, which
            `bilinear` and `bicubic` mix with the image at its border, as torchvision does.
    """

    policy: Any = "imagenet"
    interpolation: Any = "nearest"
    fill: float | Sequence[float] | None = None

@dataclass(frozen=True)
class RandAugment(TimmSpecs):
    """Applies some of 14 operations, all with the same strength (Cubuk et al., 2019).

    `RandAugment.timm` makes timm's variant, which has another distribution.

    Args:
        num_ops: The number of operations; one may be drawn several times.
        magnitude: The number of the strength, from 0.
        num_magnitude_bins: The number of strengths, at least 2.
        interpolation: The filter of rotations and other warps: `nearest`, `bilinear` or `bicubic`.
        fill: The value that is shown outside of the image, 0 to 255; or three for R, G and B. None: black, which
            `bilinear` and `bicubic` mix with the image at its border, as torchvision does.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"
    fill: float | Sequence[float] | None = None

@dataclass(frozen=True)
class TrivialAugmentWide(Transform):
    """Applies one of 14 operations, with random strength (Müller and Hutter, 2021).

    Args:
        num_magnitude_bins: The number of strengths, at least 2.
        interpolation: The filter of rotations and other warps: `nearest`, `bilinear` or `bicubic`.
        fill: The value that is shown outside of the image, 0 to 255; or three for R, G and B. None: black, which
            `bilinear` and `bicubic` mix with the image at its border, as torchvision does.
    """

    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"
    fill: float | Sequence[float] | None = None

@dataclass(frozen=True)
class AugMix(Transform):
    """Mixes an image with the results of several chains of operations (Hendrycks et al., 2019).

    Args:
        severity: The number of strengths to draw from, of ten, the weakest first.
        mixture_width: The number of chains, at most 16.
        chain_depth: The number of operations of a chain, at most 16. If it is 0 or less, it is drawn from 1 to 3.
        alpha: The parameter of the distributions of the weights: Beta for the image, and Dirichlet for the chains.
        all_ops: Whether brightness, colour, contrast and sharpness are among the operations.
        interpolation: The filter of rotations and other warps: `nearest`, `bilinear` or `bicubic`.
        fill: The value that is shown outside of the image, 0 to 255; or three for R, G and B. None: black, which
            `bilinear` and `bicubic` mix with the image at its border, as torchvision does.
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
    """Applies some of 15 operations, as timm's `rand_augment_transform` does. `RandAugment.timm` makes it from a spec.

    Each drawn operation is applied with probability `p`, and has its own magnitude from a normal distribution.
    Operations give the same results as torchvision's on tensors. Images move by fractions of pixels as in timm, by at
    most 45 % of their size.

    Args:
        num_ops: The number of operations that are drawn; one may be drawn several times.
        magnitude: The mean of the magnitudes; 10 is the full strength.
        magnitude_std: The standard deviation of the magnitudes. Above 100, they are uniform from 0 to `magnitude`.
        magnitude_max: The largest magnitude.
        increasing: Whether posterising, solarising and colour factors also become stronger with the magnitude.
        p: The probability of applying each drawn operation.
        interpolation: The filter of warps: `nearest`, `bilinear` or `bicubic`; or `random`: for each warp, `bilinear`
            or `bicubic` is drawn.
        fill: The value that warps show outside of the image, 0 to 255; or three for R, G and B.
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
    """Overwrites a random rectangle, at random. Nothing is erased if ten attempts at a rectangle do not fit into the
    image.

    It may be anywhere after the geometry. `value` is on the scale of the values at that place: 0 to 255 before
    `ToDtype`, floats after it, normalised floats after `Normalize`.

    Args:
        p: The probability that a rectangle is erased.
        scale: The bounds of the rectangle's area, as a fraction of the image's area; uniform between them.
        ratio: The bounds of the rectangle's height / width; log-uniform between them.
        value: The values that are written: a number, or three for R, G and B. `random`, or timm's name `pixel`, draws a
            standard normal number for each value. `color`, timm's `rand`, draws one for each channel of the rectangle.
            Normal numbers need floats.
    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: float | Sequence[float] | str = 0.0

@dataclass(frozen=True)
class RandomApply(Container):
    """Applies all transforms of a list, or none of them, at random.

    Args:
        transforms: Transforms that change pixels, flips, and other containers.
        p: The probability that they are applied.
    """

    transforms: Sequence[Transform]
    p: float = 0.5

@dataclass(frozen=True)
class RandomChoice(Choice):
    """Applies one transform of a list.

    Args:
        transforms: Transforms that change pixels, flips, and other containers. For `mix=` of a loader: `MixUp` and
            `CutMix`, of which one is drawn for each batch.
        p: The weight of each transform. Weights need not add up to 1. None: all are equally likely.
    """

    transforms: Sequence[Transform] | Sequence[Mix]
    p: Sequence[float] | None = None

@dataclass(frozen=True)
class RandomOrder(Container):
    """Applies all transforms of a list in random order.

    Args:
        transforms: Transforms that change pixels, flips, and other containers.
    """

    transforms: Sequence[Transform]

@dataclass(frozen=True)
class ToDtype(Transform):
    """Converts the images' element type.

    Args:
        dtype: The element type: `float32`, `float16`, `bfloat16` or `uint8`, as a text, or as a type of NumPy or torch.
        scale: Whether floats are scaled to 0..1, unlike torchvision's default. False: they have values of 0..255, also
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
    """Blends each image with its partner, λ·image + (1 - λ)·partner, and their labels in the same way.

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
    """Pastes a rectangle of the partner into each image, and mixes their labels in proportion to the areas.

    λ and the rectangle are drawn for each global batch, λ from Beta(alpha, alpha). The sides of the rectangle are √(1 -
    λ) of the image's, and its centre is any pixel. λ then becomes the share of the image that is left. This follows
    torchvision, and Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable
    Features".

    Args:
        alpha: Both parameters of the Beta distribution, above 0.
        num_classes: The length of the soft labels, as for `MixUp`.
    """

    alpha: float = 1.0
    num_classes: int | None = None
