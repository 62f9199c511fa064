"""`transforms=` without torchvision: accepted and refused values, and the equivalent flat settings."""

from __future__ import annotations

import dataclasses
import inspect
import json
import pickle
import re
import typing
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from foreload import ConfigError, _transform_reader
from foreload import transforms as T
from foreload._core import same_transforms
from PIL import Image

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def batches(dataset: Path, **settings: Any) -> list[bytes]:
    """Return the bytes of all images of an epoch."""
    loader = foreload.ImageLoader(dataset, batch_size=20, seed=3, **settings)
    return [np.from_dlpack(batch.images).tobytes() for batch in loader]


def test_the_flat_settings_mean_a_list(dataset: Path) -> None:
    listed = [
        *(T.RandomResizedCrop(40, scale=(0.2, 0.9)), T.RandomHorizontalFlip(0.3)),
        *(T.ToDtype("float16"), T.Normalize(MEAN, STD)),
    ]
    flat = dict(image_size=40, scale=(0.2, 0.9), flip=0.3, dtype="float16")
    assert batches(dataset, transforms=listed) == batches(dataset, **flat)
    evaluated = [T.Resize(50), T.CenterCrop((40, 30)), T.ToDtype("uint8")]
    flat = dict(image_size=(40, 30), resize=50, dtype="uint8", train=False)
    assert batches(dataset, transforms=evaluated, train=False) == batches(dataset, **flat)


def test_images_are_bytes_until_to_dtype(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, batch_size=4, transforms=[T.RandomResizedCrop(24)])
    assert loader.dtype == "uint8"
    assert np.from_dlpack(next(iter(loader)).images).dtype == np.uint8


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_random_crops_with_padding_are_those_of_numpy(own_dataset: Path, mode: str) -> None:
    for path in own_dataset.rglob("*.jpg"):
        with Image.open(path) as image:
            small = image.convert("RGB").resize((40, 32))
        path.unlink()
        small.save(path.with_suffix(".png"))
    how = {"padding_mode": mode, **({"fill": (10, 20, 30)} if mode == "constant" else {})}
    steps = [T.RandomCrop((30, 36), padding=(6, 4), **how), T.RandomHorizontalFlip()]
    loader = foreload.ImageLoader(
        own_dataset,
        batch_size=20,
        transforms=steps,
        decode="exact",
        memory_format="nhwc",
        index_dir=own_dataset.parent,
    )
    seen = set()
    for batch in loader:
        for image, sample in zip(np.from_dlpack(batch.images), np.from_dlpack(batch.sample_ids), strict=True):
            view = loader.view(int(sample))
            with Image.open(loader.locate(int(sample))[0]) as source:
                pixels = np.asarray(source.convert("RGB"))
            if mode == "constant":
                padded = np.full((40, 52, 3), (10, 20, 30), np.uint8)
                padded[4:36, 6:46] = pixels
            else:
                padded = np.pad(pixels, ((4, 4), (6, 6), (0, 0)), mode)
            left, top = view["left"] + 6, view["top"] + 4
            assert (view["output_width"], view["output_height"]) == (36, 30)
            expected = padded[top : top + 30, left : left + 36]
            assert np.array_equal(image, expected[:, ::-1] if view["flip"] else expected)
            seen.add((left, top, view["flip"]))
    assert len(seen) > 40


@pytest.mark.parametrize("size", [(33, 40), (7, 5)])
@pytest.mark.parametrize(("dtype", "layout"), [("uint8", "nchw"), ("float32", "nhwc"), ("float16", "nchw")])
def test_grey_is_made_of_the_levels_of_the_output(
    dataset: Path, size: tuple[int, int], dtype: str, layout: str
) -> None:
    def images(*colours: T.Transform, to: str = dtype) -> list[np.ndarray]:
        normalised = () if to == "uint8" else (T.Normalize(MEAN, STD),)
        steps = [T.RandomResizedCrop(size), *colours, T.RandomHorizontalFlip(), T.ToDtype(to), *normalised]
        how = dict(batch_size=20, seed=3, memory_format=layout, device="cpu")
        loader = foreload.ImageLoader(dataset, transforms=steps, **how)
        return [np.from_dlpack(batch.images) for batch in loader]

    axis = 1 if layout == "nchw" else -1
    shape = (3, 1, 1) if layout == "nchw" else (3,)
    for levels, greys in zip(images(to="uint8"), images(T.Grayscale()), strict=True):
        shares = np.array([0.2989, 0.587, 0.114]).reshape(shape)
        grey = np.floor((levels * shares).sum(axis, keepdims=True) + 1e-5)
        expected = np.broadcast_to(grey, levels.shape)
        if dtype != "uint8":
            mean, std = np.float32(MEAN).reshape(shape), np.float32(STD).reshape(shape)
            expected = (expected.astype(np.float32) / 255 - mean) / std
        assert greys.dtype == dtype
        assert np.abs(greys.astype(np.float32) - expected).max() <= (2e-3 if dtype == "float16" else 1e-5)


def test_parameters_have_one_form(dataset: Path) -> None:
    class Bicubic:
        value = "bicubic"

    assert T.RandomResizedCrop(9) == T.RandomResizedCrop([9, 9], scale=[0.08, 1], interpolation="bilinear")
    assert T.RandomResizedCrop(9, interpolation=Bicubic()).interpolation == "bicubic"
    assert T.Resize([9]).size == T.Resize(np.int64(9)).size == 9
    assert T.Resize((9, 8)).size == (9, 8)
    assert T.CenterCrop([9]).size == T.CenterCrop(9.0).size == (9, 9)
    assert T.Pad([3]) == T.Pad(3)
    assert T.Pad(1, fill=None) == T.Pad(1, fill=[0])
    assert T.Normalize(np.array(MEAN), list(STD)) == T.Normalize(MEAN, STD)
    assert T.ToDtype(np.float16) == T.ToDtype(np.dtype("float16")) == T.ToDtype("float16")
    assert T.Views(2, [T.CenterCrop(9)]) == T.Views(2, (T.CenterCrop([9, 9]),))
    views = T.Views(2, [T.CenterCrop(9)])
    assert json.loads(T.to_json(views)) == {
        "Views": {"n": 2, "transforms": [{"CenterCrop": {"size": [9, 9]}}]}
    }
    assert eval(repr(T.Pad((1, 2), 3, "edge")), vars(T)) == T.Pad((1, 2), 3, "edge")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: T.RandomResizedCrop("x"),
            "RandomResizedCrop: size: is 'x', must be a number of pixels, a height and",
        ),
        (lambda: T.RandomResizedCrop((1, 2, 3)), r"RandomResizedCrop: size: is \(1, 2, 3\), must be"),
        (lambda: T.RandomResizedCrop(9, scale=0.5), "RandomResizedCrop: scale: is 0.5, must be two numbers"),
        (
            lambda: T.RandomResizedCrop(9, ratio=(1, float("nan"))),
            "RandomResizedCrop: ratio: is .*nan.*, must be two numbers",
        ),
        (
            lambda: T.RandomResizedCrop(9, interpolation=2),
            "RandomResizedCrop: interpolation: is 2, must be one of nearest",
        ),
        (lambda: T.Resize(True), "Resize: size: is True, must be"),
        (lambda: T.Resize(9, max_size=-1), "Resize: max_size: is -1, must be a whole number of at least 0"),
        (lambda: T.CenterCrop(None), "CenterCrop: size: is None, must be"),
        (
            lambda: T.RandomCrop(9, padding=1.5),
            "RandomCrop: padding: is 1.5, must be a whole number of pixels",
        ),
        (lambda: T.RandomCrop(9, pad_if_needed=1), "RandomCrop: pad_if_needed: is 1, must be True or False"),
        (lambda: T.Pad((1, 2, 3)), r"Pad: padding: is \(1, 2, 3\), must be"),
        (lambda: T.Pad(1, fill=0.5), "Pad: fill: is 0.5, must be a grey level"),
        (lambda: T.Pad(1, fill=(1, 2, 300)), "Pad: fill: is .*, must be a grey level"),
        (lambda: T.Pad(1, padding_mode="wrap"), "Pad: padding_mode: is 'wrap', must be one of constant"),
        (lambda: T.RandomHorizontalFlip("often"), "RandomHorizontalFlip: p: is 'often', must be a number"),
        (lambda: T.RandomErasing(p=10**400), r"RandomErasing: p: is 10{400}, must be a number"),
        (lambda: T.Pad(10**400), r"Pad: padding: is 10{400}, must be a whole number of pixels"),
        (lambda: T.ToDtype("float64"), "ToDtype: dtype: is 'float64', must be one of float32"),
        (lambda: T.ToDtype("float32", scale="yes"), "ToDtype: scale: is 'yes', must be True or False"),
        (lambda: T.Normalize(0.5, STD), "Normalize: mean: is 0.5, must be three numbers"),
        (lambda: T.Normalize(MEAN, (1, 2)), r"Normalize: std: is \(1, 2\), must be three numbers"),
        (lambda: T.Views(1.5, []), "Views: n: is 1.5, must be a whole number"),
        (lambda: T.Views(2, 3), "is 3, must be a list of foreload.transforms"),
        (lambda: T.Views(2, [T.CenterCrop]), r"step 1 of 1, .*: is a class: make one, CenterCrop\(...\)"),
        (lambda: T.Transform(), "Transform: is only a base"),
        (lambda: T.to_json([abs]), "step 1 of 1, <built-in function abs>: is not a transform"),
    ],
)
def test_a_parameter_of_another_type_is_named(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^config: transforms: {message}"):
        make()


def nested(levels: int) -> T.Transform:
    """Return transforms that are nested this many levels deep."""
    step: T.Transform = T.Grayscale()
    for _ in range(levels):
        step = T.RandomApply([step])
    return step


def test_what_the_core_refuses_names_step_and_parameter(dataset: Path) -> None:
    for steps, message in [
        (
            [T.RandomResizedCrop(9, scale=(1.2, 2))],
            r"step 1 of 1, RandomResizedCrop: scale: is \(1.2, 2\), must be",
        ),
        ([T.RandomResizedCrop(9), T.Resize(8)], "step 2 of 2, Resize: cannot come after RandomResizedCrop"),
        ([T.Normalize(MEAN, STD)], "step 1 of 1, Normalize: needs floats"),
        ([T.CenterCrop(9), T.Views(2, [])], "mixes Views with other transforms"),
        ({"image": [T.Views(1, [T.CenterCrop(9)]), T.CenterCrop(9)]}, r"\"image\": mixes Views with other"),
        (3, "is 3, must be a list"),
        (
            [T.RandomResizedCrop(9), nested(60)],
            "is JSON that is nested too deeply",
        ),
        ([T.RandomResizedCrop(9), nested(5000)], "has objects that are nested too deeply"),
    ]:
        with pytest.raises(ConfigError, match=f"^config: transforms: {message}"):
            foreload.ImageLoader(dataset, transforms=steps)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("image_size", 224), ("dtype", "float32"), ("mean", MEAN), ("std", STD), ("scale", (0.1, 1))),
        *(("ratio", (1, 1)), ("flip", 0.5), ("resize", 9)),
    ],
)
def test_flat_settings_beside_transforms_are_refused(dataset: Path, setting: str, value: Any) -> None:
    with pytest.raises(
        ConfigError, match=f"^config: {setting}: cannot be combined with transforms, where .* replaces it"
    ):
        foreload.ImageLoader(dataset, transforms=[T.CenterCrop(9)], **{setting: value})


def test_every_view_has_its_numbers(dataset: Path) -> None:
    steps = [T.RandomResizedCrop(24), T.RandomHorizontalFlip()]
    how = dict(batch_size=20, seed=3, device="cpu")
    views = foreload.ImageLoader(
        dataset, transforms=[T.Views(2, steps), T.Views(1, [T.CenterCrop(9)])], **how
    )
    alone = foreload.ImageLoader(dataset, transforms=steps, **how)
    assert views.view(7, 2) == alone.view(7, 2) != views.view(7, 2, view=1)
    assert views.view(7, 2, view=2)["output_width"] == 9
    with pytest.raises(ConfigError, match=r"^config: view: is 3, but each image has 3"):
        views.view(7, view=3)
    one, other, small = next(iter(views))["image"]
    assert np.from_dlpack(one).shape == np.from_dlpack(other).shape == (20, 3, 24, 24)
    assert np.from_dlpack(small).shape == (20, 3, 9, 9)
    assert np.array_equal(np.from_dlpack(one), np.from_dlpack(next(iter(alone)).images))


def test_an_image_that_is_too_small_is_an_error_of_its_sample(dataset: Path) -> None:
    steps = [T.RandomCrop(4000)]
    with pytest.raises(
        foreload.SampleError, match=r"transforms: RandomCrop cannot crop 4000.4000 pixels .*pad_if_needed"
    ):
        next(iter(foreload.ImageLoader(dataset, batch_size=1, transforms=steps)))
    padded = foreload.ImageLoader(dataset, batch_size=1, transforms=[T.RandomCrop(400, pad_if_needed=True)])
    assert np.from_dlpack(next(iter(padded)).images).shape == (1, 3, 400, 400)


def test_transforms_are_dataclasses_that_keep_their_values() -> None:
    made = T.RandomResizedCrop(9)
    assert pickle.loads(pickle.dumps(made)) == made == dataclasses.replace(made, size=(9, 9))
    assert hash(made) == hash(T.RandomResizedCrop((9, 9)))
    # The format of earlier versions.
    assert pickle.loads(b"cforeload.transforms._geometry\nRandomResizedCrop\n.") is T.RandomResizedCrop
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.size = (8, 8)  # type: ignore[misc]
    assert repr(T.RandomErasing()) == "RandomErasing(p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0.0)"
    size = "size: 'int | Sequence[int] | str | None'"
    shown = f"({size}, interpolation: 'Any' = 'bilinear', max_size: 'int | None' = None)"
    assert str(inspect.signature(T.Resize)) == f"{shown} -> None"
    for name in T.__all__:
        assert typing.get_type_hints(getattr(T, name)).keys() >= {
            parameter.name for parameter in dataclasses.fields(getattr(T, name))
        }


def test_every_transform_is_explained() -> None:
    for name in T.__all__:
        made = getattr(T, name)
        documented = inspect.getdoc(made) or ""
        assert len(documented) > 30
        for parameter in dataclasses.fields(made):
            assert f"\n    {parameter.name}: " in documented, (name, parameter.name)


# A value of each parameter that has no default.
REQUIRED: dict[str, dict[str, Any]] = {
    "CenterCrop": {"size": 9},
    "GaussianBlur": {"kernel_size": 3},
    "Normalize": {"mean": MEAN, "std": STD},
    "Pad": {"padding": 3},
    "Patchify": {"patch": 9},
    "RandomAdjustSharpness": {"sharpness_factor": 2},
    "RandomAffine": {"degrees": 9},
    "RandomApply": {"transforms": [T.Grayscale()]},
    "RandomChoice": {"transforms": [T.Grayscale()]},
    "RandomCrop": {"size": 9},
    "RandomOrder": {"transforms": [T.Grayscale()]},
    "RandomPosterize": {"bits": 4},
    "RandomResize": {"min_size": 3, "max_size": 9},
    "RandomResizedCrop": {"size": 9},
    "RandomRotation": {"degrees": 9},
    "RandomShortestSize": {"min_size": [3, 9]},
    "RandomSolarize": {"threshold": 128},
    "Resize": {"size": 9},
    "ResizeToCover": {"size": 9},
    "ScaleJitter": {"target_size": [3, 9]},
    "ToDtype": {"dtype": "float16"},
}
OF_IMAGES = set(T.__all__) - {"Transform", "Views", "CutMix", "MixUp"}


def test_defaults_are_the_same_in_python_and_in_the_core() -> None:
    for name in OF_IMAGES:
        required = REQUIRED.get(name, {})
        document = getattr(T, name)(**required)._as_json()
        # Given parameters are written in the dataclass's format, so that only the defaults are compared.
        left_out = {name: {given: document[name][given] for given in required}}
        assert same_transforms(json.dumps([left_out]), json.dumps([document])), name
    assert not same_transforms('[{"RandomHorizontalFlip": {}}]', '[{"RandomHorizontalFlip": {"p": 0.4}}]')


def test_no_transform_of_torchvision_is_both_taken_over_and_refused() -> None:
    assert set(_transform_reader._WHAT_TO_DO).isdisjoint(_transform_reader._READERS)


def test_the_manual_gives_the_parameters_and_their_defaults() -> None:
    manual = Path(__file__).parents[2].joinpath("docs/transforms.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:`([^`]*)`|none) \|", manual, re.MULTILINE))
    assert set(rows) == OF_IMAGES
    for name, said in rows.items():
        # Each is a name, or a name with a default, which may contain commas.
        shown = [
            parameter.partition("=") for parameter in re.split(r", (?=[a-z_]+(?:=|,|$))", said) if parameter
        ]
        parameters = dataclasses.fields(getattr(T, name))
        assert [parameter for parameter, _, _ in shown] == [parameter.name for parameter in parameters]
        for (_, is_given, default), parameter in zip(shown, parameters, strict=True):
            assert not is_given or eval(default) == parameter.default, (name, parameter.name)
