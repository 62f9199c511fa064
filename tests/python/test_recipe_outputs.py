"""benches/transforms: its paired test is exact and finds differences, its features have the right values, and a small
run.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from conftest import need
from foreload import _transform_reader, recipes
from foreload import transforms as T

with need("torchvision"):
    import torch
    import torchvision
    from torchvision.transforms import v2
    from torchvision_draws import of_timm

HERE = Path(__file__).resolve().parents[2] / "benches" / "transforms"
sys.path += [str(HERE), str(HERE.parent)]
import features  # noqa: E402
import outputs  # noqa: E402
import paired  # noqa: E402
import references  # noqa: E402
import tables  # noqa: E402

EXCHANGES = 999


def made(random: np.random.Generator, photographs: np.ndarray, spread: float = 1.0) -> np.ndarray:
    """Return features of two images per photograph: the photograph's own, and skewed noise that dimensions partly
    share.
    """
    noise = random.exponential(spread, (len(photographs), 2, 1)) - spread
    return photographs[:, None] + noise + random.normal(0, 0.3, (len(photographs), 2, photographs.shape[1]))


def test_p_values_are_uniform_where_nothing_differs() -> None:
    random = np.random.default_rng(0)
    found: dict[str, list[float]] = {}
    for seed in range(200):
        photographs = random.normal(0, 3, (80, 5))
        differences = paired.differences(made(random, photographs), made(random, photographs))
        for name, p in paired.p_values(differences, 199, seed).items():
            found.setdefault(name, []).append(p)
    assert list(found) == ["mean", "covariance", "variance by image", "covariance by image"]
    for name, values in found.items():
        # 20 of 200 are expected below 0.1, with a deviation of 4.2.
        assert 5 <= sum(p <= 0.1 for p in values) <= 37, name
        assert 79 <= sum(p <= 0.5 for p in values) <= 121, name


def test_a_mean_a_covariance_and_a_spread_that_differ_are_found() -> None:
    random = np.random.default_rng(1)
    photographs = random.normal(0, 3, (500, 5))

    def p_values(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
        return paired.p_values(paired.differences(ours, theirs), EXCHANGES, 2)

    theirs = made(random, photographs)
    moved = p_values(made(random, photographs) + 0.3, theirs)
    assert moved["mean"] == 1 / (EXCHANGES + 1)
    assert moved["covariance by image"] > 0.01
    wider = p_values(made(random, photographs, 1.5), theirs)
    assert wider["variance by image"] <= 0.01
    assert wider["mean"] > 0.01
    # The same spread, but in different directions of the dimensions.
    turned = made(random, photographs)
    turned = photographs[:, None] + (turned - photographs[:, None]) * [1, -1, 1, -1, 1]
    found = p_values(turned, theirs)
    assert found["covariance by image"] == found["covariance"] == 1 / (EXCHANGES + 1)


def test_nothing_differs_between_the_same_images() -> None:
    one = made(np.random.default_rng(3), np.zeros((50, 4)))
    assert set(paired.p_values(paired.differences(one, one), 99, 0).values()) == {1.0}


def test_features_are_of_the_images_before_they_were_normalised() -> None:
    normalised = ((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    mean, std = (torch.tensor(values)[:, None, None] for values in normalised)
    image = torch.linspace(0, 1, 32).expand(3, 32, 32).clone()
    image[2, :16] = 0
    sources = features.patterns(image[None])
    found = features.of_images(((image - mean) / std)[None], normalised, sources)
    blocks, looks = (found[name][0] for name in ("blocks", "looks"))
    expected = image.unflatten(1, (8, 4)).unflatten(3, (8, 4)).mean((2, 4))
    assert torch.allclose(blocks.unflatten(0, (3, 8, 8)), expected, atol=1e-6)
    assert torch.allclose(looks[:3], image.mean((1, 2)), atol=1e-6)
    # The lower half is grey, and also one pixel of the upper half.
    assert looks[9] == pytest.approx(0.5, abs=0.02)
    assert looks[10] == pytest.approx(2.5 / 3 / 31, abs=1e-4)
    # The photograph differs from its mirror image, and a mirrored one differs equally; the same holds upside down.
    for at, axis in ((15, 2), (16, 1)):
        turned = features.of_images(((image - mean) / std).flip(axis)[None], normalised, sources)["looks"][0]
        assert looks[at] > 0.2
        assert turned[at] == pytest.approx(-looks[at].item(), abs=1e-5)


def test_every_recipe_has_a_source() -> None:
    named = {part for name in references.CONTESTS for part in name.split(", ")}
    assert {name for name in recipes.__all__ if name != "Recipe"} <= named
    for name, contest in references.CONTESTS.items():
        settings = contest.recipe()
        assert contest.mix is None or "mix" in settings, name


def meaning(step: T.Transform) -> tuple[Any, ...] | None:
    """Return a normal form of a transform, whatever form its parameters have; None if it does nothing."""
    if getattr(step, "p", 1.0) == 0.0 or step == T.Normalize((0, 0, 0), (1, 1, 1)):
        return None
    if isinstance(step, T.RandomApply):
        children = tuple(meaning(child) for child in step.transforms)
        return children[0] if step.p == 1.0 and len(children) == 1 else ("RandomApply", step.p, children)
    parameters = vars(step)
    if isinstance(step, T.ColorJitter):
        parameters = {name: ends_of(name, given) for name, given in parameters.items()}
    if isinstance(step, T.RandomCrop) and isinstance(step.padding, int):
        parameters = {**parameters, "padding": (step.padding,) * 4}
    return type(step).__name__, *(rounded(parameters[name]) for name in sorted(parameters))


def ends_of(name: str, given: Any) -> Any:
    """Return the range of a factor if a single number gives its extent."""
    centre = 0.0 if name == "hue" else 1.0
    return (max(centre - given, centre - 1.0), centre + given) if isinstance(given, float) else given


def rounded(value: Any) -> Any:
    """Return numbers rounded like 32-bit floats and logarithms."""
    if isinstance(value, tuple):
        return tuple(map(rounded, value))
    return round(value, 6) if isinstance(value, float) else value


def lists_of(transforms: Any) -> list[list[T.Transform]]:
    """Return the list of each view."""
    if isinstance(transforms, T.Views):
        return [list(transforms.transforms)] * transforms.n
    if all(isinstance(item, T.Views) for item in transforms):
        return [view for item in transforms for view in lists_of(item)]
    return [list(transforms)]


def meanings(steps: list[T.Transform]) -> list[tuple[Any, ...]]:
    """Return the normal form of a list."""
    return [said for step in steps if (said := meaning(step)) is not None]


def taken_over(transform: Any) -> list[T.Transform]:
    """Return Foreload's list for a transform of torchvision's or timm's."""
    with warnings.catch_warnings():
        # Some transforms are for Pillow's images, which gives a warning.
        warnings.simplefilter("ignore", foreload.Warning)
        return _transform_reader.read(transform)


@pytest.mark.parametrize("name", list(references.CONTESTS))
def test_a_recipe_says_what_its_source_says(name: str) -> None:
    if name.startswith("deit"):
        of_timm("timm.data")
    contest = references.CONTESTS[name]
    recipe = contest.recipe()
    views = lists_of(recipe["transforms"])
    for view in contest.views():
        # These transforms take tensors of uint8, except timm's, which state that they take Pillow's images.
        steps = view.transform if view.of_pillow else v2.Compose([v2.ToImage(), view.transform])
        said = meanings(views[view.output])
        assert said == meanings(taken_over(steps))
        # The features use this to turn images back into levels.
        mean, std = view.normalised
        assert view.normalised == references.LEVELS or ("Normalize", rounded(mean), rounded(std)) in said
    if contest.mix is not None:
        ((choice,), theirs) = (recipe["mix"], contest.mix())
        assert [type(mix).__name__ for mix in choice.transforms] == ["MixUp", "CutMix"]
        assert choice.p is None
        assert [mix.alpha for mix in choice.transforms] == (
            [mix.alpha for mix in theirs.transforms]
            if isinstance(theirs, v2.RandomChoice)
            else [theirs.mixup_alpha, theirs.cutmix_alpha]
        )


# The arguments of each source for timm's `create_transform`, in addition to those that they share.
OF_TIMM = {
    # facebookresearch/deit, main.py.
    "deit": {"color_jitter": 0.3},
    # facebookresearch/ConvNeXt, main.py.
    "convnext": {"color_jitter": 0.4},
    # microsoft/Swin-Transformer, config.py.
    "swin": {"color_jitter": 0.4},
}


@pytest.mark.parametrize("name", OF_TIMM)
def test_recipes_of_timm_are_what_their_arguments_make(name: str) -> None:
    create = of_timm("timm.data").create_transform
    recipe = getattr(recipes, name)(num_classes=1000)
    train = create(
        input_size=224,
        is_training=True,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        re_prob=0.25,
        re_mode="pixel",
        re_count=1,
        **OF_TIMM[name],
    )
    assert meanings(recipe["transforms"]) == meanings(taken_over(train))
    evaluation = create(input_size=224, interpolation="bicubic", crop_pct=224 / 256)
    assert meanings(recipe.eval()["transforms"]) == meanings(taken_over(evaluation))


def of_convnext(size: int) -> list[Any]:
    """Return the evaluation transforms of facebookresearch/ConvNeXt, datasets.py."""
    if size >= 384:
        return [v2.Resize((size, size), references.BICUBIC)]
    return [v2.Resize(int(size / (224 / 256)), references.BICUBIC), v2.CenterCrop(size)]


def of_mae(size: int) -> list[Any]:
    """Return the evaluation transforms of facebookresearch/mae, util/datasets.py."""
    share = 224 / 256 if size <= 224 else 1.0
    return [v2.Resize(int(size / share), references.BICUBIC), v2.CenterCrop(size)]


@pytest.mark.parametrize("size", [160, 224, 225, 320, 384, 512])
def test_recipes_evaluate_any_size_as_their_sources_do(size: int) -> None:
    for recipe, geometry in [
        (recipes.convnext(num_classes=1000, size=size), of_convnext(size)),
        (recipes.mae(size=size), of_mae(size)),
    ]:
        theirs = v2.Compose([v2.ToImage(), *geometry, *references.finish()])
        assert meanings(recipe.eval()["transforms"]) == meanings(taken_over(theirs))


def test_torchvisions_weights_say_how_they_are_evaluated() -> None:
    preset = torchvision.models.ResNet50_Weights.IMAGENET1K_V2.transforms()
    recipe = recipes.resnet50_reference(num_classes=1000)
    assert meanings(recipe.eval()["transforms"]) == meanings(taken_over(preset))


@pytest.mark.parametrize("name", ["resnet50_reference, mixed", "moco_v3", "mae"])
def test_a_recipe_makes_what_its_source_makes(dataset: Path, name: str) -> None:
    contest = references.CONTESTS[name]
    views = list(outputs.contest_of(dataset, contest, EXCHANGES, 5, ["exact", "fast"]))
    assert [(view["decode"], view["view"]) for view in views] == [
        (decode, view.output) for decode in ("exact", "fast") for view in contest.views()
    ]
    for view in views:
        assert view["photographs"] == (15 if contest.mix else 60)
        for statistic, p in view["p"].items():
            assert p > 0.002 or view["decode"] == "fast", statistic


def test_a_recipe_that_is_wrong_is_found_out(dataset: Path) -> None:
    wrong = references.Contest(recipes.moco_v3, lambda: references.moco_v3_second(grey=0.9, jitter_p=0.0))
    (view,) = outputs.contest_of(dataset, wrong, EXCHANGES, 5)
    assert min(view["p"].values()) == 1 / (EXCHANGES + 1)


def test_the_reports_say_what_is_off() -> None:
    machine = {"processor": "P", "simd": [], "cores": 2, "memory_bytes": 2**30, "system": "S", "kernel": "K"}
    common = {
        "machine": machine | {"date": "D", "commit": "C", "command": "run.py"},
        "data": "folder",
        "images": 2,
        "seed": 0,
        "requirements": ["torch==1", "torchvision==2"],
    }
    rule = {"title": "blur", "largest": 1, "share": 0.003, "of_pixels": False, "beyond": 0}
    step = {"images": 2, "largest": 1.0, "share": 0.001, "share_beyond_1": 0.0, "allowed": rule, "met": True}
    line = {"name": "GaussianBlur", "steps": [step], "whole": {**step, "largest": 5.0}}
    far = {**step, "largest": 2.0, "met": False}
    text, met = tables.of_ops(common | {"sizes": [9, 5], "transforms": [line, {**line, "steps": [far]}]})
    assert not met
    assert "| GaussianBlur | blur | 4 | 2 | 1.0e-03 | 0 | ≤ 1, ≤ 0.003 of values | NO |" in text
    assert "| GaussianBlur | 4 | 5 |" in text
    view = {
        "view": 0,
        "decode": "exact",
        "mean_difference": 0.1,
        "standard_error": 0.2,
        "variance_ratio": 1.0,
    }
    usual = dict.fromkeys(tables.STATISTICS, 0.5)
    near, off = ({"commit": "C", "views": [{**view, "p": p}]} for p in (usual, usual | {"looks, mean": 1e-5}))
    result = common | {"exchanges": 99, "recipes": {"mae": near}, "wrong": {"mae: other": off}}
    text, met = tables.of_outputs(result)
    assert met
    assert "| mae: other | 1.0e-05 | looks, mean | yes |" in text
    assert not tables.of_outputs(result | {"recipes": {"mae": off}})[1]
    text, met = tables.of_outputs(result | {"wrong": {"mae: other": near}})
    assert met
    assert "| mae: other | 5.0e-01 | blocks, covariance | no |" in text
