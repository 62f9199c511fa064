"""The draws of transforms have the distributions of torchvision's and timm's, whose own draws are recorded for
comparison.
"""

from __future__ import annotations

import math
import os
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shards
from conftest import THOROUGH, need
from foreload import ImageLoader, fields
from foreload import transforms as T
from PIL import Image

with need("torchvision"):
    import torch
    import torchvision_draws as draws
    from torchvision import tv_tensors
    from torchvision.transforms import v2

# Hundreds of thousands of calls of torchvision take long on a busy machine.
pytestmark = pytest.mark.timeout(900)
COUNT = 100_000 if THOROUGH else 10_000
SIZE = (48, 60)
CROP = ("x", "y", "width", "height")


def seed_of(name: str) -> int:
    """Return a seed, and print it; FORELOAD_SEED repeats it."""
    seed = int(os.environ.get("FORELOAD_SEED", zlib.crc32(name.encode())))
    print(f"{name}: FORELOAD_SEED={seed}")
    return seed


# Each transform, and the parameters whose distributions must be compared.
SAME: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "RandomGrayscale": ({"p": 0.3}, ()),
    "ColorJitter": (
        {"brightness": 0.4, "contrast": (0.5, 0.9), "saturation": 1.5, "hue": 0.1},
        ("brightness_factor[0]", "contrast_factor[0]", "saturation_factor[0]", "hue_factor[0]"),
    ),
    "RandomPhotometricDistort": ({}, ("brightness_factor[0]", "hue_factor[0]", "permutation[2]")),
    "RandomChannelPermutation": ({}, ("permutation[0]", "permutation[1]")),
    "RandomInvert": ({}, ()),
    "RandomPosterize": ({"bits": 3}, ("bits[0]",)),
    "RandomSolarize": ({"threshold": 100.5, "p": 0.2}, ("threshold[0]",)),
    "RandomAutocontrast": ({"p": 0.9}, ()),
    "RandomEqualize": ({}, ()),
    "RandomAdjustSharpness": ({"sharpness_factor": 1.5}, ("sharpness_factor[0]",)),
    "GaussianBlur": (
        {"kernel_size": (3, 5), "sigma": (0.1, 2.0)},
        ("sigma[0]", "sigma[1]", "kernel_size[1]"),
    ),
    "RandomRotation": ({"degrees": (-10, 30)}, ("angle[0]",)),
    "RandomAffine": (
        {"degrees": 15, "translate": (0.3, 0.1), "scale": (0.5, 1.5), "shear": (-5, 10, -20, 3)},
        ("angle[0]", "translate[0]", "translate[1]", "scale[0]", "shear[0]", "shear[1]"),
    ),
    "RandomErasing": ({"p": 0.8}, ("i[0]", "j[0]", "h[0]", "w[0]")),
    "RandAugment": (
        {"num_ops": 2, "magnitude": 7},
        ("shear[0]", "translate[0]", "bits[0]", "threshold[0]", "center[0]"),
    ),
    "TrivialAugmentWide": ({}, ("shear[1]", "translate[1]", "angle[0]", "bits[0]", "saturation_factor[0]")),
    "AutoAugment": ({}, ("shear[0]", "angle[0]", "bits[0]", "threshold[0]")),
}


@pytest.mark.parametrize("name", SAME)
def test_draws_have_torchvisions_distribution(name: str) -> None:
    parameters, compared = SAME[name]
    seed = seed_of(name)
    one = draws.ours([getattr(T, name)(**parameters)], SIZE, COUNT, seed)
    other = draws.theirs(getattr(v2, name)(**parameters), SIZE, COUNT, seed)
    draws.check_same_distribution(one, other, compared)


@pytest.mark.parametrize("policy", ["cifar10", "svhn"])
def test_the_other_policies_have_torchvisions_distribution(policy: str) -> None:
    seed = seed_of(policy)
    theirs = v2.AutoAugment(v2.AutoAugmentPolicy(policy))
    one = draws.ours([T.AutoAugment(policy)], SIZE, COUNT, seed)
    draws.check_same_distribution(one, draws.theirs(theirs, SIZE, COUNT, seed))


def test_lists_within_lists_have_torchvisions_distribution() -> None:
    def made(of: Any) -> Any:
        jitter = of.RandomApply([of.ColorJitter(0.4, 0.4, 0.2, 0.1), of.RandomInvert()], p=0.8)
        choice = of.RandomChoice(
            [of.RandomSolarize(128, p=0.5), of.GaussianBlur(3), of.RandomEqualize(1.0)], p=[1, 2, 5]
        )
        return of.RandomOrder([jitter, choice, of.RandomHorizontalFlip(0.3)])

    seed = seed_of("lists")
    one = draws.ours([made(T)], SIZE, COUNT, seed)
    draws.check_same_distribution(
        one, draws.theirs(made(v2), SIZE, COUNT, seed), ("brightness_factor[0]", "sigma[0]")
    )


@pytest.mark.parametrize("options", [None, [0.3, 0.6]])
def test_crops_by_boxes_have_torchvisions_distribution(tmp_path: Path, options: list[float] | None) -> None:
    (height, width), count = SIZE, COUNT // 4
    boxes = np.array([[5, 6, 40, 30], [30, 20, 58, 47], [50, 2, 59, 9]], np.float32)
    picture = Image.new("RGB", (width, height))
    members = {"png": shards.saved(picture, "png"), "boxes.npy": shards.npy(boxes)}
    root = shards.make(tmp_path / "boxes", 1, 1, lambda _: members)
    seed = seed_of(f"boxes {options}")
    loader = ImageLoader(
        root,
        batch_size=1,
        seed=seed,
        fields=["png", fields.Boxes("boxes.npy")],
        transforms=[T.RandomIoUCrop(sampler_options=options)],
        device="cpu",
    )
    ours = [[loader.view(0, epoch)[name] for name in CROP] for epoch in range(count)]
    torch.manual_seed(seed)
    inputs = [
        tv_tensors.Image(torch.zeros(3, height, width, dtype=torch.uint8)),
        tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=SIZE),
    ]
    theirs_whole = {"left": 0, "top": 0, "width": width, "height": height}
    crop = v2.RandomIoUCrop(sampler_options=options)
    drawn = [crop.make_params(inputs) or theirs_whole for _ in range(count)]
    theirs = [[of[name] for name in ("left", "top", "width", "height")] for of in drawn]
    whole = [[crop == list(theirs_whole.values()) for crop in found] for found in (ours, theirs)]
    draws.check_shares(*whole, "whole images")
    for number, name in enumerate(CROP):
        cut = [
            [float(of[number]) for of, is_whole in zip(found, wholes, strict=True) if not is_whole]
            for found, wholes in zip((ours, theirs), whole, strict=True)
        ]
        draws.check_values(*cut, name)


@pytest.mark.parametrize("alpha", [1.0, 0.3, 4.0])
def test_augmix_has_torchvisions_distribution(alpha: float) -> None:
    seed = seed_of(f"AugMix {alpha}")
    parameters = {"alpha": alpha, "severity": 4, "mixture_width": 2}
    weights: list[list[float]] = []

    class Recorded(v2.AugMix):
        """AugMix with recorded weights: those of Beta, then those of Dirichlet."""

        def _sample_dirichlet(self, params: Any) -> Any:
            drawn = super()._sample_dirichlet(params)
            weights.append(drawn[0].tolist())
            return drawn

    # Its images are actually mixed, so it takes longer than the others.
    count = COUNT // 2
    other = draws.theirs(Recorded(**parameters), (6, 9), count, seed)
    found = draws.ours([T.AugMix(**parameters)], (6, 9), count, seed)
    mixes = [mix for ((_, mix),) in found]
    chains = [[draws._call(dict(op)) for chain in mix["chains"] for op in chain] for mix in mixes]
    draws.check_shares([len(ops) for ops in chains], [len(ops) for ops in other], "operations")
    # Among sequences of up to six operations, nearly all differ.
    one_each = [[[call] for ops in found for call in ops] for found in (chains, other)]
    draws.check_same_distribution(*one_each, ("translate[0]", "angle[0]", "bits[0]", "threshold[0]"))
    for chain in range(2):
        theirs = [beta[1] * shares[chain] for beta, shares in zip(weights[::2], weights[1::2], strict=True)]
        draws.check_values([mix["weights"][chain] for mix in mixes], theirs, f"weight {chain}")
    draws.check_values(
        [sum(mix["weights"]) for mix in mixes], [beta[1] for beta in weights[::2]], "their sum"
    )


# For timm's operations: torchvision's name of the operation, and its one number, computed from the parameters.
TIMM: dict[str, tuple[str, Any]] = {
    "auto_contrast": ("autocontrast", None),
    "equalize": ("equalize", None),
    "invert": ("invert", None),
    "rotate": ("rotate", lambda op: op["angle"]),
    "posterize": ("posterize", lambda op: op["bits"]),
    "solarize": ("solarize", lambda op: op["threshold"]),
    "solarize_add": ("solarize_add", lambda op: op["addition"]),
    "color": ("adjust_saturation", lambda op: op["saturation_factor"]),
    "contrast": ("adjust_contrast", lambda op: op["contrast_factor"]),
    "brightness": ("adjust_brightness", lambda op: op["brightness_factor"]),
    "sharpness": ("adjust_sharpness", lambda op: op["sharpness_factor"]),
}


def recorded(name: str, number: float) -> tuple[str, float]:
    """Return a call of timm; Pillow keeps no bits if the number of bits to keep is negative."""
    along = {"shear_x": "shear", "shear_y": "shear", "translate_x_rel": "move", "translate_y_rel": "move"}
    return along.get(name, name), max(number, 0.0) if name == "posterize" else float(number)


def _as_timm(name: str, op: dict[str, Any], side: int) -> tuple[str, float]:
    """Return timm's name of a drawn operation, and its number; operations along either axis have one name."""
    if name != "affine":
        theirs = next(theirs for theirs, (ours, _) in TIMM.items() if ours == name)
        number = TIMM[theirs][1]
        return theirs, number(op) if number else 0.0
    # Images are sheared around their corner.
    if op["center"] is None:
        return "move", sum(op["translate"]) / side
    return "shear", math.tan(math.radians(sum(op["shear"])))


@pytest.mark.parametrize(
    "spec",
    [
        "rand-m9-mstd0.5-inc1",
        "rand-m7-n3-mstd1.0",
        "rand-m15-mmax20-mstd4.0-p0.9-inc1",
        "rand-m8-mstd101-inc1",
        # timm treats its usual bound, 10, as no bound.
        "rand-m9-mmax0-mstd1.0",
    ],
)
def test_timms_rand_augment_has_timms_distribution(spec: str) -> None:
    timm = pytest.importorskip(
        "timm.data.auto_augment", reason="timm is not installed; make test-frameworks has it"
    )
    seed, side = seed_of(spec), 16_000
    transform = timm.rand_augment_transform(spec, {"translate_const": 100, "img_mean": (1, 2, 3)})
    calls: list[tuple[str, float]] = []

    def recorder(name: str) -> Any:
        def record(image: Any, *numbers: float, **_: Any) -> Any:
            calls.append(recorded(name, numbers[0] if numbers else 0.0))
            return image

        return record

    for op in transform.ops:
        op.aug_fn = recorder(op.aug_fn.__name__)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    found = []
    for _ in range(COUNT):
        transform(None)
        found.append(calls.copy())
        calls.clear()
    drawn = draws.ours([T.RandAugment.timm(spec)], (side, side), COUNT, seed)
    one = [[_as_timm(name, op, side) for name, op in ops] for ops in drawn]
    draws.check_shares(
        [tuple(name for name, _ in ops) for ops in one], [tuple(name for name, _ in ops) for ops in found]
    )
    for name in {name for ops in found for name, _ in ops}:
        numbers = [
            [round(number, 9) for ops in sample for kind, number in ops if kind == name]
            for sample in (one, found)
        ]
        draws.check_values(*numbers, name)


def test_timms_images_go_along_both_axes_as_often() -> None:
    drawn = draws.ours([T.RandAugment.timm("rand-m9-mstd0.5-inc1")], SIZE, COUNT, seed_of("axes"))
    warps = [op for ops in drawn for name, op in ops if name == "affine"]
    axes = [(op["center"] is None, bool(op["translate"][0] or op["shear"][0])) for op in warps]
    draws.check_shares(axes, [(moves, x) for moves in (False, True) for x in (False, True)] * COUNT, "axes")


def test_noise_and_colours_of_erasing_are_normal() -> None:
    seed = seed_of("RandomErasing")
    steps = [T.ToDtype("float32"), T.RandomErasing(p=1, value="color")]
    values = [
        number
        for ((_, erased),) in filter(None, draws.ours(steps, SIZE, COUNT, seed))
        for number in erased["v"]["values"]
    ]
    normal = np.random.default_rng(seed).standard_normal(len(values))
    draws.check_values(values, list(normal), "colours")
