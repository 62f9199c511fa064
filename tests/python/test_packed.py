"""Packed datasets from Python: the same batches, states and fields as their sources."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import foreload
import numpy as np
import pytest
import shards
from conftest import checksums, paths


def pack(source: Path, into: Path, *more: str) -> dict:
    """Pack a dataset into shards of a few samples, and return the summary."""
    command = [sys.executable, "-m", "foreload", "pack", str(source), str(into), "--json", *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def packed(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("packed") / "dataset"
    summary = pack(dataset, into, "--shard-size", "30000")
    assert summary["packed"] == 60
    assert summary["kept"] == {}
    assert summary["shards"] > 5
    return into


def test_epochs_have_the_same_bytes(dataset: Path, packed: Path) -> None:
    for arguments in (
        ["--decode", "fast", "--threads", "1"],
        ["--decode", "exact", "--io", "pread"],
        ["--image-size", "48", "--train=false"],
    ):
        asked = [*arguments, "--epochs", "2", "--batch-size", "8"]
        assert checksums(packed, *asked) == checksums(dataset, *asked), arguments


def test_a_state_goes_on_with_the_other(dataset: Path, packed: Path) -> None:
    settings = dict(batch_size=6, image_size=24, seed=5)
    for saving, resuming in ((dataset, packed), (packed, dataset)):
        loader = foreload.ImageLoader(saving, **settings)
        batches = iter(loader)
        next(batches)
        resumed = foreload.ImageLoader(resuming, **settings)
        resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        rest = [np.from_dlpack(batch.sample_ids).tolist() for batch in resumed]
        assert rest == [np.from_dlpack(batch.sample_ids).tolist() for batch in batches]
        assert len(rest) == 9


def test_all_members_of_tar_shards_are_there(dataset: Path, tmp_path: Path) -> None:
    files = paths(dataset)

    def members(number: int) -> tuple[str, shards.Members]:
        mask = (files[number].parent.name * number).encode()
        document = json.dumps({"label": number % 7, "deep": [number]}).encode()
        parts = {"txt": f"number {number}".encode(), "jpg": files[number].read_bytes()}
        return f"some/{number:03}", {**parts, "json": document, "bin": mask}

    for shard in range(3):
        shards.write(tmp_path / f"tar/{shard}.tar", map(members, range(shard * 20, shard * 20 + 20)))
    summary = pack(tmp_path / "tar", tmp_path / "packed", "--shard-size", "100000")
    assert summary["packed"] == 60
    fields = ["jpg", "txt", "json", "bin", "label"]
    found = []
    for root in (tmp_path / "tar", tmp_path / "packed"):
        loader = foreload.ImageLoader(root, batch_size=10, image_size=24, seed=1, fields=fields)
        batch = next(iter(loader))
        numbers = [np.from_dlpack(batch[name]).tolist() for name in ("jpg", "label")]
        found.append((numbers, list(batch["txt"]), list(batch["json"]), list(batch["bin"])))
    assert found[0] == found[1]
