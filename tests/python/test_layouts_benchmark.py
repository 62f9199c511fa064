"""benches/layouts: ratios to the best peer of a layout, verdicts, and datasets of many links to one shard."""

from __future__ import annotations

import json
from pathlib import Path

import benchmarks
import pytest

layouts, making = benchmarks.load("layouts"), benchmarks.load("layouts", "making")
from harness import report  # noqa: E402
from harness.rounds import Standing  # noqa: E402

SETTINGS = {"images": 1000, "batch_size": 64, "threads": 2, "rounds": 1}
TITLES = {"foreload": "**Foreload**", "datasets": "datasets", "datasets-pil": "datasets, Pillow"}


def standing(cpu_seconds: float) -> Standing:
    """A run of 1 000 images that took this much CPU time."""
    run = {"images": 1000, "seconds": 1.0, "cpu_seconds": cpu_seconds}
    return Standing([run | {"mean": [0.0] * 3, "std": [1.0] * 3, "shape": [64], "dtype": "float32"}])


def told(**measured: dict) -> str:
    """Return the report of some layouts."""
    result = {"machine": report.machine(), "settings": SETTINGS, "layouts": measured}
    return layouts.as_text(result)


def test_the_ratio_is_to_the_peer_that_takes_least() -> None:
    held = {"foreload": standing(0.5), "datasets": standing(1.6), "datasets-pil": standing(4)}
    summary = layouts.summarise(held, TITLES)
    assert summary["best_peer"] == "datasets"
    assert summary["less_cpu"] == pytest.approx(3.2)
    assert summary["met"]
    assert "3.20 times less CPU than datasets, asked 3: met" in told(parquet={"speed": summary})
    held["datasets"] = standing(1.4)
    slower = layouts.summarise(held, TITLES)
    assert not slower["met"]
    assert "2.80 times less CPU than datasets, asked 3: MISSED" in told(parquet={"speed": slower})


def test_who_fails_has_no_ratio_but_a_reason() -> None:
    held = {"foreload": Standing(failure="no such file"), "datasets": standing(1.6)}
    summary = layouts.summarise(held, TITLES)
    assert "less_cpu" not in summary
    assert "not measured: no such file" in told(parquet={"speed": summary})


def test_a_layout_that_is_left_out_and_one_that_is_opened_are_told() -> None:
    seconds = {
        "samples": 10,
        "indexed_seconds": 3.0,
        "opened_seconds": report.spread([1.5, 0.25, 0.5]),
        "met": True,
    }
    text = told(mds={"skipped": "holds no shards"}, tfrecord={"opening": seconds})
    assert "Left out, as Foreload does not read it: holds no shards" in text
    assert "10 samples: indexed in 3.0 s, then opened in 0.50 (0.25-1.50) s, asked 1: met" in text


def test_one_shard_lies_under_many_names_also_in_the_index_of_mds(tmp_path: Path) -> None:
    shard = tmp_path / "shard"
    shard.mkdir()
    (shard / "shard.00000.mds").write_bytes(b"samples")
    entry = {"samples": 7, "raw_data": {"basename": "shard.00000.mds", "bytes": 7}}
    (shard / "index.json").write_text(json.dumps({"version": 2, "shards": [entry]}))
    made = making.repeated(shard, 3, tmp_path / "many")
    index = json.loads((made / "index.json").read_text())
    names = [each["raw_data"]["basename"] for each in index["shards"]]
    assert len(set(names)) == 3
    assert [each["samples"] for each in index["shards"]] == [7] * 3
    assert all((made / name).read_bytes() == b"samples" for name in names)
    assert making.repeated(shard, 3, tmp_path / "many") == made
