"""benches/accuracy: its arithmetic, its check for CIFAR-10, and a small run of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import frameworks
import numpy as np
import pytest
from conftest import ONLY_THOROUGH

HERE = frameworks.ROOT / "benches" / "accuracy"
sys.path.append(str(HERE))
import fetch  # noqa: E402
import summary  # noqa: E402
from harness import aims  # noqa: E402
from PIL import Image  # noqa: E402


def test_a_paired_difference_has_students_interval() -> None:
    entry = summary.paired([71.0, 72.0, 73.0, 74.0, 75.0], [70.0] * 5, half_width=0.3)
    assert entry["mean"] == pytest.approx(3)
    # 2.776 is the value of t's distribution with 4 degrees of freedom; it is multiplied by sqrt(2.5 / 5).
    assert entry["interval"] == pytest.approx([3 - 1.963, 3 + 1.963], abs=1e-3)
    assert entry["half_width"] == pytest.approx(1.963, abs=1e-3)
    assert entry["deviation"] == pytest.approx(2.5**0.5)
    assert not entry["includes_zero"]
    assert not entry["decided"]
    near = summary.paired([70.1, 70.0, 70.2], [70.1, 70.1, 70.1], half_width=0.3)
    assert near["includes_zero"]
    assert near["decided"]


def test_students_t_goes_on_where_its_table_ends() -> None:
    # These values come from tables of the distribution.
    known = {1: 12.706, 30: 2.0423, 31: 2.0395, 40: 2.0211, 60: 2.0003, 120: 1.9799, 100_000: 1.9600}
    for freedom, value in known.items():
        assert aims.student(freedom) == pytest.approx(value, abs=5e-4), freedom
    values = [aims.student(freedom) for freedom in range(1, 200)]
    assert values == sorted(values, reverse=True)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """The differences are normal around 0.2, for few seeds and for more seeds than the table of t has."""
    random = np.random.default_rng(0)
    for seeds in (4, 40):
        held = 0
        for _ in range(2000):
            least, greatest = summary.paired([*random.normal(0.2, 1, seeds)], [0.0] * seeds, half_width=0.3)[
                "interval"
            ]
            held += least <= 0.2 <= greatest
        assert 0.935 < held / 2000 < 0.965


def test_only_seeds_that_all_pipelines_ran_are_compared() -> None:
    runs = [
        {
            "pipeline": name,
            "seed": seed,
            "accuracy": 70.0 + seed,
            "own_accuracy": 70.0,
            "processor_seconds": 1.0,
        }
        for name in summary.PIPELINES
        for seed in (2, 0, 1)
    ]
    assert summary.summarise(runs, half_width=0.3)["seeds"] == [0, 1, 2]
    without = [run for run in runs if (run["pipeline"], run["seed"]) != ("fast", 1)]
    result = summary.summarise(without, half_width=0.3)
    assert result["seeds"] == [0, 2]
    assert result["pipelines"]["torchvision"]["values"] == [70.0, 72.0]
    assert summary.summarise(without[:4], half_width=0.3)["differences"] == {}


def test_other_images_are_not_taken_for_cifar10() -> None:
    pixels = np.zeros((50_000, 1, 1, 3), dtype=np.uint8)
    labels = np.arange(50_000) % 10
    with pytest.raises(SystemExit, match="not CIFAR-10: train: images: 20, must be 50000"):
        fetch.check({"train": (pixels[:20], labels[:20])})
    with pytest.raises(SystemExit, match="not CIFAR-10: train: first labels"):
        fetch.check({"train": (pixels, labels)})
    first = fetch.FIRST_LABELS["train"]
    labels = np.concatenate([first, np.delete(labels, [list(labels).index(label) for label in range(10)])])
    with pytest.raises(SystemExit, match="not CIFAR-10: train: images a class"):
        fetch.check({"train": (pixels, labels)})


def test_a_split_keeps_all_images_and_their_classes(tmp_path: Path) -> None:
    # Each image is as bright as its number.
    grey = {"train": range(30), "val": range(30, 50)}
    splits = {
        name: (np.array([np.full((8, 8, 3), 5 * level, np.uint8) for level in levels]), np.array(levels) % 10)
        for name, levels in grey.items()
    }
    fetch.write(splits, 20, tmp_path / "images")
    for name, numbers in (("train", range(20)), ("val", range(20, 50))):
        files = {int(path.stem): path for path in (tmp_path / "images" / name).glob("*/*.jpg")}
        assert sorted(files) == list(numbers)
        for number, path in files.items():
            assert path.parent.name == fetch.CLASSES[number % 10]
            assert np.abs(np.asarray(Image.open(path)) - 5.0 * number).max() <= 1


def command(output: Path, *arguments: object) -> list[str]:
    """The command of the benchmark at its smallest."""
    words = [sys.executable, HERE / "run.py", "--smoke", output.parent / "images", "--output", output]
    return [str(word) for word in (*words, "--jobs", 1, *arguments)]


def run(output: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the benchmark until it is done."""
    return subprocess.run(
        command(output, *arguments),
        env=frameworks.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def trained(log: str) -> list[str]:
    """Return the runs that a log mentions."""
    return [line.split(":")[0] for line in log.splitlines() if "%" in line]


@ONLY_THOROUGH
@pytest.mark.timeout(400)
def test_a_small_run_is_killed_and_goes_on(tmp_path: Path) -> None:
    python = frameworks.interpreter()
    output = tmp_path / "accuracy"
    kept = output.with_suffix(".json")
    # It is killed when it has reported the end of the second run.
    with subprocess.Popen(
        command(output, "--python", python),
        env=frameworks.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as begun:
        said = []
        while len(trained("".join(said))) < 2 and (line := begun.stderr.readline()):
            said.append(line)
        begun.kill()
        said += begun.stderr.readlines()
    before = json.loads(kept.read_text())["runs"]
    assert len(before) >= 2, said
    assert "Too few to compare" in output.with_suffix(".md").read_text()

    done = run(output, "--python", python)
    assert done.returncode == 0, done.stderr
    result = json.loads(kept.read_text())
    everything = [f"{name}, seed {seed}" for seed in range(2) for name in summary.PIPELINES]
    assert trained(done.stderr) == everything[len(before) :]
    assert result["runs"][: len(before)] == before
    runs = {f"{entry['pipeline']}, seed {entry['seed']}": entry for entry in result["runs"]}
    assert list(runs) == everything
    assert all(entry["steps"] == 32 and entry["classes"] == 4 for entry in runs.values())
    assert all(entry["commit"] and entry["processor"] and entry["torch"] for entry in runs.values())
    # By chance it would be 25.
    assert np.mean([entry["accuracy"] for entry in runs.values()]) > 40
    assert output.with_suffix(".md").read_text().strip() == done.stdout.strip()
    assert result["summary"] == summary.summarise(result["runs"], half_width=0.3)

    # The seed determines the training; a run of an earlier commit is not changed; more seeds are added.
    lost = result["runs"].pop(4)
    result["runs"][0]["commit"] = "0123456789ab"
    # A result from before there were recipes can be continued, too.
    assert result["settings"].pop("recipe") == "plain"
    kept.write_text(json.dumps(result))
    done = run(output, "--python", python, "--first-seed", 1)
    assert trained(done.stderr) == ["exact, seed 1", *(f"{name}, seed 2" for name in summary.PIPELINES)]
    again = json.loads(kept.read_text())
    assert again["runs"][:5] == result["runs"]
    assert {**again["runs"][5], **{name: lost[name] for name in ("date", "processor_seconds")}} == lost
    assert "commit 0123456789ab, " in done.stdout
    assert again["summary"]["seeds"] == [0, 1, 2]

    # If all runs are done, no interpreter is needed.
    assert run(output, "--python", tmp_path / "none").returncode == 0

    result = json.loads(kept.read_text())
    for name, other in [
        ("settings", {**result["settings"], "epochs": 3}),
        ("settings", {**result["settings"], "recipe": "strong"}),
        ("dataset", "others"),
        ("images", {"train": 255, "val": 64}),
    ]:
        kept.write_text(json.dumps({**result, name: other}))
        done = run(output, "--python", tmp_path / "none")
        assert done.returncode != 0
        assert f"accuracy.json: {name}: was " in done.stderr


@ONLY_THOROUGH
@pytest.mark.timeout(400)
def test_a_small_run_of_the_strong_recipe(tmp_path: Path) -> None:
    output = tmp_path / "accuracy"
    done = run(output, "--recipe", "strong", "--python", frameworks.interpreter())
    assert done.returncode == 0, done.stderr
    assert "MixUp(0.2); 2 seeds that all pipelines ran" in done.stdout
    result = json.loads(output.with_suffix(".json").read_text())
    assert len(result["runs"]) == 2 * len(summary.PIPELINES)
    assert all(entry["steps"] == 32 for entry in result["runs"])
    # By chance it would be 25. Mixed labels are soft, so the loss cannot reach 0.
    assert np.mean([entry["accuracy"] for entry in result["runs"]]) > 30
    assert all(entry["last_loss"] > 0.1 for entry in result["runs"])
