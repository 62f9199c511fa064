"""benches/recipes and the harness of benchmarks: rounds, figures of batches, verdicts, Foreload's program."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path

import benchmarks
import foreload
import numpy as np
import pytest
from conftest import FIFTH, paths

benchmark, recipes = benchmarks.load("recipes"), benchmarks.load("recipes", "recipes")
from harness import datasets, measure, rounds  # noqa: E402
from harness.environments import Unavailable  # noqa: E402
from harness.rounds import Entrant, Program, Standing  # noqa: E402

LOADERS = {
    "foreload": ("foreload_loader", ""),
    "torchvision": ("torchvision_v2", "FORELOAD_REQUIRE_FRAMEWORKS"),
    "nvidia.dali": ("dali_cpu", "FORELOAD_REQUIRE_DALI"),
}
"""The peers' programs, and the variables that make a missing one a failure."""


def standing(*cpu_seconds: float, mean: float = 0.0, failure: str | None = None) -> Standing:
    """A loader whose runs of 1 000 images took this much CPU time."""
    look = {
        "shape": [64, 3, 224, 224],
        "dtype": "float32",
        "mean": [mean] * 3,
        "std": [1.0] * 3,
        "detail": 0.1,
    }
    runs = [{"images": 1000, "seconds": 1.0, "cpu_seconds": cpu, **look} for cpu in cpu_seconds]
    return Standing(runs, failure)


def test_medians_are_set_beside_the_best_peer_and_the_own_base() -> None:
    result = benchmark.summarise(
        {
            ("a", "torchvision"): standing(2.0),
            ("a", "foreload"): standing(0.5, 0.4, 9.0),
            ("b", "torchvision"): standing(6.0),
            ("b", "dali"): standing(2.1, mean=0.2),
            ("b", "albumentations"): standing(1.0, failure="no end"),
            ("b", "foreload"): standing(0.66),
        },
        avx512=True,
    )
    assert result["a"]["saving"] == {"ratio": 4.0, "asked": None, "met": None}
    assert result["a"]["cost"]["ratio"] == 1
    b = result["b"]
    assert b["best_peer"] == "dali"
    assert b["saving"]["ratio"] == pytest.approx(2.1 / 0.66)
    assert b["torchvision"]["ratio"] == pytest.approx(6 / 0.66)
    assert b["cost"]["ratio"] == pytest.approx(0.66 / 0.5)
    assert (b["saving"]["asked"], b["saving"]["met"]) == (3.5, False)
    assert (b["cost"]["asked"], b["cost"]["met"]) == (1.3, False)
    assert benchmark.judgements(result) == [False, False]
    # The median of 0, 0.2 and 0 is 0, and 0.2 is farther away than the tolerance.
    assert [b["peers"][peer].get("colours_agree") for peer in benchmark.PEERS] == [True, False, None, True]


def test_the_aim_without_avx512_is_another_where_vectors_matter() -> None:
    rounds = {("a", "foreload"): standing(0.5), ("b", "foreload"): standing(0.7)}
    assert benchmark.summarise(rounds, avx512=True)["b"]["cost"]["met"] is False
    assert benchmark.summarise(rounds, avx512=False)["b"]["cost"]["met"] is True


def test_avx512_is_what_foreload_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORELOAD_SIMD", raising=False)
    assert benchmark.has_avx512({"simd": ["avx2", "avx512bw", "avx512vbmi"]})
    assert not benchmark.has_avx512({"simd": ["avx2"]})
    monkeypatch.setenv("FORELOAD_SIMD", "avx2")
    assert not benchmark.has_avx512({"simd": ["avx2", "avx512bw", "avx512vbmi"]})


def test_a_report_says_what_is_missing_and_why() -> None:
    rounds = {
        ("c", "dali"): standing(2.4),
        ("c", "albumentations"): standing(failure="albumentations has no RandAugment"),
        ("c", "foreload"): standing(0.3),
    }
    machine = {"processor": "P", "simd": [], "cores": 2, "memory_bytes": 2**30, "system": "S", "kernel": "K"}
    result = {
        "machine": machine | {"date": "D", "commit": "C", "command": "run.py"},
        "settings": {"batch_size": 64, "threads": 2, "rounds": 1},
        "data": "folder",
        "images": 2048,
        "mean_bytes": 110_000.0,
        "recipes": benchmark.summarise(rounds, avx512=True),
    }
    text = benchmark.as_text(result)
    assert "| c RandAugment(2, 9) | 2.40 (2.40-2.40) | - | 0.30 (0.30-0.30) |" in text
    assert "| c RandAugment(2, 9) | DALI, CPU | 8.00 (≥ 6: met) | - | - |" in text
    assert "What was asked of Foreload: 1 of 1 met" in text
    assert "- c, albumentations + OpenCV, not measured: albumentations has no RandAugment" in text


def test_entrants_take_turns_and_those_that_fail_keep_their_reason(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def entrant(name: str, images: int) -> Program:
        line = json.dumps({"images": images, "seconds": 1, "cpu_seconds": 1, "epoch_seconds": [1]})
        return Program(
            [sys.executable, "-c", f"open({str(log)!r}, 'a').write({name!r}); print({line!r})"],
            dict(os.environ),
        )

    def missing() -> Program:
        raise Unavailable("not to be had")

    held = rounds.hold(
        {
            "A": lambda: entrant("A", 100),
            "B": lambda: entrant("B", 3),
            "C": missing,
            "D": lambda: entrant("D", 96),
        },
        lambda _name, result: rounds.check_images(result, images=100, dropped=8),
        rounds=2,
        memory=False,
        title="try",
    )
    # The second round begins with the next loader, B, which has failed.
    assert log.read_text() == "ABDDA"
    assert [len(held[name].runs) for name in "ABCD"] == [2, 0, 0, 2]
    assert held["B"].failure == "delivered 3 of 100 images"
    assert held["C"].failure == "not to be had"
    assert held["A"].figures()["cpu_seconds_per_1000"]["median"] == 10


def test_the_figures_of_batches_are_those_of_all_views() -> None:
    random = np.random.default_rng(1)
    batches = [
        ([random.normal(size=(4, 3, 8, 8)), random.normal(size=(4, 3, 5, 5))], np.zeros(4)) for _ in range(3)
    ]
    seen = measure.check_warm_up(batches, [8, 5])
    assert seen["shape"] == [[4, 3, 8, 8], [4, 3, 5, 5]]
    views = [view for images, _ in batches for view in images]
    for channel in range(3):
        values = np.concatenate([view[:, channel].ravel() for view in views])
        assert seen["mean"][channel] == pytest.approx(values.mean(), abs=1e-3)
        assert seen["std"][channel] == pytest.approx(values.std(), abs=1e-3)
    steps = np.concatenate([np.abs(np.diff(view)).ravel() for view in views])
    assert seen["detail"] == pytest.approx(steps.mean(), abs=1e-3)
    with pytest.raises(SystemExit, match="expected"):
        measure.check_warm_up(batches, [8, 8])


def test_a_part_of_a_dataset_has_images_of_all_classes(dataset: Path, tmp_path: Path) -> None:
    part = datasets.part(dataset, 12, tmp_path)
    links = paths(part)
    assert len(links) == 12
    assert [sum(1 for _ in folder.iterdir()) for folder in sorted(part.iterdir())] == [4, 4, 4]
    assert all(link.read_bytes() == (dataset / link.relative_to(part)).read_bytes() for link in links)
    assert datasets.part(dataset, 60, tmp_path) == dataset


@FIFTH
@pytest.mark.parametrize("letter", recipes.RECIPES)
@pytest.mark.parametrize("loader", LOADERS)
def test_a_loader_runs_the_recipe(loader: str, letter: str, dataset: Path, tmp_path: Path) -> None:
    program, required = LOADERS[loader]
    if not installed(loader) and os.environ.get(required) != "1":
        pytest.skip(f"{loader} is not installed; {required}=1 makes this a failure")
    chosen = argparse.Namespace(threads=1, warmup=2, batch_size=8, envs=tmp_path)
    chosen.foreload_python = Path(sys.executable)
    source = benchmarks.BENCHES / "recipes" / "peers" / f"{program}.py"
    made = Entrant(loader, source, variant=letter).program(dataset, chosen)
    made.variables["PYTHONPATH"] += f":{Path(foreload.__file__).parents[1]}"
    if loader == "nvidia.dali" and recipes.RECIPES[letter].mixing:
        with pytest.raises(Unavailable, match="DALI has no MixUp and no CutMix"):
            made.run()
        return
    result, _ = made.run()
    rounds.check_images(result, images=60, dropped=8)
    sides = [view.side for view in recipes.RECIPES[letter].views]
    shapes = result["shape"] if len(sides) > 1 else [result["shape"]]
    assert shapes == [[8, 3, side, side] for side in sides]
    assert result["dtype"] == "float32"
    # The values are normalised, so their means are near 0.
    assert all(abs(mean) < 1.5 for mean in result["mean"])


def installed(module: str) -> bool:
    """Whether a module can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
