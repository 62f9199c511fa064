"""The parts of the GPU kit that work without a GPU: clear messages about missing things, verdicts on measurements."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ONLY_ALL

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / "benches" / "gpu"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests import the kit's scripts."""
    monkeypatch.syspath_prepend(str(ROOT / "benches"))
    monkeypatch.syspath_prepend(str(KIT))


def run(*command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command that must not see a GPU, even if there is one."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHON": sys.executable} | variables
    words = [str(word) for word in command]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


@ONLY_ALL
def test_without_a_gpu_it_fails_clearly(tmp_path: Path) -> None:
    done = run(KIT / "run.sh", "all", "--minutes", "10", "--out", tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    result = json.loads((tmp_path / "results.json").read_text())
    parts = result["parts"]
    assert list(parts) == ["install", "probe", "doctor", "tests", "parity", "arrays", "stress", "bench"]
    assert parts["probe"]["problems"][0] == "no GPU to probe"
    assert parts["doctor"]["problems"][0].startswith("the CPU is chosen: ")
    assert "foreload" in parts["doctor"]["text"]
    assert "make gpu-kit" in parts["install"]["problems"][0]
    assert "tests failed or were skipped" in parts["tests"]["problems"][0]
    assert parts["tests"]["data"]["tests"] > 50
    assert parts["tests"]["data"]["passed"] == 0
    assert "FORELOAD_REQUIRE_GPU=1, but" in parts["tests"]["problems"][1]
    assert "no GPU to compare with" in parts["parity"]["problems"][0]
    assert "no GPU to stress" in parts["stress"]["problems"][0]
    assert "no GPU that torch can use" in parts["bench"]["problems"][0]
    assert "no GPU to stress" in (tmp_path / "log.txt").read_text()
    assert "| doctor | the CPU is chosen: " in (tmp_path / "results.md").read_text()


def test_some_parts_alone(tmp_path: Path) -> None:
    done = run(KIT / "run.sh", "parity", "--minutes", "1", "--out", tmp_path)
    assert done.returncode == 1
    assert list(json.loads((tmp_path / "results.json").read_text())["parts"]) == [
        "install",
        "doctor",
        "parity",
    ]
    assert run(KIT / "run.sh", "nonsense").returncode == 2
    again = run(KIT / "run.sh", "parity", "--minutes", "1", "--out", tmp_path)
    assert again.returncode == 2
    assert "results of another run" in again.stderr


def test_folders_are_found_from_wherever_they_were_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import kit

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["kit.py", "checks", "--dali", "site", "--out", "results"])
    chosen = kit.parse_arguments()
    assert (chosen.dali, chosen.out, chosen.rehearse) == (tmp_path / "site", tmp_path / "results", None)
    assert chosen.parts == ["install", "probe", "doctor", "tests", "parity", "arrays", "stress"]


def test_the_packed_scripts_run_where_they_are_put(tmp_path: Path) -> None:
    import pack

    pack.copy_scripts(tmp_path / "kit")
    done = run(tmp_path / "kit" / "run.sh", "stress", "--minutes", "1", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "no GPU to stress" in done.stdout
    assert not list((tmp_path / "kit").rglob("__pycache__/pack*"))


def standing(name: str, rate: float, cpu: float, **more: object) -> SimpleNamespace:
    """Return a peer after three rounds of one second each."""
    rounds = [
        {
            "images": round(rate * factor),
            "steps": 9,
            "seconds": 1.0,
            "cpu_seconds": cpu * rate * factor / 1000,
        }
        for factor in (0.9, 1.0, 1.2)
    ]
    counters = more.pop("counters", {})
    tuned = {"setting": "None", "tried": {}, "shape": [256, 3, 224, 224], "mean": [0.0] * 3, "std": [1.0] * 3}
    return SimpleNamespace(
        name=name,
        failure=None,
        rounds=[one | {"counters": counters} for one in rounds],
        tuned=tuned,
        training=more.get("training"),
        points=more.get("points", []),
    )


def point(backend: str, rate: float, cpu: float, **shares: int) -> dict:
    """Return a peer's response after a second with only one backend."""
    counters = {f"gpu_decoded_{name}": count for name, count in shares.items()} | {"gpu_h2d_bytes": 1}
    found = {"images": rate, "seconds": 1.0, "cpu_seconds": cpu * rate / 1000, "mean": [0.0] * 3}
    return {"told": f"backend {backend}", "backend": backend, "counters": counters, "threads": {}, **found}


def test_targets_are_judged() -> None:
    import judge
    import run as comparison

    counters = {
        "gpu_h2d_bytes": 110_000 * 9000,
        "gpu_decoded_hardware": 750,
        "gpu_decoded_cuda": 240,
        "gpu_decoded_cpu": 10,
        "gpu_decoded_again": 3,
        "gpu_decode_seconds": 0.4,
        "gpu_idle_seconds": 0.02,
    }
    training = {"images": 900, "steps": 9, "seconds": 1.0, "cpu_seconds": 0.1, "idle_share": 0.01}
    training["step_alone_seconds"] = 0.1
    standings = [
        standing("foreload-f16", 9000, 0.2, counters=counters, training=training),
        standing("dali-f16", 7000, 0.5),
        standing("torchvision-f16", 5000, 0.3),
        standing("foreload-f32", 5000, 0.4),
    ]
    missing = standing("dali-f32", 1, 1)
    missing.rounds, missing.failure = [], "nvidia.dali cannot be imported"
    summary = judge.summarise([*standings, missing], comparison.PEERS, mean_bytes=110_000)
    ours = summary["foreload-f16"]
    assert ours["best_peer"] == "dali-f16"
    assert ours["thriftiest_peer"] == "torchvision-f16"
    assert ours["speed_factor"] == pytest.approx(9 / 7)
    assert ours["cpu_factor"] == pytest.approx(0.4)
    assert ours["training"]["slower"] == pytest.approx(1 / 9 / 0.1 - 1)
    assert len(ours["targets"]) == 3
    assert all(ours["targets"].values())
    assert ours["gpu"]["decoded_share"] == {"hardware": 0.75, "cuda": 0.24, "cpu": 0.01}
    assert "targets" not in summary["foreload-f32"]
    # This peer is slower and takes more CPU time.
    slow = judge.summarise(
        [standing("foreload-f16", 8000, 0.3), standing("dali-f16", 7000, 0.5)], comparison.PEERS, 110_000
    )
    assert list(slow["foreload-f16"]["targets"].values()) == [False, False]

    machine = {"gpu": "a GPU", "gpu_memory_bytes": 2**37, "driver": "1", "torch": "2", "cuda": "13"}
    settings = {"image_size": 224, "batch_size": 256, "threads": 16, "seconds": 3}
    text = judge.as_text(
        {
            "machine": comparison.report.machine() | machine,
            "settings": settings,
            "data": {"images": 4000, "mean_bytes": 110_000},
            "peers": summary,
        }
    )
    assert "not measured: nvidia.dali cannot be imported" in text
    assert "at most 0.5 x its CPU time: met" in text
    assert "hardware 75%, cuda 24%, cpu 1% (9 once more, after a decoder left them out)" in text
    assert "no peer of its data type was measured" in text


def test_backends_are_judged_apart_and_points_beside_one_another() -> None:
    import judge
    import run as comparison

    points = [
        point("hardware", 8000, 0.2, hardware=8000),
        # The backend cannot decode these images, so other backends did.
        point("cuda_batched", 900, 2.5, cuda_batched=0, cuda=900),
        {"told": "backend cuda", "backend": "cuda", "refused": "ConfigError: no such backend"},
    ]
    standings = [standing("foreload-f16", 9000, 0.3, points=points), standing("dali-f16", 10_000, 0.5)]
    summary = judge.summarise(standings, comparison.PEERS, 110_000)
    lines = judge.backend_lines(summary)
    assert lines[0].startswith(
        "backend hardware alone: decoded 100% of the images, 8000 images/s, 0.20 CPU s per"
    )
    assert "0.80 x the images/s of dali-f16 at 0.40 x its CPU" in lines[0]
    assert "backend cuda_batched alone: decoded 0% of the images, 900 images/s" in lines[1]
    assert lines[2] == "backend cuda alone: ConfigError: no such backend"
    table = {row.split(" | ")[1]: row.split(" | ")[4] for row in judge.points_table(summary).splitlines()[2:]}
    unbeaten = [row for row in judge.points_table(summary).splitlines() if "| * |" in row]
    assert len(unbeaten) == 3
    assert table["backend hardware"] == "*"
    assert table["backend cuda_batched"] == ""


def test_growing_memory_is_seen() -> None:
    import stress

    flat = stress.Run(batches=20_000, between=[(step, 10**9, 10**8) for step in range(0, 20_000, 100)])
    assert stress.problems(flat, stress.slopes(flat), 20_000) == []
    leaking = [(step, 10**9 + 2000 * step, 10**8) for step in range(0, 20_000, 100)]
    leak = stress.Run(batches=20_000, between=leaking, drop_seconds=[0.1, 1.5])
    told = stress.problems(leak, stress.slopes(leak), 30_000)
    assert len(told) == 3
    assert told[0].startswith("device_bytes grew by 38.1 MiB")
    assert "only 20000 of 30000" in told[1]
    assert "1.50 s after their loader" in told[2]


def test_parity_is_judged() -> None:
    import parity

    line = {"backend": "cpu", "identical": True, "mean": 0.0, "decoded": {"hardware": 0, "cuda": 0, "cpu": 9}}
    line["batch_size"] = 32
    assert parity.problem(line) is None
    assert "other bits" in parity.problem(line | {"identical": False})
    assert "at most 1.5" in parity.problem(line | {"mean": 1.6})
    assert "no image was decoded by it" in parity.problem(line | {"backend": "cuda"})
    # First a batch with too few images for decoding Huffman codes on the GPU, then one with enough.
    assert parity.problem(line | {"backend": "cuda_batched"}) is None
    assert "no image" in parity.problem(line | {"backend": "cuda_batched", "batch_size": parity.LARGE})


def test_pieces_are_joined_as_they_come(tmp_path: Path) -> None:
    import pack

    # The smallest possible wheel, with the name that the script imports to check it.
    wheel = tmp_path / "wheels" / "tiny-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    about = "tiny-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        # The package has its own name, so that an installed DALI does not take precedence.
        archive.writestr("nvidia/__init__.py", "")
        archive.writestr("nvidia/dali/__init__.py", '__version__ = "1.0"\n')
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    folder = tmp_path / "dali"
    pack.split([wheel], folder, piece=512)
    pieces = sorted(folder.glob("piece-*"))
    assert len(pieces) > 2
    held = pieces[1].read_bytes()
    pieces[1].unlink()
    first = run(folder / "join.sh", tmp_path / "there")
    assert first.returncode == 0, first.stderr
    assert "still missing: piece-01" in first.stdout
    pieces[1].write_bytes(held[:-1] + b"?")
    assert run(folder / "join.sh", tmp_path / "there").returncode != 0
    pieces[1].write_bytes(held)
    last = run(folder / "join.sh", tmp_path / "there")
    assert last.returncode == 0, last.stderr
    assert "DALI 1.0 stands" in last.stdout
