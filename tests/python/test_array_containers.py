"""Arrays in HDF5, netCDF, zarr, npy and npz are read as the original libraries read them, bit for bit.

Three sources have the values of these libraries: the fixtures (tests/fixtures), the single files and arrays that unit
tests read, and random datasets, which `array_stores.py` writes in the environment `arrays`.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import os
import random
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from conftest import FIFTH, ONLY_ALL, THOROUGH, seeds
from fixture_rows import FIXTURES, cell, expectations, rows_of
from foreload import fields

sys.path.append(str(Path(__file__).resolve().parents[2] / "benches"))
from harness import environments

pytestmark = [
    # `make thorough` may have to install the libraries first.
    pytest.mark.timeout(900),
    # The last step of an epoch has fewer samples than ranks.
    pytest.mark.filterwarnings("ignore:last_batch is partial"),
]
STORES = 60
"""The random datasets of a whole run; `seeds` chooses a tenth of them outside of `make thorough`."""


@dataclass(frozen=True)
class Dataset:
    """A dataset, and the samples that its library reads, as type, shape and checksum of each field."""

    root: Path
    rows: list[dict[str, Any]]
    settings: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The parameters of fields, by source."""

    def loader(self, asked: list[fields.Array] | None = None, **more: Any) -> foreload.Loader:
        """Return a loader of all fields, or of those that are asked for."""
        settings = {"batch_size": 2, "last_batch": "partial", "device": "cpu", "seed": 5} | self.settings
        return foreload.Loader(self.root, fields=asked or self.fields(), **(settings | more))

    def fields(self) -> list[fields.Array]:
        """Return the settings of all fields."""
        return [fields.Array(key, **self.parameters.get(key, {})) for key in self.rows[0]]

    def read(self, batches: Any) -> list[tuple[int, dict[str, np.ndarray]]]:
        """Return the samples of an epoch, each with its number, and check that they have the library's values."""
        found = list(rows_of(batches, dict.fromkeys(self.rows[0], "array")))
        for number, row in found:
            for key, wanted in self.rows[number].items():
                assert cell(row[key]) == wanted, (self.root, number, key)
        return found

    def numbers(self, batches: Any) -> list[int]:
        """Return the numbers of an epoch's samples, and check the samples."""
        return [number for number, _ in self.read(batches)]

    def check(self, scratch: Path) -> None:
        """Check the samples in all orders: shuffled, by ranks, resumed, and from a cache."""
        whole = list(range(len(self.rows)))
        assert self.numbers(self.loader(shuffle=False)) == whole
        loader = self.loader()
        shuffled = self.numbers(loader)
        assert sorted(shuffled) == sorted(self.numbers(loader)) == whole
        assert sorted(self.numbers(self.loader(io="pread"))) == whole
        # Ranks have equal numbers of samples, so one of an odd number of samples may come twice.
        if len(whole) > 1:
            ranks = [self.numbers(self.loader(batch_size=1, rank=rank, world_size=2)) for rank in range(2)]
            assert sorted({*ranks[0], *ranks[1]}) == whole
        if len(whole) > 2:
            self.check_resumed(shuffled)
        for _start in range(2):
            loader = self.loader(cache=foreload.Directory(scratch / "cache", "10MB"))
            for _epoch in range(2):
                assert sorted(self.numbers(loader)) == whole

    def check_resumed(self, shuffled: list[int]) -> None:
        """Check that a loader that resumes after a batch gives the rest."""
        loader = self.loader()
        batches = iter(loader)
        begun = self.numbers([next(batches)])
        second = self.loader()
        second.load_state_dict(loader.state_dict())
        assert begun + self.numbers(second) == shuffled

    def check_windows(self, choose: random.Random) -> None:
        """Check that windows are slices of the whole arrays: at a place, in the middle, and at random places."""
        plain = [key for key in self.rows[0] if not self.parameters.get(key, {}).get("ragged")]
        shapes = {key: self.rows[0][key]["shape"] for key in plain}
        windowed = [key for key in plain if shapes[key] and min(shapes[key]) > 0]
        if not windowed or any(row[key]["shape"] != shapes[key] for row in self.rows for key in windowed):
            return
        whole = dict(self.read(self.loader(shuffle=False)))
        for at in ("place", "center", "random"):
            windows = {key: [choose.randint(1, edge) for edge in shapes[key]] for key in windowed}
            places = {
                key: [choose.randint(0, edge - size) for edge, size in zip(shapes[key], sizes, strict=True)]
                for key, sizes in windows.items()
            }
            asked = [
                fields.Array(
                    key,
                    window=tuple(None if choose.random() < 0.2 and at != "place" else size for size in sizes),
                    at=tuple(places[key]) if at == "place" else at,
                    **self.parameters.get(key, {}),
                )
                for key, sizes in windows.items()
            ]
            found = rows_of(self.loader(asked), dict.fromkeys(windowed, "array"))
            for (number, row), one in itertools.product(found, asked):
                key = one.source
                assert within(row[key], whole[number][key], one), (self.root, number, one)


def within(found: np.ndarray, whole: np.ndarray, asked: fields.Array) -> bool:
    """Whether an array is a window of another, at the place that the field names."""
    sizes = [edge if size is None else size for edge, size in zip(whole.shape, asked.window, strict=True)]
    free = [edge - size for edge, size in zip(whole.shape, sizes, strict=True)]
    if asked.at == "center":
        places: Any = [tuple(edge // 2 for edge in free)]
    elif asked.at == "random":
        places = itertools.product(*(range(edge + 1) for edge in free))
    else:
        places = [asked.at]
    wanted = cell(found)
    return any(
        cell(whole[tuple(slice(at, at + size) for at, size in zip(place, sizes, strict=True))]) == wanted
        for place in places
    )


def fixtures() -> Iterator[Any]:
    """Yield the fixtures that are read, as parameters of tests."""
    for path in expectations(containers=True):
        expected = json.loads(path.read_text(encoding="utf-8"))
        readable = {
            key: kind for key, kind in expected["kinds"].items() if key not in expected.get("refused", {})
        }
        for reading in expected["readings"]:
            more = {key: expected.get(key, {}) for key in ("settings", "parameters")}
            rows = [{key: row[key] for key in readable} for row in reading["samples"]]
            dataset = Dataset(path.parent / "files" / reading["path"], rows, **more)
            yield pytest.param(dataset, id=path.parent.relative_to(FIXTURES).as_posix())


READ = list(fixtures())


@pytest.mark.parametrize("dataset", READ)
def test_fixtures_are_what_their_library_reads(dataset: Dataset, tmp_path: Path) -> None:
    dataset.check(tmp_path)


@pytest.mark.parametrize("dataset", READ)
def test_windows_are_slices(dataset: Dataset) -> None:
    dataset.check_windows(random.Random(3))


def traps() -> Iterator[Any]:
    """Yield fields that must not be read: what is in other files, pickles, compressed members."""
    for path in expectations(containers=True):
        expected = json.loads(path.read_text(encoding="utf-8"))
        for key in expected.get("refused", {}):
            name = path.parent.relative_to(FIXTURES).as_posix()
            yield pytest.param(path.parent / "files", key, expected.get("settings", {}), id=f"{name}:{key}")


@pytest.mark.parametrize(("root", "key", "settings"), list(traps()))
def test_what_leads_astray_is_refused_by_name(
    root: Path, key: str, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(foreload.Error) as caught:
        list(foreload.Loader(root, fields=[fields.Array(key)], device="cpu", batch_size=1, **settings))
    assert not isinstance(caught.value, foreload.InternalError), caught.value
    assert key.strip("/") in str(caught.value) or str(root) in str(caught.value), caught.value
    assert list(tmp_path.iterdir()) == []


def unpacked(name: str, folder: Path) -> Path:
    """Write a file of HDF5, which is committed in compressed form, into a folder."""
    path = folder / name
    path.write_bytes(gzip.decompress((FIXTURES / "hdf5" / f"{name}.gz").read_bytes()))
    return path


HDF5_VALUES = json.loads((FIXTURES / "hdf5" / "values.json").read_text(encoding="utf-8"))
UNREAD_DATASETS = ("/types/bfloat16", "/types/text", "/texts")
"""Datasets of HDF5 files that NumPy has no type for, or that are no numbers."""


@FIFTH
@pytest.mark.parametrize("name", HDF5_VALUES)
def test_datasets_of_hdf5_are_what_h5py_reads(name: str, tmp_path: Path) -> None:
    """Of every kind of type, storage and index, all rows are those of h5py, and anything else is refused by name."""
    root = unpacked(name, tmp_path)
    for key, wanted in HDF5_VALUES[name]["datasets"].items():
        shape = wanted["shape"] if isinstance(wanted, dict) else None
        if key in UNREAD_DATASETS or shape == [] or (shape and shape[0] == 0):
            continue
        asked = [fields.Array(key, ragged=key == "/rows")]
        settings = {"batch_size": 64, "last_batch": "partial", "shuffle": False, "device": "cpu"}
        if not isinstance(wanted, dict):
            with pytest.raises(foreload.Error, match=re.escape(key)):
                list(foreload.Loader(root, fields=asked, **settings))
            continue
        found = [
            row[key] for _, row in rows_of(foreload.Loader(root, fields=asked, **settings), {key: "array"})
        ]
        assert len(found) == shape[0], key
        big = "big_" in key or key in ("/partial", "/tree_packed")
        raw = b"".join((row.byteswap() if big else row).tobytes() for row in found)
        assert (len(raw), zlib.crc32(raw)) == (wanted["length"], wanted["crc"]), key


def zarr_arrays() -> Iterator[Any]:
    """Yield the arrays of zarr that unit tests read, too, without those that have no rows, and so no samples."""
    text = gzip.decompress((FIXTURES / "chunks" / "zarr.jsonl.gz").read_bytes()).decode()
    for line in text.splitlines():
        found = json.loads(line)
        document = json.loads(found["documents"].get("zarr.json") or found["documents"][".zarray"])
        if document["shape"] and document["shape"][0] > 0:
            yield pytest.param(found, id=found["name"])


def store_of(found: dict[str, Any], root: Path) -> Path:
    """Write a group with an array `x`, and return the group."""
    folder = root / "data.zarr"
    (folder / "x").mkdir(parents=True)
    name, version = ("zarr.json", 3) if "zarr.json" in found["documents"] else (".zgroup", 2)
    about = {"zarr_format": version} | ({"node_type": "group", "attributes": {}} if version == 3 else {})
    (folder / name).write_text(json.dumps(about))
    for key, document in found["documents"].items():
        (folder / "x" / key).write_text(document)
    for key, data in found["files"].items():
        (folder / "x" / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / "x" / key).write_bytes(base64.b64decode(data))
    return folder


@FIFTH
@pytest.mark.parametrize("found", list(zarr_arrays()))
def test_arrays_of_zarr_are_what_zarr_reads(found: dict[str, Any], tmp_path: Path) -> None:
    root = store_of(found, tmp_path)
    loader = foreload.Loader(
        root, fields=[fields.Array("/x")], batch_size=3, last_batch="partial", shuffle=False, device="cpu"
    )
    raw = b"".join(row["/x"].tobytes() for _, row in rows_of(loader, {"/x": "array"}))
    assert raw == base64.b64decode(found["values"])


def libraries() -> Path:
    """Return the Python of the environment `arrays`; skip the test if there is none."""
    if THOROUGH:
        return environments.ensure("arrays")
    if not (environments.DEFAULT_FOLDER / "arrays" / environments.MARKER).is_file():
        pytest.skip("the libraries of arrays are not installed: make fixtures or make thorough does that")
    return environments.python_of("arrays")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Dataset]]:
    """Random datasets with the libraries' values, and how each was written."""
    python, folder = libraries(), tmp_path_factory.mktemp("stores")
    seed = int(os.environ.get("FORELOAD_SEED", 0)) or random.randrange(2**32)
    numbers = seeds(STORES)
    print(f"FORELOAD_SEED={seed}")
    words = [python, Path(__file__).with_name("array_stores.py"), folder, seed, *numbers]
    subprocess.run([str(word) for word in words], check=True, timeout=600)
    return [read_store(folder / str(number), f"FORELOAD_SEED={seed}, dataset {number}") for number in numbers]


def read_store(folder: Path, name: str) -> tuple[str, Dataset]:
    """Return a random dataset."""
    about = json.loads((folder / "about.json").read_text())
    arrays = {key: np.load(folder / f"{place}.npy") for place, key in enumerate(about["sources"])}
    count = len(next(iter(arrays.values())))
    rows = [{key: cell(array[number]) for key, array in arrays.items()} for number in range(count)]
    parameters = dict.fromkeys(arrays, about["parameters"])
    return f"{name}: {about['told']}", Dataset(folder / "data", rows, about["settings"], parameters)


def test_random_datasets_are_what_their_libraries_read(
    stores: list[tuple[str, Dataset]], tmp_path: Path
) -> None:
    for place, (told, dataset) in enumerate(stores):
        print(told)
        dataset.check(tmp_path / str(place))


@ONLY_ALL
def test_windows_of_random_datasets_are_slices(stores: list[tuple[str, Dataset]]) -> None:
    for told, dataset in stores:
        print(told)
        dataset.check_windows(random.Random(told))
