"""Published training recipes, as settings of a loader.

    from foreload import ImageLoader, recipes

    recipe = recipes.deit(num_classes=1000)
    print(recipe)                                            # its settings and its source
    train = ImageLoader("data/train", batch_size=256, **recipe)
    evaluate = ImageLoader("data/val", batch_size=256, **recipe.eval())

A recipe is a mapping of settings of `foreload.ImageLoader` and `foreload.torch.ImageDataset`: `transforms`, and if it
has them `mix` and `repeats`. Other settings may be passed with it, but not its own ones again; `{**recipe, "repeats":
1}` replaces one. The rest of the training (the loss, label smoothing, the optimiser) is not in it.

All arithmetic is that of torchvision v2 on uint8 tensors, also if the source used another library
(`docs/transforms.md`). `mix` mixes neighbours of the global batch. The sources mix a batch with itself, reversed or
rotated by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from foreload import transforms as T
from foreload._errors import config_error

__all__ = [
    "Recipe",
    "byol",
    "cifar",
    "clip",
    "convnext",
    "deit",
    "dino",
    "dinov2",
    "mae",
    "moco_v3",
    "resnet50_reference",
    "simclr",
    "swin",
]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR_STD = (0.2023, 0.1994, 0.2010)


class Recipe(Mapping[str, Any]):
    """The settings of a published recipe, for `ImageLoader(path, **recipe)`.

    Attributes:
        name: The name of the function that made it.
        source: The publication, in words.
    """

    def __init__(
        self, name: str, source: str, settings: dict[str, Any], evaluation: Sequence[T.Transform] | None
    ) -> None:
        self.name = name
        self.source = source
        self._settings = settings
        self._evaluation = evaluation

    def eval(self) -> Recipe:
        """Return the recipe of the source's evaluation: no random numbers, in the order of the files.

        The recipe of an evaluation returns itself.

        Raises:
            ConfigError: The source has no evaluation of its own, because networks of self-supervised recipes are
                evaluated by another training. `mae().eval()` is the usual evaluation on ImageNet.
        """
        if self._evaluation is None:
            raise config_error(
                self.name,
                "trains without labels and has no evaluation of its own: use that of the training that follows it, "
                "such as recipes.mae().eval()",
            )
        if not self._settings.get("train", True):
            return self
        settings = {"transforms": list(self._evaluation), "train": False}
        return Recipe(f"{self.name}, evaluation", self.source, settings, self._evaluation)

    def __getitem__(self, setting: str) -> Any:
        """Return the value of a setting."""
        return self._settings[setting]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the settings."""
        return iter(self._settings)

    def __len__(self) -> int:
        """Return the number of settings."""
        return len(self._settings)

    def __repr__(self) -> str:
        """Return the name, the source and the settings, with one transform a line."""
        lines = [f"{self.name}: {self.source}"]
        for setting, value in self._settings.items():
            lines += _shown(f"{setting}=", value, "  ")
        return "\n".join(lines)


def _shown(begin: str, value: Any, indent: str) -> list[str]:
    """Return the lines that show a setting; lists and views have several lines."""
    if isinstance(value, T.Views):
        return [*_shown(f"{begin}Views({value.n}, ", list(value.transforms), indent)[:-1], f"{indent}]),"]
    if isinstance(value, list):
        within = [line for item in value for line in _shown("", item, indent + "  ")]
        return [f"{indent}{begin}[", *within, f"{indent}],"]
    return [f"{indent}{begin}{value!r},"]


def _finish(dtype: Any, mean: Sequence[float], std: Sequence[float]) -> list[T.Transform]:
    return [T.ToDtype(dtype), T.Normalize(mean, std)]


def _usual_evaluation(
    size: int, resize: int, interpolation: str, dtype: Any, mean: Sequence[float], std: Sequence[float]
) -> list[T.Transform]:
    return [T.Resize(resize, interpolation), T.CenterCrop(size), *_finish(dtype, mean, std)]


def _resize_of_224(size: int) -> int:
    """Return the shorter side from which evaluations crop `size`, in the proportion of 224 of 256."""
    return size * 256 // 224


def _mix(mixup: float, cutmix: float, num_classes: int) -> list[Any]:
    """Return MixUp or CutMix, each for half of the batches."""
    mixes = [T.MixUp(alpha=mixup, num_classes=num_classes), T.CutMix(alpha=cutmix, num_classes=num_classes)]
    return [T.RandomChoice(mixes)]


def resnet50_reference(
    num_classes: int, size: int = 176, eval_size: int = 224, dtype: Any = "float32"
) -> Recipe:
    """The recipe of torchvision's ResNet-50 weights IMAGENET1K_V2.

    Train with label smoothing 0.1.

    Args:
        num_classes: The number of classes.
        size: The side of the images in training.
        eval_size: The side of the images in evaluation.
        dtype: The element type of the images.
    """
    train = [
        T.RandomResizedCrop(size),
        T.RandomHorizontalFlip(),
        T.TrivialAugmentWide(interpolation="bilinear"),
        *_finish(dtype, IMAGENET_MEAN, IMAGENET_STD),
        T.RandomErasing(p=0.1),
    ]
    evaluation = _usual_evaluation(
        eval_size, round(eval_size * 232 / 224), "bilinear", dtype, IMAGENET_MEAN, IMAGENET_STD
    )
    settings = {"transforms": train, "mix": _mix(0.2, 1.0, num_classes), "repeats": 4}
    source = 'pytorch/vision, references/classification, "ResNet-50, new recipe" (weights IMAGENET1K_V2)'
    return Recipe("resnet50_reference", source, settings, evaluation)


def _of_timm(
    name: str,
    source: str,
    num_classes: int,
    size: int,
    dtype: Any,
    repeats: int | None = None,
    warped_from: int | None = None,
) -> Recipe:
    """Return the recipe of timm's transforms with the arguments that DeiT, ConvNeXt and Swin share.

    From the size `warped_from` on, images are evaluated whole, resized to a square.
    """
    train = [
        T.RandomResizedCrop(size, interpolation="bicubic"),
        T.RandomHorizontalFlip(),
        # timm's `create_transform` fills with the mean colour.
        T.RandAugment.timm(
            "rand-m9-mstd0.5-inc1",
            interpolation="bicubic",
            fill=[round(255 * mean) for mean in IMAGENET_MEAN],
        ),
        *_finish(dtype, IMAGENET_MEAN, IMAGENET_STD),
        T.RandomErasing(p=0.25, scale=(0.02, 1 / 3), ratio=(0.3, 1 / 0.3), value="pixel"),
    ]
    evaluation = _usual_evaluation(size, _resize_of_224(size), "bicubic", dtype, IMAGENET_MEAN, IMAGENET_STD)
    if warped_from is not None and size >= warped_from:
        evaluation = [T.Resize((size, size), "bicubic"), *_finish(dtype, IMAGENET_MEAN, IMAGENET_STD)]
    settings: dict[str, Any] = {"transforms": train, "mix": _mix(0.8, 1.0, num_classes)}
    if repeats is not None:
        settings["repeats"] = repeats
    return Recipe(name, source, settings, evaluation)


def deit(num_classes: int, size: int = 224, dtype: Any = "float32") -> Recipe:
    """The recipe of DeiT: timm's RandAugment and erasing, MixUp or CutMix, every image three times.

    Train with label smoothing 0.1.

    Args:
        num_classes: The number of classes.
        size: The side of the images.
        dtype: The element type of the images.
    """
    source = "facebookresearch/deit, main.py (arXiv:2012.12877, table 9)"
    return _of_timm("deit", source, num_classes, size, dtype, repeats=3)


def convnext(num_classes: int, size: int = 224, dtype: Any = "float32") -> Recipe:
    """The recipe of ConvNeXt on ImageNet-1K: the one of DeiT without repeats.

    Train with label smoothing 0.1. As in its source, it evaluates whole images from a size of 384 on, resized to a
    square without a crop.

    Args:
        num_classes: The number of classes.
        size: The side of the images.
        dtype: The element type of the images.
    """
    source = "facebookresearch/ConvNeXt, main.py and datasets.py (arXiv:2201.03545, table 5)"
    return _of_timm("convnext", source, num_classes, size, dtype, warped_from=384)


def swin(num_classes: int, size: int = 224, dtype: Any = "float32") -> Recipe:
    """The recipe of Swin Transformer on ImageNet-1K: the one of DeiT without repeats.

    Train with label smoothing 0.1.

    Args:
        num_classes: The number of classes.
        size: The side of the images.
        dtype: The element type of the images.
    """
    source = "microsoft/Swin-Transformer, config.py and data/build.py (arXiv:2103.14030, A2.1)"
    return _of_timm("swin", source, num_classes, size, dtype)


def mae(size: int = 224, dtype: Any = "float32") -> Recipe:
    """The recipe of MAE's training without labels: crop and flip.

    It evaluates like its fine-tuning: above a size of 224, the shorter side of an image is not cropped.

    Args:
        size: The side of the images.
        dtype: The element type of the images.
    """
    train = [
        T.RandomResizedCrop(size, scale=(0.2, 1.0), interpolation="bicubic"),
        T.RandomHorizontalFlip(),
        *_finish(dtype, IMAGENET_MEAN, IMAGENET_STD),
    ]
    resize = _resize_of_224(size) if size <= 224 else size
    evaluation = _usual_evaluation(size, resize, "bicubic", dtype, IMAGENET_MEAN, IMAGENET_STD)
    source = "facebookresearch/mae, main_pretrain.py and util/datasets.py (arXiv:2111.06377, table 8)"
    return Recipe("mae", source, {"transforms": train}, evaluation)


def _jitter(brightness: float, contrast: float, saturation: float, hue: float) -> list[T.Transform]:
    """Return the colours of contrastive learning: jitter for 0.8 of the images, grey for 0.2."""
    return [
        T.RandomApply([T.ColorJitter(brightness, contrast, saturation, hue)], p=0.8),
        T.RandomGrayscale(p=0.2),
    ]


def _blur(p: float, kernel: int) -> list[T.Transform]:
    """Return a blur of sigma 0.1 to 2, at this probability."""
    if p == 0.0:
        return []
    blur = T.GaussianBlur(kernel, (0.1, 2.0))
    return [blur] if p == 1.0 else [T.RandomApply([blur], p=p)]


def _tenth(size: int) -> int:
    """Return the kernel size of SimCLR's and BYOL's blurs: about a tenth of the image's side, 23 for 224."""
    return size // 10 | 1


def _pillows(size: int) -> int:
    """Return a kernel size for sources that blur with Pillow, whose filter has the same reach in images of any size.

    It is 23 pixels as for 224, which is more than five times the largest sigma. For images of less than 12 pixels, it
    is the largest kernel whose reach is within the image when that is mirrored at its borders.
    """
    return min(_tenth(224), 2 * size - 1)


def simclr(size: int = 224, strength: float = 1.0, blur: bool = True, dtype: Any = "float32") -> Recipe:
    """The recipe of SimCLR: two views of crop, flip, strong jitter, grey and blur. Values are 0..1, not normalised.

    Args:
        size: The side of the images.
        strength: The factor of the jitter, in the paper 1 for ImageNet and 0.5 for CIFAR-10.
        blur: Whether half of the views are blurred, as in the paper for ImageNet; for CIFAR-10 none are.
        dtype: The element type of the images.
    """
    s = strength
    view = [
        T.RandomResizedCrop(size, interpolation="bicubic"),
        T.RandomHorizontalFlip(),
        *_jitter(0.8 * s, 0.8 * s, 0.8 * s, 0.2 * s),
        *_blur(0.5 if blur else 0.0, _tenth(size)),
        T.ToDtype(dtype),
    ]
    source = "google-research/simclr, data_util.py (arXiv:2002.05709, appendix A)"
    return Recipe("simclr", source, {"transforms": T.Views(2, view)}, None)


def _two_views(
    first: tuple[float, float],
    second: tuple[float, float],
    crop: T.Transform,
    kernel: int,
    flip_last: bool,
    dtype: Any,
) -> list[T.Views]:
    """Return two views with their own probabilities of blur and solarising; `kernel` is the size of the blur."""

    def view(blur: float, solarize: float) -> T.Views:
        solarizes = [T.RandomSolarize(128, p=solarize)] if solarize else []
        colours = [*_jitter(0.4, 0.4, 0.2, 0.1), *_blur(blur, kernel), *solarizes]
        flip = [T.RandomHorizontalFlip()]
        steps = [*colours, *flip] if flip_last else [*flip, *colours]
        return T.Views(1, [crop, *steps, *_finish(dtype, IMAGENET_MEAN, IMAGENET_STD)])

    return [view(*first), view(*second)]


def moco_v3(size: int = 224, dtype: Any = "float32") -> Recipe:
    """The recipe of MoCo v3: two views like BYOL's, with crops of at least 0.2 of the area, and the flip last.

    Args:
        size: The side of the images.
        dtype: The element type of the images.
    """
    crop = T.RandomResizedCrop(size, scale=(0.2, 1.0))
    views = _two_views((1.0, 0.0), (0.1, 0.2), crop, _pillows(size), True, dtype)
    source = "facebookresearch/moco-v3, main_moco.py (arXiv:2104.02057)"
    return Recipe("moco_v3", source, {"transforms": views}, None)


def byol(size: int = 224, dtype: Any = "float32") -> Recipe:
    """The recipe of BYOL: two views, one always and one seldom blurred, the second one sometimes solarised.

    Args:
        size: The side of the images.
        dtype: The element type of the images.
    """
    crop = T.RandomResizedCrop(size, interpolation="bicubic")
    views = _two_views((1.0, 0.0), (0.1, 0.2), crop, _tenth(size), False, dtype)
    source = "google-deepmind/deepmind-research, byol (arXiv:2006.07733, table 6)"
    return Recipe("byol", source, {"transforms": views}, None)


def _self_distillation(
    scales: tuple[tuple[float, float], tuple[float, float]],
    blurs: tuple[float, float, float],
    kernel: Callable[[int], int],
    sizes: tuple[int, int],
    local_crops: int,
    dtype: Any,
) -> list[T.Views]:
    """Return two global views and some local ones. The second global view may be solarised.

    `kernel` returns the size of the blur for the size of a view.
    """

    def views(n: int, size: int, scale: tuple[float, float], blur: float, solarize: float) -> T.Views:
        steps = [
            T.RandomResizedCrop(size, scale=scale, interpolation="bicubic"),
            T.RandomHorizontalFlip(),
            *_jitter(0.4, 0.4, 0.2, 0.1),
            *_blur(blur, kernel(size)),
            *([T.RandomSolarize(128, p=solarize)] if solarize else []),
            *_finish(dtype, IMAGENET_MEAN, IMAGENET_STD),
        ]
        return T.Views(n, steps)

    made = [views(1, sizes[0], scales[0], blurs[0], 0.0), views(1, sizes[0], scales[0], blurs[1], 0.2)]
    return [*made, views(local_crops, sizes[1], scales[1], blurs[2], 0.0)] if local_crops else made


def dino(
    size: int = 224,
    local_size: int = 96,
    local_crops: int = 8,
    global_scale: tuple[float, float] = (0.4, 1.0),
    local_scale: tuple[float, float] = (0.05, 0.4),
    dtype: Any = "float32",
) -> Recipe:
    """The recipe of DINO: two global and eight local crops.

    Args:
        size: The side of the global crops.
        local_size: The side of the local crops.
        local_crops: The number of local crops.
        global_scale: The bounds of the global crops' fraction of the area.
        local_scale: The bounds of the local crops' fraction of the area.
        dtype: The element type of the images.
    """
    scales = (global_scale, local_scale)
    views = _self_distillation(scales, (1.0, 0.1, 0.5), _pillows, (size, local_size), local_crops, dtype)
    source = "facebookresearch/dino, main_dino.py (arXiv:2104.14294)"
    return Recipe("dino", source, {"transforms": views}, None)


def dinov2(
    size: int = 224,
    local_size: int = 96,
    local_crops: int = 8,
    as_trained: bool = False,
    dtype: Any = "float32",
) -> Recipe:
    """The recipe of DINOv2: the one of DINO with other crops, and a blur with a kernel of 9 pixels.

    Args:
        size: The side of the global crops.
        local_size: The side of the local crops.
        local_crops: The number of local crops.
        as_trained: Whether to blur as for the released weights. False: with the probabilities of the publication and of
            the names in the code, 1, 0.1 and 0.5. True: with 0, 0.9 and 0.5, which the released weights were trained
            with, because the code passes `RandomApply` the probability of not changing an image.
        dtype: The element type of the images.
    """
    blurs = (0.0, 0.9, 0.5) if as_trained else (1.0, 0.1, 0.5)
    scales = ((0.32, 1.0), (0.05, 0.32))
    views = _self_distillation(scales, blurs, lambda _: 9, (size, local_size), local_crops, dtype)
    source = "facebookresearch/dinov2, data/augmentations.py and data/transforms.py (arXiv:2304.07193)"
    return Recipe("dinov2", source, {"transforms": views}, None)


def clip(size: int = 224, dtype: Any = "float32") -> Recipe:
    """The recipe of CLIP as trained by OpenCLIP: a crop of nearly all of the image, no flip.

    Args:
        size: The side of the images.
        dtype: The element type of the images.
    """
    train = [
        T.RandomResizedCrop(size, scale=(0.9, 1.0), interpolation="bicubic"),
        *_finish(dtype, CLIP_MEAN, CLIP_STD),
    ]
    evaluation = _usual_evaluation(size, size, "bicubic", dtype, CLIP_MEAN, CLIP_STD)
    source = "mlfoundations/open_clip, transform.py (arXiv:2103.00020)"
    return Recipe("clip", source, {"transforms": train}, evaluation)


def cifar(
    size: int = 32, trivial_augment: bool = False, erasing: float = 0.0, dtype: Any = "float32"
) -> Recipe:
    """The usual recipe of CIFAR-10, and also of CIFAR-100: four pixels of padding, a crop, a flip.

    It normalises as its source does: with the mean of CIFAR-10, and the deviation within an image, averaged over the
    images (0.2023, 0.1994, 0.2010). This is less than the deviation of all pixels together (0.2470, 0.2435, 0.2616).

    Args:
        size: The side of the images.
        trivial_augment: Whether TrivialAugmentWide follows the flip, as in arXiv:2103.10158.
        erasing: The probability of random erasing, as in arXiv:1708.04896.
        dtype: The element type of the images.
    """
    train = [
        T.RandomCrop(size, padding=4),
        T.RandomHorizontalFlip(),
        *([T.TrivialAugmentWide()] if trivial_augment else []),
        *_finish(dtype, CIFAR_MEAN, CIFAR_STD),
        *([T.RandomErasing(p=erasing)] if erasing else []),
    ]
    evaluation = [T.CenterCrop(size), *_finish(dtype, CIFAR_MEAN, CIFAR_STD)]
    source = "kuangliu/pytorch-cifar, main.py (after arXiv:1512.03385, section 4.2)"
    return Recipe("cifar", source, {"transforms": train}, evaluation)
