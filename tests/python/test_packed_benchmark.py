"""The comparison of packed shards in benches/compare: ratios of medians, and verdicts on the required results of
packing.
"""

from __future__ import annotations

import benchmarks
import pytest

packed = benchmarks.load("compare", "packed")
from harness.rounds import Standing  # noqa: E402

SIZES = {"jpeg": 1000, "packed": 1250, "ffcv-raw": 9000}


def standing(cpu_seconds: float, rate: float, pictures: bool = True) -> Standing:
    """A run of 1 000 images that took this much CPU time, at this many images per second."""
    run = {"images": 1000, "seconds": 1000 / rate, "cpu_seconds": cpu_seconds}
    return Standing([run | ({"mean": [0.0] * 3, "std": [1.0] * 3} if pictures else {})])


def summary(vbmi2: bool = True, **changed: Standing) -> dict:
    """The summary of a whole run in which some lines are `changed`."""
    standings = {
        "packed-fast": standing(0.15, 11000),
        "jpeg-fast": standing(0.4, 4500),
        "packed-exact": standing(0.2, 9000),
        "jpeg-exact": standing(0.4, 4500),
        "packed-fast-avx2": standing(0.3, 6000),
        "jpeg-fast-avx2": standing(0.4, 4500),
        "packed-exact-avx2": standing(0.2, 6000),
        "jpeg-exact-avx2": standing(0.4, 4500),
        "dali": standing(1.5, 1200),
        "torchvision-io": standing(1.2, 1000),
        "ffcv-raw": standing(0.5, 3000),
        "files-packed": standing(0.5, 3000, pictures=False),
        "files-jpeg": standing(0.02, 30000, pictures=False),
        "pack": standing(1.6, 1200, pictures=False),
    } | {name.replace("_", "-"): instead for name, instead in changed.items()}
    assert standings.keys() == packed.ENTRANTS.keys()
    return packed.summarise(standings, SIZES, vbmi2)


def verdicts(result: dict) -> dict[str, tuple[float | None, bool | None]]:
    """The aims by their subjects."""
    return {aim["what"]: (aim["measured"], aim["met"]) for aim in result["aims"]}


def test_ratios_are_to_the_same_line_on_jpegs_and_to_the_best_peer() -> None:
    result = summary()
    fast = result["entrants"]["packed-fast"]
    assert fast["beside_jpeg"] == pytest.approx(0.375)
    # torchvision.io uses less CPU time; DALI is faster.
    assert fast["less_cpu"] == pytest.approx(8)
    assert fast["faster"] == pytest.approx(11000 / 1200)
    assert "beside_jpeg" not in result["entrants"]["jpeg-fast"]
    assert "less_cpu" not in result["entrants"]["pack"]
    assert result["rebuilding_ms"] == pytest.approx(0.48)


def test_each_aim_has_its_own_bound() -> None:
    judged = list(verdicts(summary()).values())
    assert [met for _, met in judged] == [True, False, False, True, True, False, True, True, True, True]
    assert [round(measured, 3) for measured, _ in judged] == [
        0.375, 0.5, 0.75, 0.5, 8, 6, 9.167, 7.5, 1.25, 625,
    ]  # fmt: skip
    without = verdicts(summary(vbmi2=False))
    assert not any("VBMI2" in what for what in without)
    assert len(without) == len(judged) - 2


def test_what_was_not_measured_is_no_verdict() -> None:
    failed = Standing(failure="cannot be built")
    result = summary(dali=failed, torchvision_io=failed, files_packed=failed, packed_fast=failed)
    measured = verdicts(result)
    unknown = [what for what, (value, met) in measured.items() if value is None and met is None]
    assert len(unknown) == 5
    assert result["rebuilding_ms"] is None
    machine = dict.fromkeys(("processor", "system", "kernel", "date", "commit", "command"), "")
    machine |= {"simd": [], "cores": 2, "memory_bytes": 2**30}
    settings = {"batch_size": 64, "threads": 2, "epochs_before": 1, "rounds": 1}
    dataset = {"data": "folder", "images": 4000, "sizes": SIZES, **result}
    text = packed.as_text({"machine": machine, "settings": settings, "datasets": [dataset]})
    assert "not measured: cannot be built" in text
    assert (
        "FFCV, raw pixels, resized when written \\* | 3000 (3000-3000) | 0.500 (0.500-0.500) |  |  |  | 9.000"
        in text
    )
