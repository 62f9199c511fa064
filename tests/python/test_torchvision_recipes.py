"""`ImageDataset.from_torchvision` with transforms that change pixels, including nested lists, and timm's transforms."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import foreload
import pytest
from conftest import need
from foreload import ConfigError
from foreload import transforms as T

with need("torchvision"):
    import torch
    from foreload.torch import ImageDataset
    from test_torchvision import FLOAT, MEAN, STD, taken_over
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import InterpolationMode, autoaugment, v2
    from torchvision.transforms import transforms as v1
    from torchvision_draws import of_timm

CROP = v2.RandomResizedCrop(40, antialias=True)


def of_tensors(dataset: Path, *steps: Any) -> list[T.Transform]:
    """Return the list for steps on tensors, between a crop and the conversion to floats."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, shown = taken_over(dataset, v2.ToImage(), CROP, *steps, FLOAT)
    assert shown["train"] is True
    assert (shown["transforms"][0], shown["transforms"][-1]) == (
        T.RandomResizedCrop(40),
        T.ToDtype("float32"),
    )
    return shown["transforms"][1:-1]


def test_nearest_pixels_of_pil_images_are_those_of_pillow(dataset: Path) -> None:
    crop = v1.RandomResizedCrop(40, interpolation=InterpolationMode.NEAREST)
    with pytest.warns(
        foreload.Warning, match="RandomResizedCrop: gives .*nearest pixels where two are equally near"
    ):
        _, shown = taken_over(dataset, crop, v1.ToTensor())
    assert shown["transforms"][0] == T.RandomResizedCrop(40, interpolation="nearest-exact")
    of_tensor = v2.RandomResizedCrop(40, interpolation=InterpolationMode.NEAREST)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, shown = taken_over(dataset, v2.ToImage(), of_tensor, FLOAT)
    assert shown["transforms"][0] == T.RandomResizedCrop(40, interpolation="nearest")


def test_floats_are_resized_as_levels_with_a_warning(dataset: Path) -> None:
    with pytest.warns(foreload.Warning, match="RandomResizedCrop: resizes uint8 values"):
        _, shown = taken_over(dataset, v1.ToTensor(), CROP)
    assert shown["transforms"] == [T.ToDtype("float32"), T.RandomResizedCrop(40)]


def test_simclrs_training_is_taken_over_from_pil_images_and_from_tensors(dataset: Path) -> None:
    def colours(of: Any) -> list[Any]:
        jitter = of.ColorJitter(0.8, 0.8, 0.8, 0.2)
        return [
            of.RandomApply([jitter], p=0.8),
            of.RandomGrayscale(0.2),
            of.RandomApply([of.GaussianBlur(23)], 0.5),
        ]

    factors = (1 - 0.8, 1 + 0.8)
    jitter = T.ColorJitter(factors, factors, factors, (-0.2, 0.2))
    expected = [
        T.RandomApply([jitter], p=0.8),
        T.RandomGrayscale(0.2),
        T.RandomApply([T.GaussianBlur(23, (0.1, 2.0))], p=0.5),
    ]
    assert of_tensors(dataset, *colours(v2)) == expected
    erasing = v1.RandomErasing(0.25, value="random")
    for module in (v1, v2):
        finish = [v1.ToTensor(), v1.Normalize(MEAN, STD), erasing]
        with pytest.warns(foreload.Warning, match=r"ColorJitter, RandomGrayscale: gives .*hue by up to 14"):
            _, shown = taken_over(dataset, v1.RandomResizedCrop(40), *colours(module), *finish)
        assert shown["transforms"][1:4] == expected
        assert shown["transforms"][4:] == [
            *(T.ToDtype("float32"), T.Normalize(MEAN, STD)),
            T.RandomErasing(0.25, value="random"),
        ]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (v2.RandomInvert(0.3), T.RandomInvert(0.3)),
        (v2.RandomPosterize(3), T.RandomPosterize(3)),
        (v2.RandomSolarize(100.0, p=0.1), T.RandomSolarize(100, p=0.1)),
        (v2.RandomEqualize(), T.RandomEqualize()),
        (v2.RandomAutocontrast(0.2), T.RandomAutocontrast(0.2)),
        (v2.RandomAdjustSharpness(2.0), T.RandomAdjustSharpness(2)),
        (v2.GaussianBlur((3, 5), 1.5), T.GaussianBlur((3, 5), (1.5, 1.5))),
        (v2.RandomPhotometricDistort(p=0.3), T.RandomPhotometricDistort(p=0.3)),
        (v2.RandomChannelPermutation(), T.RandomChannelPermutation()),
        (v2.ColorJitter(brightness=(1.5, 1.5)), T.ColorJitter(brightness=(1.5, 1.5))),
        (
            v2.RandomRotation(15, fill=(1, 2, 3), center=[3, 4]),
            T.RandomRotation((-15, 15), center=(3, 4), fill=(1, 2, 3)),
        ),
        (
            v2.RandomAffine(0, (0.1, 0.2), (0.5, 2), 9, InterpolationMode.BILINEAR, fill=None),
            T.RandomAffine((0, 0), (0.1, 0.2), (0.5, 2), (-9, 9), "bilinear", fill=None),
        ),
        (
            v2.RandAugment(3, 7, interpolation="bilinear", fill=[128]),
            T.RandAugment(3, 7, 31, "bilinear", fill=128),
        ),
        (
            autoaugment.RandAugment(interpolation=InterpolationMode.BICUBIC),
            T.RandAugment(interpolation="bicubic"),
        ),
        (v2.TrivialAugmentWide(interpolation=2), T.TrivialAugmentWide(interpolation="bilinear")),
        (autoaugment.AutoAugment(autoaugment.AutoAugmentPolicy.SVHN), T.AutoAugment("svhn")),
        (v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10, fill=7), T.AutoAugment("cifar10", fill=7)),
        (v2.AugMix(5, chain_depth=2, all_ops=False), T.AugMix(5, chain_depth=2, all_ops=False)),
        (v2.RandomErasing(0.7, value=3), T.RandomErasing(0.7, value=3)),
        (
            v1.RandomErasing(scale=(0.1, 0.2), ratio=(1, 2), value=(1, 2, 3)),
            T.RandomErasing(0.5, (0.1, 0.2), (1, 2), (1, 2, 3)),
        ),
        (
            v2.RandomChoice(
                [v2.Compose([v2.RandomInvert(), v2.Grayscale(3)]), torch.nn.Identity(), v2.RandomEqualize()]
            ),
            T.RandomChoice(
                [
                    T.RandomApply([T.RandomInvert(), T.Grayscale()], p=1),
                    T.RandomApply([], p=1),
                    T.RandomEqualize(),
                ]
            ),
        ),
        (
            v2.RandomChoice([v2.RandomInvert(), v2.RandomEqualize()], p=[3, 1]),
            T.RandomChoice([T.RandomInvert(), T.RandomEqualize()], [0.75, 0.25]),
        ),
        (
            v1.RandomOrder([v1.RandomInvert(), v1.RandomHorizontalFlip()]),
            T.RandomOrder([T.RandomInvert(), T.RandomHorizontalFlip()]),
        ),
        (
            v2.RandomApply(
                torch.nn.ModuleList([v2.RandomInvert(), v2.RandomApply([v2.RandomEqualize()])]), p=0.1
            ),
            T.RandomApply([T.RandomInvert(), T.RandomApply([T.RandomEqualize()])], p=0.1),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_transform_is_taken_over_with_its_parameters(
    dataset: Path, step: Any, expected: T.Transform
) -> None:
    assert of_tensors(dataset, step) == [expected]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([v2.RandomRotation(9, expand=True)], "step 3 of 4, RandomRotation.*expand: is True, must be False"),
        (
            [v2.RandomRotation(9, fill={torch.Tensor: 1})],
            "step 3 of 4, RandomRotation.*fill: is .*must be a number",
        ),
        (
            [v2.RandomApply([v2.RandomCrop(9)])],
            "step 3 of 4, RandomApply.*step 1 of 1, RandomCrop: cannot be in RandomApply",
        ),
        (
            [v2.RandomApply([v2.RandomInvert(), abs])],
            "step 3 of 4, RandomApply.*within it <built-in function abs>, is not supported",
        ),
        ([v2.RandomChoice([v2.JPEG(50)])], "step 3 of 4, RandomChoice.*within it JPEG.* is not supported"),
        (
            [v2.RandomErasing(value="random")],
            "RandomErasing.*writes normally distributed floats.*put it after ToDtype",
        ),
        ([v2.MixUp(num_classes=3)], "MixUp.*pass it to mix= of the loader"),
        ([v2.GaussianBlur(81)], "GaussianBlur.*cannot blur an image of 40.40 pixels with a kernel of 81.81"),
    ],
)
def test_what_cannot_be_taken_over_is_refused(dataset: Path, steps: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^config: transform: .*{message}"):
        of_tensors(dataset, *steps)


def test_a_transform_with_fixed_parameters_gives_torchvisions_pixels(dataset: Path) -> None:
    steps = [
        *(v2.ToImage(), v2.Resize((48, 40)), v2.ColorJitter((1.3, 1.3)), v2.RandomPosterize(5, p=1.0)),
        *(v2.RandomApply([v2.RandomSolarize(128, p=1.0), v2.RandomEqualize(1.0)], p=1.0), FLOAT),
    ]
    theirs = ImageFolder(str(dataset), v2.Compose(steps))
    ours = ImageDataset.from_torchvision(
        theirs, batch_size=60, decode="exact", shuffle=False, last_batch="partial"
    )
    images, _ = next(iter(ours))
    for image, (expected, _) in zip(images, theirs, strict=True):
        # The resize differs by a level in some places, and the operations amplify that.
        assert (image - expected).abs().mean() < 1.5 / 255


def timm_transform(**settings: Any) -> list[T.Transform]:
    """Return the list for timm's `create_transform`."""
    data = of_timm("timm.data")
    from foreload import _transform_reader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", foreload.Warning)
        return _transform_reader.read(data.create_transform(**settings))


def test_deits_and_convnexts_training_by_timm_is_taken_over() -> None:
    made = timm_transform(
        input_size=224,
        is_training=True,
        color_jitter=0.3,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        re_prob=0.25,
        re_mode="pixel",
    )
    fill = (124, 116, 104)
    assert made == [
        T.RandomResizedCrop(224, interpolation="bicubic"),
        T.RandomHorizontalFlip(),
        T.RandAugment.timm("rand-m9-mstd0.5-inc1", interpolation="bicubic", fill=fill),
        T.ToDtype("float32"),
        T.Normalize(torch.tensor(MEAN), torch.tensor(STD)),
        T.RandomErasing(0.25, (0.02, 1 / 3), (made[-1].ratio[0], made[-1].ratio[1]), "random"),
    ]
    assert made[-1].ratio == pytest.approx((0.3, 1 / 0.3))


def test_what_else_timm_makes() -> None:
    uniform = timm_transform(is_training=True, auto_augment="rand-m8-n3-mstd101-mmax15-p0.7", hflip=0)
    assert uniform[1] == T.RandAugment.timm(
        "rand-m8-n3-mstd101-mmax15-p0.7", interpolation="bilinear", fill=(124, 116, 104)
    )
    usual = timm_transform(is_training=True, auto_augment="rand-m9-mmax0", hflip=0)
    assert usual[1] == T.RandAugment.timm("rand-m9-mmax0", interpolation="bilinear", fill=(124, 116, 104))
    assert usual[1].magnitude_max == 10.0
    three = timm_transform(is_training=True, auto_augment="3a", color_jitter=0.3, re_prob=0.1, re_mode="rand")
    choice = [T.RandomSolarize(128, p=1), T.Grayscale(), T.GaussianBlur(15, (0.1, 2.0))]
    assert three[2:4] == [T.RandomChoice(choice), T.ColorJitter((0.7, 1.3), (0.7, 1.3), (0.7, 1.3))]
    assert three[-1].value == "color"
    simclr = timm_transform(
        is_training=True,
        color_jitter=(0.8, 0.8, 0.8, 0.2),
        color_jitter_prob=0.8,
        grayscale_prob=0.2,
        gaussian_blur_prob=0.5,
    )
    assert [type(step).__name__ for step in simclr[2:5]] == ["RandomApply", "RandomGrayscale", "RandomApply"]
    evaluation = timm_transform(input_size=224, interpolation="bicubic", crop_pct=0.95)
    assert evaluation[:2] == [T.Resize(235, "bicubic"), T.CenterCrop(224)]
    levels = timm_transform(is_training=True, use_prefetcher=True)
    assert levels[-1] == T.ColorJitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4))
    for settings, message in [
        ({"interpolation": "random"}, "RandomResizedCropAndInterpolation.*draws the interpolation"),
        ({"auto_augment": "v0"}, "AutoAugment.*is a policy that only timm has"),
        ({"auto_augment": "rand-m9-tweights"}, "RandAugment.*has its own set of operations"),
        ({"re_prob": 0.1, "re_count": 2}, "RandomErasing.*may erase several rectangles"),
        ({"auto_augment": "augmix-m3"}, "AugMixAugment.*not supported by Foreload: use torchvision's AugMix"),
        ({"auto_augment": "original"}, "AutoAugment.*is a policy that only timm has"),
        ({"re_prob": 0.1, "re_num_splits": 2}, "RandomErasing.*leave re_num_splits at 0"),
        ({"train_crop_mode": "rkrc"}, "ResizeKeepRatio.*remove train_crop_mode"),
        ({"separate": True}, "remove timm's separate=True"),
    ]:
        with pytest.raises(ConfigError, match=f"^config: transform: .*(?s:{message})"):
            timm_transform(is_training=True, **settings)
