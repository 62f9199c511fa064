"""benches/streams: its aims for streams, the report, and the smallest run of the whole benchmark."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import benchmarks
import pytest
from conftest import ONLY_THOROUGH, paths

stream_verdicts, wire = (benchmarks.load("streams", name) for name in ("stream_verdicts", "wire"))
from harness import report  # noqa: E402
from harness.environments import Unavailable  # noqa: E402
from harness.rounds import Standing  # noqa: E402

NAMES = ("epochs", "folder", "redis", "folder-rehearsal", "redis-rehearsal", "usual-folder", "usual-redis")
SETTINGS = {
    "images": 1000,
    "image_size": 224,
    "batch_size": 64,
    "threads": 2,
    "rounds": 1,
    "capacity": 100,
    "load": 0.7,
    "seeds": 2,
}


def standing(cpu_seconds: float, rate: float, **more: float) -> Standing:
    """A run of 1 000 images that took this much CPU time, at this many images per second."""
    run = {
        "images": 1000,
        "seconds": 1000 / rate,
        "cpu_seconds": cpu_seconds,
        "mean": [0.0] * 3,
        "std": [1.0] * 3,
    }
    return Standing([run | more])


def summary(**changed: Standing) -> dict:
    """The summary of all entrants, some of which are `changed`."""
    server = {"producer_cpu_seconds": 0.05, "server_cpu_seconds": 0.1}
    held = dict(
        zip(
            NAMES,
            (
                standing(0.4, 5000),
                standing(0.4, 4600, producer_cpu_seconds=0.01, server_cpu_seconds=0.0),
                standing(0.48, 4000, **server),
                standing(0.5, 4000),
                standing(0.5, 4000),
                standing(2.0, 1000),
                standing(2.5, 800),
            ),
            strict=True,
        )
    )
    held |= {name.replace("_", "-"): instead for name, instead in changed.items()}
    return stream_verdicts.summarise(held, {name: name for name in held})


def told(**parts: dict) -> str:
    """Return the report of some parts."""
    return stream_verdicts.as_text({"machine": report.machine(), "settings": SETTINGS, **parts})


def test_streams_are_measured_by_epochs_and_by_the_usual_way() -> None:
    speed = summary()
    assert speed["folder_speed"] == pytest.approx(0.92)
    assert speed["redis_cpu"] == pytest.approx(1.2)
    assert not stream_verdicts.missed({"speed": speed})
    assert [(each["own"], each["rival"]) for each in speed["beside"]] == [
        ("folder-rehearsal", "usual-folder"),
        ("redis-rehearsal", "usual-redis"),
    ]
    assert speed["beside"][1]["faster"] == pytest.approx(5)
    assert speed["beside"][1]["less_cpu"] == pytest.approx(5)
    text = told(speed=speed)
    assert "From a growing directory: 0.92 of the epoch pipeline's images a second, asked 0.9: met" in text
    assert "| redis | 4000 (4000-4000) | 0.48 (0.48-0.48) | 0.05 | 0.10 |" in text
    slower = summary(folder=standing(0.4, 4400), redis=standing(0.6, 4000))
    assert stream_verdicts.missed({"speed": slower})
    assert told(speed=slower).count("MISSED") == 2


def test_who_fails_has_a_reason_and_only_our_own_failures_count() -> None:
    speed = summary(usual_folder=Standing(failure="no such module"))
    assert [each["own"] for each in speed["beside"]] == ["redis-rehearsal"]
    assert "not measured: no such module" in told(speed=speed)
    assert not stream_verdicts.failed({"speed": speed})
    assert stream_verdicts.failed({"speed": summary(redis=Standing(failure="it ended"))})
    assert stream_verdicts.failed({"memory": {"folder": {"failure": "it ended"}}})


def test_memory_may_not_grow_and_a_buffer_must_come_back_whole_and_soon() -> None:
    looks = [{"samples": 10 * number, "resident_bytes": size} for number, size in enumerate((100, 140, 108))]
    run = {"looks": looks, "mean_bytes": 2000, "seconds": 3.0}
    assert stream_verdicts.judge_memory(run)["met"]
    looks[-1]["resident_bytes"] = 112
    grown = stream_verdicts.judge_memory(run)
    assert not grown["met"]
    assert "Growth 1.12, asked 1.1 at most: MISSED" in told(memory={"folder": grown})
    filled = {"saving_seconds": 0.1}
    good = [{"kept": 50, "rehearsed": 3, "seconds": seconds} for seconds in (0.5, 0.9, 1.5)]
    restored = stream_verdicts.judge_restoring(filled, good, 50)
    assert "| 50 | 0.10 | 0.90 (0.50-1.50) | met |" in told(restoring={"50": restored})
    with pytest.raises(Unavailable, match="49 of 50"):
        stream_verdicts.judge_restoring(filled, [*good, {"kept": 49, "rehearsed": 3, "seconds": 0.1}], 50)


def test_what_rehearsal_brings_is_judged_over_the_classes_of_earlier_tasks() -> None:
    def run(first: float, last: float) -> list[list[float]]:
        return [[90.0, 90.0], [first, first, last, last]]

    runs = {
        "without rehearsal": [run(0, 90), run(2, 90)],
        "with rehearsal": [run(50, 70), run(48, 70)],
        "plain reservoir": [run(49, 10), run(50, 10)],
    }
    learned = stream_verdicts.judge_learning({"runs": runs, "kept": 5, "images": 100})
    assert (learned["gain"]["mean"], learned["beside_plain"]["mean"]) == (48, -0.5)
    assert learned["met"]
    assert learned["within_noise"]
    text = told(learning={"old classes": learned})
    assert "| 2 | 45.5, old 1.0 | 59.5, old 49.0 | 29.8, old 49.5 |" in text
    assert "rehearsal brings +48.0 ± 25.4 points (+46.0 to +50.0 by seed), asked 20: met" in text


@ONLY_THOROUGH
def test_all_of_it_at_its_smallest(dataset: Path, tmp_path: Path) -> None:
    """With a server if there is one; the usual way and torch are skipped."""
    data = shutil.copytree(dataset, tmp_path / "images")
    entrants = ["epochs", "folder", "folder-rehearsal"]
    server = wire.RedisServer(tmp_path / "server")
    if server.program is not None:
        entrants += ["redis", "redis-rehearsal"]
    elif os.environ.get("FORELOAD_REQUIRE_REDIS") == "1":
        pytest.fail(wire.NONE)
    words = ["--data", data, "--entrants", *entrants, "--rounds", 1, "--epochs", 8, "--warmup", 2]
    words += ["--batch-size", 8, "--image-size", 24, "--capacity", 20, "--seconds", 0.3, "--samples", 5000]
    words += [
        "--kept",
        500,
        "--parts",
        "speed",
        "latency",
        "memory",
        "restoring",
        "--output",
        tmp_path / "kept",
    ]
    words += ["--foreload-python", sys.executable, "--envs", tmp_path / "envs"]
    done = subprocess.run(
        [sys.executable, *map(str, (benchmarks.BENCHES / "streams" / "run.py", *words))],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "kept.json").read_text())
    speed = result["speed"]["entrants"]
    assert list(speed) == entrants
    assert all(entry["images_per_s"]["median"] > 0 for entry in speed.values()), speed
    assert set(result["latency"]) == {"folder", "redis"} & set(entrants)
    for source in result["latency"].values():
        assert 0 < source["latency_p50_seconds"] <= source["latency_p99_seconds"]
        assert 0 < source["clocked_p50_seconds"] <= source["clocked_p99_seconds"]
    for run in result["memory"].values():
        assert len(run["looks"]) == 10
        assert run["looks"][-1]["samples"] >= 5000
    assert result["restoring"]["500"]["kept"] == 500
    assert "## Going on from a state" in (tmp_path / "kept.md").read_text()
    assert len(paths(data)) == 60, "the data is left alone"
    assert not (tmp_path / "streams").exists()
