"""Arrays of npy files, as rows and as files, and npy members of shards: NumPy computes what batches must have."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
import shards
from foreload import fields as F
from numpy import from_dlpack as array

COUNT = 24
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
DTYPES = ["bool", *INTEGERS, "float16", "float32", "float64"]
SETTINGS: dict[str, Any] = {"batch_size": 4, "seed": 5, "device": "cpu"}


def values(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Return an array of any values that the type has."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype.lstrip("<>")).kind == "f":
        return (rng.standard_normal(shape) * 100).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype=np.dtype(dtype).newbyteorder("="), endpoint=True)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Arrays of COUNT rows, of all types and both byte orders."""
    root = tmp_path_factory.mktemp("rows")
    for number, dtype in enumerate(DTYPES):
        np.save(root / f"{dtype}.npy", values(dtype, (COUNT, 3, 5), number))
        swapped = np.dtype(dtype).newbyteorder(">")
        np.save(root / f"{dtype}-swapped.npy", values(dtype, (COUNT, 2, 7), number).astype(swapped))
    np.save(root / "x.npy", np.arange(COUNT * 12, dtype=np.float32).reshape(COUNT, 3, 4))
    np.save(root / "y.npy", (np.arange(COUNT, dtype=np.int16) * 7) % 5)
    np.save(root / "z.npy", np.linspace(0, 1, COUNT, dtype=np.float64))
    return root


def batches(root: Path, asked: list[F.Field], **settings: Any) -> Iterator[tuple[list[int], foreload.Batch]]:
    """Return the batches of an epoch, each with its samples' numbers."""
    for batch in foreload.Loader(root, fields=asked, **SETTINGS | settings):
        yield array(batch.sample_ids).tolist(), batch


def check(found: Any, expected: np.ndarray) -> None:
    """Compare a tensor with an array, bit by bit."""
    found = array(found)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes()


def test_elements_come_as_they_are_stored(rows: Path) -> None:
    names = [f"{dtype}{swapped}.npy" for dtype in DTYPES for swapped in ("", "-swapped")]
    stored = {name: np.load(rows / name) for name in names}
    seen = []
    for samples, batch in batches(rows, [F.Array(name) for name in names]):
        seen += samples
        for name in names:
            expected = stored[name][samples]
            check(batch[name], expected.astype(expected.dtype.newbyteorder("=")))
    assert sorted(seen) == list(range(COUNT)) != seen


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_are_converted_like_those_of_numpy(rows: Path, dtype: str) -> None:
    stored = np.load(rows / f"{dtype}.npy")
    # A float64 that is outside of float32's range becomes infinite.
    targets = ["float32", "float64"] if dtype != "bool" else ["float32", "uint8", "int64"]
    asked: list[F.Field] = [F.Array(f"{dtype}.npy", name=to, dtype=to) for to in targets]
    for samples, batch in batches(rows, asked):
        for to in targets:
            check(batch[to], stored[samples].astype(to))


def test_scale_offset_mean_and_std_are_steps_of_numpy(rows: Path) -> None:
    stored = np.load(rows / "int16.npy")
    missing = int(stored[0, 0, 0])
    mean, std = [0.5, -2.0, 3.25], [1.5, 2.0, 0.3]
    asked: list[F.Field] = [
        F.Array("int16.npy", name="all", scale=0.1, offset=-3, mean=mean, std=std, axis=0, missing=missing),
        F.Array("int16.npy", name="wide", dtype=np.float64, mean=0.1, std=0.7),
        F.Array("x.npy", name="last", mean=[1, 2, 3, 4], axis=-1),
    ]
    x = np.load(rows / "x.npy")
    for samples, batch in batches(rows, asked):
        single = stored[samples].astype(np.float32)
        single[stored[samples] == missing] = np.nan
        along = [np.array(numbers, np.float32).reshape(3, 1) for numbers in (mean, std)]
        expected = (single * np.float32(0.1) + np.float32(-3) - along[0]) / along[1]
        np.testing.assert_array_equal(array(batch["all"]), expected)
        assert array(batch["all"]).dtype == np.float32
        check(batch["wide"], (stored[samples].astype(np.float64) - 0.1) / 0.7)
        check(batch["last"], x[samples] - np.array([1, 2, 3, 4], np.float32))


def test_bfloat16_is_handed_to_torch(rows: Path) -> None:
    torch = pytest.importorskip("torch", reason="NumPy has no bfloat16")
    stored = np.load(rows / "float32.npy")
    for samples, batch in batches(rows, [F.Array("float32.npy", name="x", dtype=torch.bfloat16)]):
        assert torch.equal(torch.from_dlpack(batch["x"]), torch.tensor(stored[samples].tolist()).bfloat16())


def test_shared_batches_have_the_same_numbers(rows: Path, runtime: Path) -> None:
    # JSON, in which settings go to the producer, has no NaN.
    asked: list[F.Field] = [F.Array("x.npy", name="x", window=(5, 4), pad=float("nan"), mean=0.1 + 0.2)]
    alone = [array(batch["x"]).tobytes() for _, batch in batches(rows, asked)]
    assert [array(batch["x"]).tobytes() for _, batch in batches(rows, asked, shared=True)] == alone


def test_windows_are_converted_like_whole_arrays(rows: Path) -> None:
    x = np.load(rows / "x.npy")
    asked: list[F.Field] = [
        # Means belong to the indices of the whole array.
        F.Array("x.npy", name="means", window=(2, 3), at=(1, 1), mean=[1, 2, 3, 4], axis=1),
        F.Array("x.npy", name="padded", window=(5, None), at=(0, 0), pad=-1, scale=2, dtype="float64"),
        F.Array("x.npy", name="whole", window=(None, 2), at="center"),
    ]
    for samples, batch in batches(rows, asked):
        check(batch["means"], x[samples][:, 1:, 1:] - np.array([2, 3, 4], np.float32))
        padded = np.full((len(samples), 5, 4), -2.0)
        padded[:, :3] = 2 * x[samples].astype(np.float64)
        check(batch["padded"], padded)
        check(batch["whole"], x[samples][:, :, 1:3])


def test_numbers_are_columns_and_arrays(rows: Path) -> None:
    asked = [
        F.Array("x.npy", name="x"),
        F.Integer("y.npy", name="y"),
        F.Float("z.npy", name="z"),
    ]
    x, y, z = (np.load(rows / f"{name}.npy") for name in "xyz")
    for samples, batch in batches(rows, asked):
        check(batch["x"], x[samples])
        check(batch["y"], y[samples].astype(np.int64))
        check(batch["z"], z[samples].astype(np.float32))
    for samples, batch in batches(rows, [F.Array("y.npy"), F.Array("x.npy")]):
        check(batch["y.npy"], y[samples])
    for samples, batch in batches(rows, [F.Array("x.npy"), F.Integer("label", name="label")], label="y.npy"):
        check(batch["label"], y[samples].astype(np.int64))


def test_an_epoch_resumes_and_is_divided_among_ranks(rows: Path) -> None:
    settings = SETTINGS | {"fields": [F.Array("x.npy"), F.Integer("y.npy")]}

    def contents(batch: foreload.Batch) -> tuple[list[int], bytes]:
        return array(batch.sample_ids).tolist(), array(batch["x.npy"]).tobytes()

    whole = [contents(batch) for batch in foreload.Loader(rows, **settings)]
    loader = foreload.Loader(rows, **settings)
    reading = iter(loader)
    begun = [contents(next(reading)) for _ in range(2)]
    resumed = foreload.Loader(rows, **settings)
    resumed.load_state_dict(loader.state_dict())
    assert begun + [contents(batch) for batch in resumed] == whole
    ranks = [
        [
            contents(batch)
            for batch in foreload.Loader(rows, **settings | {"batch_size": 2}, rank=rank, world_size=2)
        ]
        for rank in range(2)
    ]
    together = [(one + other, first + second) for (one, first), (other, second) in zip(*ranks, strict=True)]
    assert together == whole


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are samples; every second one in column-major order."""
    root = tmp_path_factory.mktemp("files")
    for number in range(COUNT):
        stored = values("float32", (4, 3, 2), number)
        np.save(root / f"{number:02}.npy", np.asfortranarray(stored) if number % 2 else stored)
    return root


def test_files_are_samples_in_any_order_of_elements(files: Path) -> None:
    asked: list[F.Field] = [F.Array("npy", name="x"), F.Array("npy", name="half", dtype="float16", mean=1)]
    for samples, batch in batches(files, asked, sample_axis="file"):
        stored = np.stack([values("float32", (4, 3, 2), number) for number in samples])
        check(batch["x"], stored)
        check(batch["half"], (stored - np.float32(1)).astype(np.float16))


def test_files_of_different_lengths_are_rows_of_one_tensor(tmp_path: Path) -> None:
    for number in range(8):
        np.save(tmp_path / f"{number}.npy", np.full((number % 3 + 1, 2), number, np.int32))
    asked: list[F.Field] = [F.Array("npy", dtype="float32", ragged=True)]
    for samples, batch in batches(tmp_path, asked, sample_axis="file"):
        rows, offsets = map(array, batch["npy"])
        assert rows.dtype == np.float32
        expected = [number for number in samples for _ in range(number % 3 + 1)]
        assert rows.tolist() == [[number, number] for number in expected]
        assert np.diff(offsets).tolist() == [number % 3 + 1 for number in samples]
    with pytest.raises(
        foreload.ConfigError, match=r"has shape=\[2, 3\], but the arrays of samples have shape"
    ):
        foreload.Loader(tmp_path, fields=[F.Array("npy", shape=(2, 3))], sample_axis="file", **SETTINGS)
    loader = foreload.Loader(tmp_path, fields=[F.Array("npy", shape=(2, 2))], sample_axis="file", **SETTINGS)
    with pytest.raises(foreload.SampleError, match=r"has shape \[., 2\], must have \[2, 2\]"):
        list(loader)


def test_members_of_shards_are_converted_too(tmp_path: Path) -> None:
    made = lambda number: {"npy": shards.npy(values("int16", (2, 3), number)), "cls": b"1"}  # noqa: E731
    shards.make(tmp_path, COUNT, 3, made)
    asked: list[F.Field] = [
        F.Array("npy", name="column", dtype="float32", shape=(2, 3), mean=[1, 2, 3], axis=1),
        F.Array("npy", name="values", scale=0.5),
    ]
    for samples, batch in batches(tmp_path, asked):
        stored = np.stack([values("int16", (2, 3), number) for number in samples]).astype(np.float32)
        check(batch["column"], stored - np.array([1, 2, 3], np.float32))
        check(batch["values"], stored * np.float32(0.5))


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_a_sample_that_does_not_fit_is_substituted(rows: Path) -> None:
    np.save(rows / "wide.npy", np.where(np.arange(COUNT) % 5 == 0, 300, 7).astype(np.int16)[:, None])
    asked: list[F.Field] = [F.Array("wide.npy", dtype="uint8"), F.Array("x.npy")]
    with pytest.raises(
        foreload.SampleError, match=r'"wide.npy": has the number 300, which uint8 cannot hold'
    ):
        list(batches(rows, asked))
    x = np.load(rows / "x.npy")
    for samples, batch in batches(rows, asked, on_error="skip"):
        assert all(number % 5 for number in samples)
        check(batch["x.npy"], x[samples])
        assert (array(batch["wide.npy"]) == 7).all()
    zeros = 0
    for samples, batch in batches(rows, asked, on_error="zero"):
        failed = np.array(samples) % 5 == 0
        zeros += failed.sum()
        assert (array(batch["wide.npy"])[:, 0] == np.where(failed, 0, 7)).all()
        assert not array(batch["x.npy"])[failed].any()
    assert zeros > 0


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (F.Array("x.npy", dtype="int32"), "is stored as float32, which is not converted to int32"),
        (F.Array("int16.npy", scale=2, dtype="int16"), "but its dtype is int16"),
        (F.Array("x.npy", mean=[1, 2]), "set axis, the dimension along which they differ"),
        (F.Array("x.npy", mean=[1, 2], axis=0), "has 2 values of mean or std for axis 0, but shape"),
        (F.Array("x.npy", axis=2, mean=1), "has axis=2, but the array of a sample has 2 dimensions"),
        (F.Array("uint8.npy", missing=-1), "has missing=-1, which uint8 cannot hold"),
        (F.Array("int64.npy", missing=2 - 2**63), "does not fit float64 exactly"),
        (F.Array("x.npy", shape=(3, 4), ragged=True), "has both shape and ragged=True"),
        (F.Array("x.npy", dtype="complex64"), "must be one of bool, int8"),
        (F.Bytes("x.npy"), "which is an array: use foreload.fields.Array"),
        ("x.npy", None),
    ],
)
def test_fields_that_do_not_fit_are_refused(rows: Path, asked: Any, message: str | None) -> None:
    if message is None:
        foreload.Loader(rows, fields=[asked], **SETTINGS)
        return
    with pytest.raises(foreload.ConfigError, match=message):
        foreload.Loader(rows, fields=[asked], **SETTINGS)


def zarr_array(root: Path, values: np.ndarray) -> None:
    """Write an array of zarr, version 2, in one chunk."""
    shape = list(values.shape)
    described = {"zarr_format": 2, "shape": shape, "chunks": shape, "dtype": values.dtype.str, "order": "C"}
    described |= {"compressor": None, "filters": None, "fill_value": 0}
    root.mkdir(exist_ok=True)
    (root / ".zarray").write_text(json.dumps(described))
    (root / ".".join("0" for _ in shape)).write_bytes(values.tobytes())


def test_a_zarr_array_of_another_type_is_refused_in_the_next_epoch(tmp_path: Path) -> None:
    root, values = tmp_path / "x.zarr", np.arange(24, dtype="<f4").reshape(6, 4)
    zarr_array(root, values)
    loader = foreload.Loader(root, batch_size=6, shuffle=False, device="cpu", fields=[F.Array("/", name="x")])
    assert [array(batch["x"]).tobytes() for batch in loader] == [values.tobytes()]
    zarr_array(root, values.astype("<i4"))
    with pytest.raises(foreload.Error, match="another form"):
        list(loader)


def test_columns_and_arrays_of_an_epoch_are_of_one_version(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((6, 2), np.float32))
    np.save(tmp_path / "y.npy", np.arange(6))
    asked = [F.Array("x.npy", name="x"), F.Integer("y.npy", name="y")]
    loader = foreload.Loader(tmp_path, batch_size=6, shuffle=False, device="cpu", fields=asked)
    assert len(list(loader)) == 1
    np.save(tmp_path / "x.npy", np.ones((6, 2), np.float32))
    assert [array(batch["x"]).sum() for batch in loader] == [12], "other values of the same array are read"
    np.save(tmp_path / "y.npy", np.arange(6) + 100)
    with pytest.raises(foreload.Error, match=r"other values in its column.*y\.npy"):
        list(loader)


def test_chunks_in_memory_are_those_of_the_file(tmp_path: Path) -> None:
    folder = Path(__file__).parents[1] / "fixtures" / "hdf5" / "shared" / "files"
    shutil.copytree(folder, tmp_path / "files")
    expected = json.loads((folder.parent / "expected.json").read_text())
    asked = [F.Array(name) for name in expected["kinds"]]
    loader = foreload.Loader(tmp_path / "files", batch_size=2, device="cpu", fields=asked)
    assert list(loader)
    for path in (tmp_path / "files").iterdir():
        os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(foreload.Error):
        list(loader)
