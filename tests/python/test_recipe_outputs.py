"""benches/transforms: its paired test is exact and finds things, its features say what they should, and a small run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from foreload import recipes

if os.environ.get("FORELOAD_REQUIRE_FRAMEWORKS") != "1":
    pytest.importorskip(
        "torchvision",
        reason="torchvision is not installed; make test-frameworks has it, FORELOAD_REQUIRE_FRAMEWORKS=1 makes "
        "this a failure",
    )

import torch

HERE = Path(__file__).resolve().parents[2] / "benches" / "transforms"
sys.path += [str(HERE), str(HERE.parent / "compare")]
import features  # noqa: E402
import outputs  # noqa: E402
import paired  # noqa: E402
import references  # noqa: E402
import tables  # noqa: E402

EXCHANGES = 999


def made(random: np.random.Generator, photographs: np.ndarray, spread: float = 1.0) -> np.ndarray:
    """Return features of two images of each photograph: its own, and skewed noise that all share in part."""
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
    # The same spread, in which dimensions go different ways.
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
    # The lower half is grey, and a pixel of the upper one.
    assert looks[9] == pytest.approx(0.5, abs=0.02)
    assert looks[10] == pytest.approx(2.5 / 3 / 31, abs=1e-4)
    # The photograph is not like its mirror image, and a mirrored one is just as far away; upside down it is likewise.
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


@pytest.mark.parametrize("name", ["resnet50_reference, mixed", "moco_v3", "mae"])
def test_a_recipe_makes_what_its_source_makes(dataset: Path, name: str) -> None:
    contest = references.CONTESTS[name]
    views = list(outputs.contest_of(dataset, contest, EXCHANGES, 5, ["exact", "fast"]))
    assert [(view["decode"], view["view"]) for view in views] == [
        (decode, view.output) for decode in ("exact", "fast") for view in contest.views()
    ]
    for view in views:
        assert view["photographs"] == (30 if contest.mix else 60)
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
