"""`foreload.recipes`: each recipe trains and evaluates, shows its settings, and equals its source."""

from __future__ import annotations

import inspect
from pathlib import Path

import foreload
import numpy as np
import pytest
from foreload import recipes
from foreload import transforms as T

NAMES = [name for name in recipes.__all__ if name != "Recipe"]
VIEWS = {"simclr": [224] * 2, "moco_v3": [224] * 2, "byol": [224] * 2}
VIEWS |= dict.fromkeys(("dino", "dinov2"), [224] * 2 + [96] * 8)
SIZES = {"resnet50_reference": 176, "cifar": 32}


def make(name: str) -> recipes.Recipe:
    """Return a recipe for ten classes."""
    function = getattr(recipes, name)
    return function(num_classes=10) if "num_classes" in inspect.signature(function).parameters else function()


@pytest.mark.parametrize("name", NAMES)
def test_it_trains(name: str, dataset: Path) -> None:
    recipe = make(name)
    loader = foreload.ImageLoader(dataset, batch_size=16, seed=1, **recipe)
    batch = next(iter(loader))
    images = batch["image"]
    sizes = [np.from_dlpack(view).shape for view in (images if isinstance(images, tuple) else (images,))]
    assert sizes == [(16, 3, side, side) for side in VIEWS.get(name, [SIZES.get(name, 224)])]
    labels = np.from_dlpack(batch.labels)
    assert labels.shape == ((16, 10) if "mix" in recipe else (16,))
    for view in images if isinstance(images, tuple) else (images,):
        assert np.isfinite(np.from_dlpack(view)).all()


@pytest.mark.parametrize("name", NAMES)
def test_it_evaluates_or_says_that_it_does_not(name: str, dataset: Path) -> None:
    recipe = make(name)
    if name in VIEWS:
        with pytest.raises(foreload.ConfigError, match=rf"^config: {name}: .*recipes\.mae\(\)\.eval\(\)"):
            recipe.eval()
        return
    evaluation = recipe.eval()
    assert evaluation["train"] is False
    assert repr(evaluation.eval()) == repr(evaluation)
    assert set(evaluation) == {"transforms", "train"}
    loader = foreload.ImageLoader(dataset, batch_size=8, **evaluation)
    ids = np.concatenate([np.from_dlpack(batch.sample_ids) for batch in loader])
    assert ids.tolist() == list(range(loader.samples))


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_means(name: str) -> None:
    recipe = make(name)
    shown = repr(recipe)
    assert shown.startswith(f"{name}: ")
    assert recipe.source in shown
    for setting in recipe:
        assert f"{setting}=" in shown
    names = {type(step).__name__ for step in _steps(recipe["transforms"])}
    assert names
    assert all(name in shown for name in names)


def _steps(transforms: object) -> list[T.Transform]:
    """Return all transforms, of all views."""
    if isinstance(transforms, T.Views):
        return list(transforms.transforms)
    return [step for item in transforms for step in (_steps(item) if isinstance(item, T.Views) else [item])]


def test_a_setting_can_be_replaced(dataset: Path) -> None:
    settings = {**recipes.deit(num_classes=10, size=32), "mix": None, "repeats": 1}
    loader = foreload.ImageLoader(dataset, batch_size=8, **settings)
    assert np.from_dlpack(next(iter(loader)).labels).shape == (8,)


@pytest.mark.parametrize(
    ("evaluation", "geometry"),
    [
        (recipes.convnext(10), [T.Resize(256, "bicubic"), T.CenterCrop(224)]),
        (recipes.convnext(10, size=383), [T.Resize(437, "bicubic"), T.CenterCrop(383)]),
        (recipes.convnext(10, size=384), [T.Resize((384, 384), "bicubic")]),
        (recipes.deit(10, size=384), [T.Resize(438, "bicubic"), T.CenterCrop(384)]),
        (recipes.swin(10, size=384), [T.Resize(438, "bicubic"), T.CenterCrop(384)]),
        (recipes.mae(), [T.Resize(256, "bicubic"), T.CenterCrop(224)]),
        (recipes.mae(size=225), [T.Resize(225, "bicubic"), T.CenterCrop(225)]),
        (recipes.mae(size=448), [T.Resize(448, "bicubic"), T.CenterCrop(448)]),
    ],
    ids=lambda value: value.name if isinstance(value, recipes.Recipe) else str(value[0].size),
)
def test_larger_images_are_evaluated_as_the_source_does(
    evaluation: recipes.Recipe, geometry: list[T.Transform]
) -> None:
    assert evaluation.eval()["transforms"][:-2] == geometry


def kernels(recipe: recipes.Recipe) -> set[tuple[int | None, int]]:
    """Return the sizes of the blurred views, each with the size of its filter."""
    transforms, found = recipe["transforms"], set()
    for views in [transforms] if isinstance(transforms, T.Views) else transforms:
        for step in views.transforms:
            (blur,) = step.transforms if isinstance(step, T.RandomApply) else (step,)
            if isinstance(blur, T.GaussianBlur):
                found.add((views.transforms[0].size, blur.kernel_size))
    return found


def test_blurs_reach_as_far_as_the_source_has_them() -> None:
    # Pillow's filter has the same radius for images of any size, limited by the size of a small image.
    for size, kernel in [(384, 23), (224, 23), (96, 23), (32, 23), (12, 23), (11, 21), (4, 7)]:
        sides = (size, size)
        assert kernels(recipes.moco_v3(size)) == {(sides, kernel)}
        assert kernels(recipes.dino(size, 8)) == {(sides, kernel), ((8, 8), 15)}
    # A tenth of the side, as in the papers.
    for size, kernel in [(224, 23), (96, 9), (32, 3)]:
        for recipe in (recipes.simclr(size), recipes.byol(size)):
            assert kernels(recipe) == {((size, size), kernel)}
    assert kernels(recipes.dinov2(32, 16)) == {((32, 32), 9), ((16, 16), 9)}
    assert kernels(recipes.simclr(32, strength=0.5, blur=False)) == set()


@pytest.mark.parametrize("size", [4, 12])
def test_small_images_are_blurred_too(dataset: Path, size: int) -> None:
    for recipe in (recipes.moco_v3(size), recipes.dino(size, size)):
        views = next(iter(foreload.ImageLoader(dataset, batch_size=8, **recipe)))["image"]
        assert all(np.isfinite(np.from_dlpack(view)).all() for view in views)


def test_dinov2_blurs_as_published_or_as_trained() -> None:
    def blurred(recipe: recipes.Recipe) -> list[float]:
        found = []
        for views in recipe["transforms"]:
            steps = [step for step in views.transforms if isinstance(step, T.RandomApply)]
            blurs = [step.p for step in steps if isinstance(step.transforms[0], T.GaussianBlur)]
            always = any(isinstance(step, T.GaussianBlur) for step in views.transforms)
            found.append(1.0 if always else sum(blurs))
        return found

    assert blurred(recipes.dinov2()) == [1.0, 0.1, 0.5]
    assert blurred(recipes.dinov2(as_trained=True)) == [0.0, 0.9, 0.5]
