"""benches/accuracy: its arithmetic, what it takes for CIFAR-10, and a small run of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import frameworks
import numpy as np
import pytest

HERE = frameworks.ROOT / "benches" / "accuracy"
sys.path.append(str(HERE))
import fetch  # noqa: E402
import summary  # noqa: E402


def test_a_paired_difference_has_students_interval() -> None:
    entry = summary.paired([71.0, 72.0, 73.0, 74.0, 75.0], [70.0] * 5)
    assert entry["mean"] == pytest.approx(3)
    # 2.776 of t's distribution with 4 degrees of freedom, times sqrt(2.5 / 5).
    assert entry["interval"] == pytest.approx([3 - 1.963, 3 + 1.963], abs=1e-3)
    assert not entry["includes_zero"]
    assert not entry["within_tolerance"]
    near = summary.paired([70.1, 70.0, 70.2], [70.1, 70.1, 70.1])
    assert near["includes_zero"]
    assert near["within_tolerance"]


def test_only_seeds_that_all_pipelines_ran_are_compared() -> None:
    runs = [
        {"pipeline": name, "seed": seed, "accuracy": 70.0 + seed, "own_accuracy": 70.0}
        for name in summary.PIPELINES
        for seed in (2, 0, 1)
    ]
    assert summary.summarise(runs)["seeds"] == [0, 1, 2]
    without = [run for run in runs if (run["pipeline"], run["seed"]) != ("fast", 1)]
    result = summary.summarise(without)
    assert result["seeds"] == [0, 2]
    assert result["pipelines"]["torchvision"]["values"] == [70.0, 72.0]
    assert summary.summarise(without[:4])["differences"] == {}


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


def run(output: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The benchmark at its smallest."""
    command = [sys.executable, HERE / "run.py", "--smoke", output.parent / "images", "--output", output]
    return subprocess.run(
        [str(word) for word in (*command, "--jobs", 1, *arguments)],
        env=frameworks.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def test_a_small_run_is_interrupted_and_goes_on(tmp_path: Path) -> None:
    python = frameworks.interpreter()
    output = tmp_path / "accuracy"
    done = run(output, "--python", python)
    assert done.returncode == 0, done.stderr
    result = json.loads(output.with_suffix(".json").read_text())
    runs = {(entry["pipeline"], entry["seed"]): entry for entry in result["runs"]}
    assert sorted(runs) == sorted((name, seed) for name in summary.PIPELINES for seed in range(2))
    assert all(entry["steps"] == 32 and entry["classes"] == 4 for entry in runs.values())
    # Chance is 25.
    assert np.mean([entry["accuracy"] for entry in runs.values()]) > 40
    assert output.with_suffix(".md").read_text().strip() == done.stdout.strip()

    # As if it had been interrupted before the last.
    partial = tmp_path / "accuracy.partial.json"
    assert not partial.exists()
    kept = [entry for entry in result["runs"] if (entry["pipeline"], entry["seed"]) != ("exact", 1)]
    begun = {**result["machine"], "date": "yesterday"}
    rest = {"machine": begun, "runs": kept}
    partial.write_text(json.dumps({**result, **rest}))
    done = run(output, "--python", python)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines() if "%" in line] == ["exact, seed 1"]
    again = json.loads(output.with_suffix(".json").read_text())
    # The seed decides all.
    assert again["runs"][-1] == runs["exact", 1]
    assert again["machine"] == begun
    assert not partial.exists()

    # With nothing left to do, no interpreter is needed.
    partial.write_text(json.dumps(result))
    assert run(output, "--python", tmp_path / "none").returncode == 0
    for name, other in [
        ("settings", {**result["settings"], "epochs": 3}),
        ("dataset", "others"),
        ("images", {"train": 255, "val": 64}),
        ("processor", {**begun, "processor": "another"}),
        ("commit", {**begun, "commit": "0123456789ab"}),
    ]:
        changed = {"machine" if name in begun else name: other}
        partial.write_text(json.dumps({**result, **changed}))
        done = run(output, "--python", tmp_path / "none")
        assert done.returncode != 0
        assert f"accuracy.partial.json: {name}: was " in done.stderr
