"""FileLoader: any files, and TFRecord records, as bytes."""

from __future__ import annotations

from pathlib import Path

import foreload
import numpy as np
import pytest
from world import record


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataset of thirty files of different lengths, some below directories."""
    root = tmp_path / "files"
    for number in range(30):
        path = root / ("a", "b", "b/c")[number % 3] / f"{number:02}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * (100 * number + 1))
    return root


def contents(loader: foreload.FileLoader) -> list[bytes]:
    return [np.from_dlpack(file).tobytes() for batch in loader for file in batch.files]


def test_files_of_any_kind(folder: Path) -> None:
    loader = foreload.FileLoader(folder, batch_size=7, last_batch="partial", seed=1)
    assert (loader.samples, len(loader)) == (30, 5)
    assert sorted(contents(loader)) == sorted(path.read_bytes() for path in folder.rglob("*.npz"))
    for batch in loader:
        for sample, file in zip(np.from_dlpack(batch.sample_ids), batch.files, strict=True):
            assert np.from_dlpack(file).tobytes() == Path(loader.locate(int(sample))[0]).read_bytes()
    with pytest.raises(AttributeError, match="files"):
        _ = batch.images


def test_a_cache_gives_the_same(folder: Path, tmp_path: Path) -> None:
    expected = contents(foreload.FileLoader(folder, batch_size=5))

    def hits() -> int:
        """Run an epoch of a new loader. At its end it publishes the samples that it stored, if the drive is fast
        enough.
        """
        cached = foreload.FileLoader(
            folder, batch_size=5, cache=foreload.Directory(tmp_path / "cache", "64MB")
        )
        batches = iter(cached)
        assert [np.from_dlpack(file).tobytes() for batch in batches for file in batch.files] == expected
        return batches.stats()["cache"]["tiers"]["nvme"]["hits"]

    assert hits() == 0
    assert any(hits() == 30 for _ in range(20))


def test_it_resumes(folder: Path) -> None:
    loader = foreload.FileLoader(folder, batch_size=5)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    whole = contents(loader.batches(0))
    resumed = foreload.FileLoader(folder, batch_size=5)
    resumed.load_state_dict(state)
    assert contents(resumed) == whole[5:]


def test_records_of_tfrecord_shards(tmp_path: Path) -> None:
    root, records = tmp_path / "records", []
    root.mkdir()
    for shard in range(3):
        with (root / f"img_{shard}_of_3.tfrecord").open("wb") as file:
            for number in range(5):
                payload = bytes([shard, number]) * (number + 1)
                records.append(payload)
                file.write(record(payload))
    loader = foreload.FileLoader(root, batch_size=5, shuffle=False)
    assert contents(loader) == records
    assert sorted(contents(foreload.FileLoader(root, batch_size=5))) == sorted(records)
