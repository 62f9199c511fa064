"""foreload.dlio in the real DLIO, through MPI: every sample comes once in each epoch, byte for byte, and bad settings
are named.

`make test-dlio` installs DLIO. Without it these tests are skipped, or fail with FORELOAD_REQUIRE_DLIO=1.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ONLY_THOROUGH

sys.path.append(str(Path(__file__).parents[2] / "benches"))
sys.path.append(str(Path(__file__).parents[2] / "benches" / "dlio"))
import dlio_runs
from harness import environments
from world import record

HERE = Path(__file__).parent / "dlio"
REQUIRED = "FORELOAD_REQUIRE_DLIO" in os.environ
pytestmark = [
    ONLY_THOROUGH,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not REQUIRED and not environments.python_of("dlio").exists(), reason="needs DLIO: make test-dlio"
    ),
]


def dlio(output: Path, ranks: int = 1, **settings: object) -> str:
    """Run the tiny workload."""
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return dlio_runs.run(dlio_runs.command("tiny", output, ranks, named, HERE), [HERE])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the workload's files with DLIO's own generator."""
    folder = tmp_path_factory.mktemp("dlio")
    generate = {"workflow__generate_data": True, "workflow__train": False, "dataset__data_folder": folder}
    dlio(folder / "output", **generate)
    return folder


def batches(output: Path, kind: str) -> dict[int, list[list[dict]]]:
    """Return the batches that were handed to DLIO, by epoch and rank."""
    found: dict[int, list[list[dict]]] = {}
    for rank, path in enumerate(sorted(output.glob("*_batches.jsonl"))):
        for line in map(json.loads, path.read_text().splitlines()):
            if line["set"] == kind:
                ranks = found.setdefault(line["epoch"], [])
                ranks += [[] for _ in range(rank + 1 - len(ranks))]
                ranks[rank].append(line)
    return found


def hashes(folder: Path) -> list[str]:
    """Return the SHA-256 of each file, in the order of names."""
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*.*"))]


def samples(ranks: list[list[dict]]) -> dict[int, str]:
    """Return SHA-256 by sample id of all ranks' batches; fail if a sample came twice."""
    found: dict[int, str] = {}
    for line in (line for lines in ranks for line in lines):
        for sample, sha in zip(line["ids"], line["sha256"], strict=True):
            assert sample not in found
            found[sample] = sha
    return found


def order(epoch: list[list[dict]]) -> list[int]:
    """Return the sample ids of the first rank in the order in which they came."""
    return [sample for line in epoch[0] for sample in line["ids"]]


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_sample_once_in_each_epoch(data: Path, tmp_path: Path, ranks: int) -> None:
    cache = {"foreload__cache_dir": tmp_path / "cache", "foreload__cache_size": "9MB"}
    dlio(tmp_path, ranks, dataset__data_folder=data, **cache)
    expected = hashes(data / "train")
    epochs = batches(tmp_path, "train")
    assert sorted(epochs) == [1, 2, 3]
    for epoch in epochs.values():
        # There are 50 samples in global batches of 4 or 8: the last 2 wait for another epoch.
        assert [len(lines) for lines in epoch] == [48 // 4 // ranks] * ranks
        found = samples(epoch)
        assert len(found) == 48
        assert all(expected[sample] == sha for sample, sha in found.items())
    assert len({tuple(order(epoch)) for epoch in epochs.values()}) == 3
    held_out = batches(tmp_path, "valid")
    assert [samples(epoch) for epoch in held_out.values()] == [dict(enumerate(hashes(data / "valid")))] * 3
    for counters in (json.loads((tmp_path / f"{rank}_foreload.json").read_text()) for rank in range(ranks)):
        assert [epoch["epoch"] for epoch in counters] == [1, 2, 3]
        reads = [
            (epoch["cache"]["source_reads"], epoch["cache"]["tiers"]["nvme"]["hits"]) for epoch in counters
        ]
        assert [sum(pair) for pair in reads] == [48 // ranks] * 3
        assert reads[0][1] == 0
        assert reads[2][1] > reads[2][0]


def test_the_order_obeys_the_settings(data: Path, tmp_path: Path) -> None:
    def orders(name: str, **settings: object) -> list[list[int]]:
        dlio(tmp_path / name, dataset__data_folder=data, workflow__evaluation=False, **settings)
        return [order(epoch) for epoch in batches(tmp_path / name, "train").values()]

    once, again = orders("once"), orders("again")
    assert once == again
    fixed = orders("fixed", train__seed=8, train__seed_change_epoch=False)
    assert fixed[0] == fixed[1] == fixed[2] != list(range(48))
    assert fixed[0] not in once
    assert orders("unshuffled", reader__sample_shuffle="'off'") == [list(range(48))] * 3


def test_records(tmp_path: Path) -> None:
    """The settings of MLPerf Storage's resnet50. For the named data loader, DLIO does not check TFRecord."""
    folder = tmp_path / "data" / "train"
    folder.mkdir(parents=True)
    (folder.parent / "valid").mkdir()
    payloads = [bytes([number]) * (100 + number) for number in range(30)]
    for shard in range(3):
        records = map(record, payloads[10 * shard : 10 * shard + 10])
        (folder / f"img_{shard}_of_3.tfrecord").write_bytes(b"".join(records))
    settings = {"dataset__format": "tfrecord", "reader__data_loader": "native_dali"}
    counts = {
        "dataset__num_files_train": 3,
        "dataset__num_samples_per_file": 10,
        "dataset__num_files_eval": 0,
    }
    dlio(tmp_path, dataset__data_folder=folder.parent, workflow__evaluation=False, **settings, **counts)
    expected = [hashlib.sha256(payload).hexdigest() for payload in payloads]
    for epoch in batches(tmp_path, "train").values():
        found = samples(epoch)
        assert len(found) == 28
        assert all(expected[sample] == sha for sample, sha in found.items())


def test_some_of_the_files(data: Path, tmp_path: Path) -> None:
    dlio(tmp_path, dataset__data_folder=data, dataset__num_files_train=20, dataset__num_files_eval=3)
    expected = dict(enumerate(hashes(data / "train")[:20]))
    assert [samples(epoch) for epoch in batches(tmp_path, "train").values()] == [expected] * 3


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"foreload__seed": 3}, "config: foreload.seed: is not a setting of this section"),
        ({"foreload__cache_dir": "cache"}, "config: cache.size: is not given"),
        ({"reader__preprocess_time": 0.1}, "config: reader.preprocess_time: is 0.1, must be 0"),
        ({"dataset__num_samples_per_file": 2}, "config: dataset.num_samples_per_file: is 2, must be 1"),
    ],
)
def test_bad_settings_are_named(data: Path, tmp_path: Path, settings: dict, complaint: str) -> None:
    with pytest.raises(environments.Unavailable) as failure:
        dlio(tmp_path, dataset__data_folder=data, **settings)
    assert complaint in str(failure.value)


BENCHMARK = Path(__file__).parents[2] / "benches" / "dlio" / "run.py"


def test_the_benchmark_misses_a_target_without_a_figure() -> None:
    benchmark = runpy.run_path(str(BENCHMARK))
    stock, _, cached, *_ = (case.name for case in benchmark["CASES"])

    def met(**cases: dict) -> list[bool]:
        found = {stock: cases["stock"], cached: cases["cached"]}
        result = {"workloads": {"resnet50_small": {"cases": found}}}
        return [one["met"] for one in benchmark["check"](result)]

    slow, fast, failed = {"au": [20.0, 30.0]}, {"au": [20.0, 95.0]}, {"failure": "OSError: gone"}
    assert met(stock=slow, cached=fast) == [True, True]
    assert met(stock={"au": [20.0, 86.0]}, cached=fast) == [True, False]
    assert met(stock=failed, cached=fast) == [True, False]
    assert met(stock=slow, cached=failed) == [False, False]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--epochs", "1"], "--epochs: is 1, must be at least 2"),
        (["--require-targets", "--workloads", "unet3d_small"], "--require-targets: is of resnet50_small"),
    ],
)
def test_the_benchmark_refuses_what_cannot_be_judged(arguments: list[str], complaint: str) -> None:
    done = subprocess.run([sys.executable, BENCHMARK, *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert complaint in done.stderr
