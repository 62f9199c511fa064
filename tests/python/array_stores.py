"""Writes random files and stores of arrays by h5py, netCDF4, zarr and NumPy, with what the same libraries read of them.

    python array_stores.py FOLDER SEED NUMBER...

It runs in the environment `arrays` (benches/harness/environments.py). Each number gives a folder with a dataset, an
array `.npy` for each field, and `about.json`. Containers whose library is missing are left out.
"""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

with suppress(ImportError):
    import h5py
with suppress(ImportError):
    import hdf5plugin
with suppress(ImportError):
    import netCDF4
    import xarray
with suppress(ImportError):
    import numcodecs
    import zarr

INTEGERS = [f"{sign}{size}" for sign in "iu" for size in (1, 2, 4, 8)]
NUMBERS = [*INTEGERS, "f2", "f4", "f8"]
Arrays = dict[str, np.ndarray]


class Random:
    """Random choices of one dataset."""

    def __init__(self, seed: int, number: int) -> None:
        self.rng = np.random.default_rng([seed, number])
        self.told: list[str] = []

    def below(self, end: int) -> int:
        """Return a number below `end`."""
        return int(self.rng.integers(end))

    def one(self, of: Any) -> Any:
        """Return one of several values, and note it."""
        chosen = list(of)[self.below(len(of))]
        self.told.append(str(chosen))
        return chosen

    def often(self, share: float = 0.5) -> bool:
        """Whether something happens that happens in this share of the cases."""
        return bool(self.rng.random() < share)

    def shape(self, least: int, most: int = 4) -> tuple[int, ...]:
        """Return a shape of `least` to `most` dimensions."""
        return tuple(1 + self.below(6) for _ in range(least + self.below(most + 1 - least)))

    def chunk(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a chunk; every second one has one sample."""
        chunk = [1 + self.below(length) for length in shape]
        return (1, *chunk[1:]) if self.often() else tuple(chunk)

    def dtype(self, orders: str = "<>") -> str:
        """Return a type of numbers in one of the byte orders."""
        dtype = self.one([*NUMBERS, "bool"])
        return dtype if dtype == "bool" else self.one(orders) + dtype

    def values(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Return random bits, with NaN and subnormal numbers, or numbers that filters make smaller."""
        kind, count = np.dtype(dtype), int(np.prod(shape))
        if kind.kind == "b":
            return (self.rng.random(shape) < 0.5).astype(bool)
        if self.often():
            return np.frombuffer(self.rng.bytes(count * kind.itemsize), kind).reshape(shape).copy()
        return (np.arange(count) // 3 % 100).astype(kind).reshape(shape)


def joined(parts: list[Arrays], axis: str) -> Arrays:
    """Return the samples of all files: their rows, or one sample a file."""
    join = np.stack if axis == "file" else np.concatenate
    return {key: join([part[key] for part in parts]) for key in parts[0]}


def fields(random: Random, axis: str, name: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the shapes (of a row, or of the whole array) and types of one to three fields."""
    return {
        name.format(number): (random.shape(0, 4 if axis == "file" else 3), random.dtype())
        for number in range(1 + random.below(3))
    }


def hdf5(random: Random, root: Path) -> tuple[Arrays, str]:
    """Write HDF5 files."""
    axis = random.one(["rows", "file"])
    kinds = fields(random, axis, "/group/x{}")
    filters: list[dict[str, Any]] = [
        {},
        {"compression": "gzip"},
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
        {"compression": "lzf"},
        {"fletcher32": True},
    ]
    if "hdf5plugin" in globals():
        filters += [hdf5plugin.LZ4(), hdf5plugin.Zstd(), hdf5plugin.Bitshuffle(), hdf5plugin.Blosc()]
    parts = []
    for number in range(1 + random.below(3)):
        count = 1 + random.below(8)
        with h5py.File(root / f"{number}.h5", "w", libver=random.one(["earliest", "latest"])) as file:
            for key, (row, dtype) in kinds.items():
                shape = row if axis == "file" else (count, *row)
                if not shape or random.often(0.3):
                    file[key] = random.values(shape, dtype)
                    continue
                how = dict(random.one(filters))
                maximum = tuple(None if random.often(0.3) else length + random.below(3) for length in shape)
                fill = random.values((1,), dtype)[0]
                made = file.create_dataset(
                    key, shape, dtype, chunks=random.chunk(shape), maxshape=maximum, fillvalue=fill, **how
                )
                if random.often():
                    made[...] = random.values(shape, dtype)
                elif random.often():
                    end = tuple(slice(random.below(length + 1)) for length in shape)
                    made[end] = random.values(made[end].shape, dtype)
        with h5py.File(root / f"{number}.h5") as file:
            parts.append({key: file[key][...] for key in kinds})
    return joined(parts, axis), axis


def netcdf(random: Random, root: Path) -> tuple[Arrays, str]:
    """Write a netCDF-4 file, which is read decoded."""
    count, row = 1 + random.below(8), random.shape(1, 3)
    with netCDF4.Dataset(root / "x.nc", "w") as file:
        file.createDimension("sample", random.one([None, count]))
        names = ["sample"]
        for number, length in enumerate(row):
            file.createDimension(f"d{number}", length)
            names.append(f"d{number}")
        for number in range(1 + random.below(3)):
            dtype = random.one(["i1", "i2", "u2", "i4", "f4", "f8"])
            fill = random.one([None, np.dtype(dtype).type(7)])
            made = file.createVariable(f"v{number}", dtype, names, zlib=random.often(), fill_value=fill)
            made.set_auto_maskandscale(False)
            attribute = random.one([np.float32, np.float64])
            if random.often(0.7):
                made.scale_factor = attribute(0.1)
            if random.often(0.7):
                made.add_offset = attribute(-3)
            made[:] = (np.arange(count * int(np.prod(row))) % 50).astype(dtype).reshape(count, *row)
    with xarray.open_dataset(root / "x.nc", decode_times=False, decode_coords=False) as opened:
        return {f"/{name}": opened[name].values for name in opened.data_vars}, "cf"


def zarr_store(random: Random, root: Path) -> tuple[Arrays, str]:
    """Write a store of zarr, some of whose chunks are deleted."""
    version, count = random.one([2, 3]), 1 + random.below(8)
    group = zarr.create_group(root, zarr_format=version)
    names = []
    for number in range(1 + random.below(3)):
        shape, dtype = (count, *random.shape(0, 3)), random.dtype("<>" if version == 2 else "<")
        name, chunk = random.one([f"x{number}", f"deep/x{number}"]), random.chunk(shape)
        fill = None if version == 2 and random.often(0.3) else random.values((1,), dtype)[0].item()
        how: dict[str, Any] = {"chunks": chunk, "fill_value": fill}
        if version == 2:
            packers = [None, numcodecs.Zlib(), numcodecs.GZip(), numcodecs.Zstd(), numcodecs.LZ4()]
            packers += [
                numcodecs.Blosc(kind, 5, shuffle) for kind in ("lz4", "zstd") for shuffle in (0, 1, 2)
            ]
            how |= {"compressors": random.one(packers), "order": random.one("CF")}
            key = {"name": "v2", "separator": random.one("./")}
        else:
            codecs = zarr.codecs
            packers = [None, codecs.GzipCodec(), codecs.ZstdCodec(), codecs.BloscCodec()]
            packers += [[codecs.ZstdCodec(), codecs.Crc32cCodec()]]
            how |= {"compressors": random.one(packers)}
            if random.often(0.4):
                how["shards"] = tuple(edge * (1 + random.below(3)) for edge in chunk)
            key = {"name": random.one(["default", "v2"]), "separator": random.one("./")}
        made = group.create_array(name, shape=shape, dtype=dtype, chunk_key_encoding=key, **how)
        made[...] = random.values(shape, dtype)
        names.append(name)
    documents = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        if path.name not in documents and random.often(0.15):
            path.unlink()
    if random.often(0.3):
        zarr.consolidate_metadata(str(root), zarr_format=version)
    group = zarr.open_group(root, mode="r")
    return {f"/{name}": np.asarray(group[name][...]) for name in names}, "rows"


def npy(random: Random, root: Path) -> tuple[Arrays, str]:
    """Write npy files."""
    axis = random.one(["rows", "file"])
    if axis == "file":
        shape, dtype = random.shape(0), random.dtype()
        for number in range(1 + random.below(6)):
            values = random.values(shape, dtype)
            np.save(root / f"{number}.npy", values.copy("F") if random.often(0.3) else values)
        return {"npy": np.stack([np.load(path) for path in sorted(root.glob("*.npy"))])}, axis
    count = 1 + random.below(8)
    kinds = fields(random, axis, "x{}.npy")
    for name, (row, dtype) in kinds.items():
        np.save(root / name, random.values((count, *row), dtype))
    return {name: np.load(root / name) for name in kinds}, axis


def npz(random: Random, root: Path) -> tuple[Arrays, str]:
    """Write npz archives."""
    axis = random.one(["rows", "file"])
    kinds, parts = fields(random, axis, "x{}"), []
    for number in range(1 + random.below(3)):
        count = 1 + random.below(8)
        arrays = {
            name: random.values(row if axis == "file" else (count, *row), dtype)
            for name, (row, dtype) in kinds.items()
        }
        np.savez(root / f"{number}.npz", **arrays)
        with np.load(root / f"{number}.npz") as archive:
            parts.append({name: archive[name] for name in kinds})
    return joined(parts, axis), axis


WRITERS = {hdf5: "h5py", netcdf: "netCDF4", zarr_store: "zarr", npy: "np", npz: "np"}
"""The modules that the writers need."""


def write(folder: Path, seed: int, number: int) -> None:
    """Write a dataset."""
    random = Random(seed, number)
    writers = [writer for writer, module in WRITERS.items() if module in globals()]
    # Every container has its turn.
    writer = writers[number % len(writers)]
    root = folder / str(number) / "data"
    root.mkdir(parents=True)
    arrays, axis = writer(random, root)
    for place, array in enumerate(arrays.values()):
        np.save(root.parent / f"{place}.npy", array.astype(array.dtype.newbyteorder("<")))
    about = {
        "told": f"{writer.__name__}: {', '.join(random.told)}",
        "sources": list(arrays),
        "settings": {"sample_axis": "file"} if axis == "file" else {},
        "parameters": {"cf": True} if axis == "cf" else {},
    }
    (root.parent / "about.json").write_text(json.dumps(about))


def main() -> None:
    """Write the datasets of all numbers."""
    warnings.simplefilter("ignore")
    folder, seed, *numbers = sys.argv[1:]
    for number in numbers:
        write(Path(folder), int(seed), int(number))


if __name__ == "__main__":
    main()
