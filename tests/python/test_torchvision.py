"""`ImageDataset.from_torchvision` with a real torchvision: accepted and refused transforms, and equal pixels."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import need
from foreload import ConfigError, _transform_reader
from foreload import transforms as T
from PIL import Image

with need("torchvision"):
    import torch
    import torchvision
    from foreload.torch import ImageDataset
    from torch.utils.data import Subset
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import InterpolationMode, v2
    from torchvision.transforms import transforms as v1

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FLOAT = v2.ToDtype(torch.float32, scale=True)

# The limit in 8-bit levels over a batch; `make fidelity` measures 0.033 over 500 photographs.
EXACT_MEAN = 0.25
LEVELS = 255 * torch.tensor(STD).reshape(3, 1, 1)


def taken_over(dataset: Path, *steps: Any, **settings: Any) -> tuple[ImageDataset, dict[str, Any]]:
    """Return the dataset made of the steps, and the settings that it shows."""
    made = ImageDataset.from_torchvision(
        ImageFolder(str(dataset), v1.Compose(steps)), batch_size=4, **settings
    )
    # The text is the call that makes the same dataset.
    names = {"ImageDataset": lambda path, **shown: {"path": path, **shown}, "torch": torch, **vars(T)}
    return made, eval(repr(made), names)


@pytest.mark.parametrize(
    "steps",
    [
        [
            v1.RandomResizedCrop(48, scale=(0.3, 0.9), ratio=(0.5, 2.0)),
            v1.RandomHorizontalFlip(0.25),
            v1.ToTensor(),
            v1.Normalize((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)),
        ],
        [
            v2.RandomHorizontalFlip(0.25),
            v2.RandomResizedCrop(48, scale=(0.3, 0.9), ratio=(0.5, 2.0), antialias=False),
            v2.PILToTensor(),
            v2.ConvertImageDtype(torch.float32),
            v2.Normalize([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]),
        ],
        [
            v2.Compose([v2.ToImage(), v2.RGB()]),
            v2.RandomResizedCrop((48, 48), scale=(0.3, 0.9), ratio=(0.5, 2.0), antialias=True),
            torch.nn.Sequential(v2.RandomHorizontalFlip(0.25), v2.Identity()),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]),
            v2.ToPureTensor(),
        ],
    ],
    ids=["v1", "v2", "v2 of tensors"],
)
def test_training_is_taken_over_with_its_parameters(dataset: Path, steps: list[Any]) -> None:
    made, shown = taken_over(dataset, *steps, seed=5)
    expected = [
        T.RandomResizedCrop(48, scale=(0.3, 0.9), ratio=(0.5, 2.0)),
        T.RandomHorizontalFlip(0.25),
        T.ToDtype("float32"),
        T.Normalize((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)),
    ]
    assert sorted(shown["transforms"], key=repr) == sorted(expected, key=repr)
    assert (shown["path"], shown["train"], shown["seed"], shown["batch_size"]) == (str(dataset), True, 5, 4)
    assert made.loader.dtype == "float32"
    assert made.loader.samples == 60


def test_the_crops_have_the_distribution_that_was_asked_for(dataset: Path) -> None:
    made, _ = taken_over(
        dataset,
        v1.RandomResizedCrop(32, scale=(0.1, 0.3), ratio=(0.9, 1.1)),
        v1.RandomHorizontalFlip(0.25),
        v1.ToTensor(),
    )
    views = [made.loader.view(sample, epoch) for epoch in range(50) for sample in range(60)]
    sizes = [v2.functional.get_size(image) for image, _ in ImageFolder(str(dataset))]
    # The areas are so small that each crop fits at the first try. Rounding to pixels moves an edge by half a pixel.
    for at, view in enumerate(views):
        height, width = sizes[at % 60]
        slack = 1 / view["width"] + 1 / view["height"]
        area = view["width"] * view["height"] / (width * height)
        assert 0.1 * (1 - slack) <= area <= 0.3 * (1 + slack)
        assert math.log(0.9) - slack <= math.log(view["width"] / view["height"]) <= math.log(1.1) + slack
    flips = sum(view["flip"] for view in views)
    assert abs(flips / len(views) - 0.25) < 0.05


@pytest.mark.parametrize(
    "steps",
    [
        [v1.Resize(70), v1.CenterCrop(64), v1.ToTensor(), v1.Normalize(MEAN, STD)],
        [v2.Resize([70]), v2.CenterCrop((64, 48)), v2.ToImage(), FLOAT, v2.Normalize(MEAN, STD)],
        [v2.ToImage(), v2.Resize(140), v2.CenterCrop(64), FLOAT, v2.Normalize(MEAN, STD)],
        [v1.Resize((70, 50)), v1.ToTensor(), v1.Normalize(MEAN, STD)],
        [v2.Resize(70, max_size=80), v2.CenterCrop((64, 90)), v2.ToImage(), FLOAT, v2.Normalize(MEAN, STD)],
        [
            v2.CenterCrop(60),
            v2.Resize(50),
            v2.Pad((3, 5), fill=(9, 99, 199)),
            v2.ToImage(),
            FLOAT,
            v2.Normalize(MEAN, STD),
        ],
        [
            v1.Resize(70),
            v1.CenterCrop(64),
            v1.RandomHorizontalFlip(1.0),
            v1.ToTensor(),
            v1.Normalize(MEAN, STD),
        ],
        [
            v2.ToImage(),
            v2.Pad((1, 2, 3, 4), padding_mode="reflect"),
            v2.CenterCrop(60),
            FLOAT,
            v2.Normalize(MEAN, STD),
        ],
        [v1.Resize(70), v1.CenterCrop(64), v2.ToImage(), v2.Grayscale(3), FLOAT, v2.Normalize(MEAN, STD)],
        [v1.Resize(70, InterpolationMode.BICUBIC), v1.CenterCrop(64), v1.ToTensor(), v1.Normalize(MEAN, STD)],
        [
            v2.Resize(70, InterpolationMode.LANCZOS),
            v2.CenterCrop(64),
            v2.ToImage(),
            FLOAT,
            v2.Normalize(MEAN, STD),
        ],
    ],
    ids=[
        *(
            "v1",
            "v2, not square",
            "v2 of tensors, larger",
            "both sides",
            "max_size, padded",
            "crop, resize, pad",
        ),
        *("flipped", "reflected", "grey", "bicubic", "lanczos"),
    ],
)
def test_evaluation_gives_torchvisions_pixels(dataset: Path, steps: list[Any]) -> None:
    theirs = ImageFolder(str(dataset), v2.Compose(steps))
    in_order = dict(shuffle=False, last_batch="partial")
    ours = ImageDataset.from_torchvision(theirs, batch_size=16, decode="exact", **in_order)
    images, labels = (torch.cat(tensors) for tensors in zip(*ours, strict=True))
    assert len(images) == len(theirs) == 60
    differences = []
    for (image, label), our_image, our_label in zip(theirs, images, labels, strict=True):
        assert label == our_label
        assert image.shape == our_image.shape
        differences.append(((image - our_image) * LEVELS).abs().mean())
    assert torch.stack(differences).mean() <= EXACT_MEAN
    assert max(differences) <= 4 * EXACT_MEAN


@pytest.mark.parametrize(
    ("step", "is_random"),
    [
        (v2.ColorJitter(brightness=(1.5, 1.5)), False),
        (v2.ColorJitter(brightness=0.5), True),
        (v2.GaussianBlur(3, sigma=1.0), False),
        (v2.GaussianBlur(3), True),
    ],
)
def test_what_draws_random_numbers_is_a_training(dataset: Path, step: Any, is_random: bool) -> None:
    crop = v2.CenterCrop(32)
    _, shown = taken_over(dataset, v2.ToImage(), crop, step, FLOAT)
    assert shown["train"] is is_random


def test_the_preset_of_pretrained_weights(dataset: Path) -> None:
    preset = torchvision.models.ResNet18_Weights.DEFAULT.transforms()
    _, shown = taken_over(dataset, preset, dtype=torch.float16)
    assert shown["train"] is False
    expected = [T.Resize(256), T.CenterCrop(224), T.ToDtype("float16"), T.Normalize(MEAN, STD)]
    assert shown["transforms"] == expected
    bicubic = torchvision.models.EfficientNet_B0_Weights.IMAGENET1K_V1.transforms()
    _, shown = taken_over(dataset, bicubic)
    assert shown["transforms"][:2] == [T.Resize(256, "bicubic"), T.CenterCrop(224)]


def test_without_normalize_values_are_scaled_only(dataset: Path) -> None:
    theirs = ImageFolder(str(dataset), v1.Compose([v1.Resize(70), v1.CenterCrop(64), v1.ToTensor()]))
    ours = ImageDataset.from_torchvision(theirs, batch_size=60, decode="exact")
    images, _ = next(iter(ours))
    assert 0 <= images.min() < 0.1
    assert 0.9 < images.max() <= 1
    assert (images[0] - theirs[0][0]).abs().mean() * 255 < 4 * EXACT_MEAN


def test_grey_levels_and_half_floats(dataset: Path) -> None:
    geometry = [v1.Resize(70), v1.CenterCrop(64)]
    made, _ = taken_over(dataset, *geometry, v1.PILToTensor())
    images, _ = next(iter(made))
    assert (images.dtype, made.loader.dtype) == (torch.uint8, "uint8")
    half = v2.ToDtype(torch.bfloat16, scale=True)
    made, _ = taken_over(dataset, *geometry, v2.ToImage(), half)
    assert next(iter(made))[0].dtype == torch.bfloat16


def test_values_keep_the_scale_that_the_user_says(dataset: Path) -> None:
    geometry = [v1.Resize(70), v1.CenterCrop(64)]
    levels, _ = taken_over(dataset, *geometry, v1.PILToTensor())
    unscaled, shown = taken_over(dataset, *geometry, v2.ToImage(), v2.ToDtype(torch.float32))
    assert shown["transforms"][-1] == T.ToDtype("float32", scale=False)
    mean, std = (120.0, 110.0, 100.0), (50.0, 60.0, 70.0)
    normalised, _ = taken_over(
        dataset, *geometry, v2.ToImage(), v2.ToDtype(torch.float32), v2.Normalize(mean, std), decode="exact"
    )
    exact, _ = taken_over(dataset, *geometry, v1.PILToTensor(), decode="exact")
    assert (next(iter(unscaled))[0] - next(iter(levels))[0]).abs().max() <= 0.5
    expected = v2.functional.normalize(next(iter(exact))[0].float(), mean, std)
    assert (next(iter(normalised))[0] - expected).abs().max() < 1e-5


def test_crops_of_small_images_are_taken_over(dataset: Path) -> None:
    crop = v1.RandomCrop(32, padding=4, padding_mode="symmetric")
    _, shown = taken_over(dataset, v1.Resize((32, 32)), crop, FLIP, TENSOR, dtype=torch.float16)
    assert shown["train"] is True
    assert shown["transforms"][1:3] == [
        *(T.RandomCrop(32, 4, padding_mode="symmetric"), T.RandomHorizontalFlip()),
    ]
    of_v2 = taken_over(dataset, v2.RandomCrop((9, 8), padding=[1, 2, 3, 4], fill=(1, 2, 3)), v1.PILToTensor())
    assert of_v2[1]["transforms"] == [T.RandomCrop((9, 8), (1, 2, 3, 4), fill=(1, 2, 3))]


def test_random_sizes_are_taken_over(dataset: Path) -> None:
    crop, end = v2.RandomCrop(32, pad_if_needed=True), [v2.ToImage(), FLOAT]
    ours = [T.RandomCrop(32, pad_if_needed=True), T.ToDtype("float32")]
    for theirs, expected in [
        (v2.RandomResize(30, 60, antialias=True), T.RandomResize(30, 60)),
        (v2.RandomShortestSize([30, 40], max_size=70), T.RandomShortestSize((30, 40), 70)),
        (v2.RandomShortestSize(30), T.RandomShortestSize(30)),
        (v2.RandomZoomOut(side_range=(1, 2), p=0.3), T.RandomZoomOut(0, (1, 2), 0.3)),
        (v2.ScaleJitter((40, 60), (0.5, 1), "bicubic"), T.ScaleJitter((40, 60), (0.5, 1), "bicubic")),
    ]:
        _, shown = taken_over(dataset, theirs, crop, *end)
        assert shown["transforms"] == [expected, *ours]
        assert shown["train"] is True
    with pytest.raises(ConfigError, match="does not make all images the same size"):
        taken_over(dataset, v2.RandomResize(30, 60), *end)


def test_ssds_recipe_is_understood(dataset: Path) -> None:
    end = [v2.Resize((30, 30)), v2.ToImage(), FLOAT]
    _, shown = taken_over(dataset, v2.RandomZoomOut(fill=(123, 117, 104)), *end)
    assert shown["transforms"] == [
        *(T.RandomZoomOut((123, 117, 104)), T.Resize((30, 30)), T.ToDtype("float32")),
    ]
    # An ImageFolder has no boxes. torchvision refuses this crop without boxes, too.
    by_boxes = v2.RandomIoUCrop(0.2, 0.9, 0.6, 1.5, [0.1, 1.0], 9)
    with pytest.raises(ConfigError, match=r"has no boxes that follow .image., but RandomIoUCrop"):
        taken_over(dataset, v2.RandomZoomOut(), by_boxes, *end)
    steps = _transform_reader.read(v2.Compose([by_boxes, *end]))
    assert steps[0] == T.RandomIoUCrop(0.2, 0.9, 0.6, 1.5, (0.1, 1.0), 9)


def test_no_flip_means_none(dataset: Path) -> None:
    made, shown = taken_over(dataset, v1.RandomResizedCrop(32), v1.ToTensor())
    assert shown["transforms"] == [T.RandomResizedCrop(32), T.ToDtype("float32")]
    assert not any(made.loader.view(sample)["flip"] for sample in range(60))


CROP, FLIP, TENSOR = v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.ToTensor()
RESIZE, CENTER, NORMALIZE = v1.Resize(70), v1.CenterCrop(64), v1.Normalize(MEAN, STD)

REFUSED: dict[str, tuple[list[Any], str]] = {
    "colours": (
        [CROP, v2.JPEG(50), TENSOR],
        r"step 2 of 3, JPEG.*PILToTensor.*v2\.JPEG",
    ),
    "noise": ([CROP, TENSOR, v2.GaussianNoise()], r"step 3 of 3, GaussianNoise.*to the batches"),
    "ten crops": ([RESIZE, v1.TenCrop(32)], "step 2 of 2, TenCrop.*Resize and CenterCrop"),
    "a function": ([CROP, TENSOR, abs], "step 3 of 3, <built-in function abs>, .*apply it to the batches"),
    "hamming": (
        [v1.RandomResizedCrop(32, interpolation=InterpolationMode.HAMMING), TENSOR],
        "step 1 of 2, RandomResizedCrop.*interpolation: is .*, must be one of nearest, nearest-exact, bilinear,",
    ),
    "fill by type": (
        [v2.RandomCrop(32, fill={Image.Image: 3}), TENSOR],
        "step 1 of 2, RandomCrop.*fill: is .*, must be",
    ),
    "grey floats": (
        [CROP, TENSOR, v1.Pad(2, fill=1)],
        "step 3 of 3, Pad.*fill: is .*put the transform before ToDtype",
    ),
    "not antialiased": (
        [v2.ToImage(), v2.RandomResizedCrop(32, antialias=False), FLOAT],
        "antialias=False, .*must",
    ),
    "antialias=None": (
        [v2.ToImage(), v2.Resize(70, antialias=None), CENTER, FLOAT],
        "antialias=None, .*must",
    ),
    "torchvision 0.16": (
        [v2.ToImage(), v2.Resize(70, antialias="warn"), CENTER, FLOAT],
        "antialias='warn', .*must",
    ),
    "no crop": ([RESIZE, TENSOR], "does not make all images the same size"),
    "nothing": ([], "does not make all images the same size"),
    "two pipelines": ([RESIZE, CROP, TENSOR], "step 2 of 3, RandomResizedCrop.*cannot come after Resize"),
    "twice": (
        [CROP, FLIP, CROP, TENSOR],
        "step 3 of 4, RandomResizedCrop.*cannot come after RandomResizedCrop",
    ),
    "normalised twice": ([CROP, TENSOR, NORMALIZE, NORMALIZE], "step 4 of 4, Normalize.*in the list twice"),
    "no tensors": ([CROP, FLIP], r"ends in PIL images.*add ToTensor\(\)"),
    "two tensors": ([CROP, v1.PILToTensor(), TENSOR], "step 3 of 3, ToTensor.*takes PIL images"),
    "and back": (
        [CROP, TENSOR, v2.ToDtype(torch.uint8, scale=True)],
        "ToDtype.*converts floats back to uint8",
    ),
    "double": ([CROP, v2.ToImage(), v2.ToDtype(torch.float64, scale=True)], "must be one of torch.float32"),
    "per type": ([CROP, v2.ToImage(), v2.ToDtype({torch.Tensor: torch.float32})], "must be one of"),
    "conversion of PIL": ([CROP, FLOAT], r"must come after ToImage\(\)"),
    "normalised grey levels": ([CROP, v1.PILToTensor(), NORMALIZE], "Normalize.*must come after ToTensor"),
    "crop of normalised": ([TENSOR, NORMALIZE, CROP], "RandomResizedCrop.*must come before Normalize"),
    "one grey channel": (
        [CROP, v1.Grayscale(), TENSOR],
        "step 2 of 3, Grayscale.*num_output_channels: is 1, must be 3",
    ),
    "one channel": ([CROP, TENSOR, v1.Normalize([0.5], [0.5])], "Normalize.*three means"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_foreload_does_not_do_is_refused(dataset: Path, name: str) -> None:
    steps, message = REFUSED[name]
    with pytest.raises(ConfigError, match=f"^config: transform: .*{message}"):
        taken_over(dataset, *steps)


def test_a_class_derived_from_a_known_one_is_another(dataset: Path) -> None:
    class RandomHorizontalFlip(v1.RandomHorizontalFlip):
        pass

    with pytest.raises(ConfigError, match=r"step 2 of 3.*is not supported by Foreload"):
        taken_over(dataset, CROP, RandomHorizontalFlip(), TENSOR)


class _OtherFolder(ImageFolder):
    pass


class _OtherNumbers(ImageFolder):
    def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
        names, _ = super().find_classes(directory)
        return names, {name: len(names) - 1 - number for number, name in enumerate(names)}


EVALUATION = v1.Compose([RESIZE, CENTER, TENSOR, NORMALIZE])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: _OtherFolder(root, EVALUATION), "dataset: is a .*_OtherFolder, must be"),
        (lambda root: _OtherNumbers(root, EVALUATION), "dataset: is a .*_OtherNumbers, must be"),
        (lambda _: torchvision.datasets.FakeData(), "dataset: is a .*FakeData, must be"),
        (
            lambda root: ImageFolder(root, EVALUATION, target_transform=abs),
            "target_transform: is .*to the labels",
        ),
        (
            lambda root: ImageFolder(root, EVALUATION, loader=Image.open),
            "loader: is .*must be torchvision's own",
        ),
        (lambda root: ImageFolder(root, EVALUATION, is_valid_file=bool), "is_valid_file: is .*Subset"),
    ],
)
def test_a_dataset_of_ones_own_is_refused(dataset: Path, make: Callable[[str], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^config: {message}"):
        ImageDataset.from_torchvision(make(str(dataset)), batch_size=4)


def test_class_numbers_must_agree(dataset: Path) -> None:
    theirs = ImageFolder(str(dataset), EVALUATION)
    theirs.class_to_idx = {"class_0": 1, "class_1": 0, "class_2": 2}
    with pytest.raises(ConfigError, match="class 'class_0' has number 1 in class_to_idx and 0 in Foreload"):
        ImageDataset.from_torchvision(theirs, batch_size=4)


def test_samples_must_agree(own_dataset: Path) -> None:
    theirs = ImageFolder(str(own_dataset), EVALUATION)
    (own_dataset / "class_1" / "020.jpg").rename(own_dataset / "class_1" / "zzz.jpg")
    with pytest.raises(ConfigError, match=r"class_1/020\.jpg is sample 20 of the ImageFolder, but not"):
        ImageDataset.from_torchvision(theirs, batch_size=4)


def test_added_samples_are_noticed(own_dataset: Path) -> None:
    theirs = ImageFolder(str(own_dataset), EVALUATION)
    shutil.copy(own_dataset / "class_2" / "040.jpg", own_dataset / "class_2" / "zzz.jpg")
    with pytest.raises(
        ConfigError, match="the ImageFolder has 60 samples, but the directory as Foreload indexed it has 61"
    ):
        ImageDataset.from_torchvision(theirs, batch_size=4)


def test_files_that_foreload_does_not_read_are_named(own_dataset: Path) -> None:
    Image.new("RGB", (80, 80)).save(own_dataset / "class_1" / "picture.bmp")
    with pytest.raises(ConfigError, match=r"picture\.bmp is not a file that Foreload reads"):
        ImageDataset.from_torchvision(ImageFolder(str(own_dataset), EVALUATION), batch_size=4)


def test_names_that_only_one_of_the_two_reads_are_told(own_dataset: Path) -> None:
    hidden = own_dataset / ".ipynb_checkpoints"
    hidden.mkdir()
    shutil.copy(own_dataset / "class_0" / "000.jpg", hidden)
    with pytest.raises(
        ConfigError, match=r"'\.ipynb_checkpoints' is a class of the ImageFolder, which numbers"
    ):
        ImageDataset.from_torchvision(ImageFolder(str(own_dataset), EVALUATION), batch_size=4)
    shutil.rmtree(hidden)
    shutil.copy(own_dataset / "class_0" / "000.jpg", own_dataset / "class_0" / "000.jfif")
    theirs = ImageFolder(str(own_dataset), EVALUATION)
    with pytest.raises(
        ConfigError, match=r"000\.jfif is an image that Foreload reads and ImageFolder does not"
    ):
        ImageDataset.from_torchvision(theirs, batch_size=4, rebuild_index=True)


def test_settings_of_the_transforms_cannot_be_given_again(dataset: Path) -> None:
    theirs = ImageFolder(str(dataset), EVALUATION)
    for again in ({"train": True}, {"transforms": []}):
        with pytest.raises(ConfigError, match=f"config: {next(iter(again))}: is .*, but .* in the dataset"):
            ImageDataset.from_torchvision(theirs, batch_size=4, **again)
    for again in ({"image_size": 32}, {"dtype": torch.uint8}, {"flip": 0.5}):
        with pytest.raises(
            ConfigError, match=f"config: {next(iter(again))}: cannot be combined with transforms, where"
        ):
            ImageDataset.from_torchvision(theirs, batch_size=4, **again)


def test_relative_paths_and_links(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(dataset)
    monkeypatch.chdir(tmp_path)
    assert len(ImageDataset.from_torchvision(ImageFolder("link", EVALUATION), batch_size=4)) == 15


def test_imagenet_has_words_for_its_directories(own_dataset: Path, tmp_path: Path) -> None:
    root = tmp_path / "imagenet"
    root.mkdir()
    own_dataset.rename(root / "val")
    words = {"class_0": ("tench",), "class_1": ("goldfish", "carp"), "class_2": ("great white shark",)}
    torch.save((words, []), root / "meta.bin")
    theirs = torchvision.datasets.ImageNet(str(root), "val", transform=EVALUATION)
    ours = ImageDataset.from_torchvision(theirs, batch_size=60)
    _, labels = next(iter(ours))
    assert labels.tolist() == theirs.targets


def test_foreload_does_not_import_torchvision() -> None:
    program = "import foreload.torch, foreload._torchvision, sys; sys.exit('torchvision' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize("indices", [[0, 7, 29], [29, 0, 7]])
def test_a_subset_of_a_subset(dataset: Path, indices: list[int]) -> None:
    part = Subset(Subset(ImageFolder(str(dataset), EVALUATION), range(10, 40)), indices)
    ours = ImageDataset.from_torchvision(part, batch_size=2, with_ids=True)
    batches = list(ours)
    assert [number for *_, numbers in batches for number in numbers.tolist()] == [10 + at for at in indices]
    assert [label for _, labels, _ in batches for label in labels.tolist()] == [label for _, label in part]
    again = eval(repr(ours), {"ImageDataset": ImageDataset, "torch": torch, **vars(T)})
    assert len(again) == 2


def test_a_subset_that_repeats_samples_is_refused(dataset: Path) -> None:
    part = Subset(ImageFolder(str(dataset), EVALUATION), [3, 5, 3])
    with pytest.raises(ConfigError, match="indices: has sample 3 at positions 0 and 2"):
        ImageDataset.from_torchvision(part, batch_size=2)
