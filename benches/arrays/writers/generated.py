"""Writes an array dataset of generated data: smooth fields with noise, as measurements and simulations have.

    python generated.py OUTPUT CONTAINER CODEC SOURCE AXIS DTYPE SHAPE SAMPLES FILES

The samples of a container are rows, or each file is a sample. `OUTPUT/data` is the dataset, and `OUTPUT/about.json`
says what it has.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

PATTERNS = 4
"""How many different samples are computed; the others are these with other factors."""


def samples(shape: tuple[int, ...], dtype: str, numbers: range) -> Iterator[np.ndarray]:
    """Yield the samples with these numbers."""
    rng = np.random.default_rng(5)
    count, patterns = int(np.prod(shape)), []
    for _ in range(PATTERNS):
        coarse = np.repeat(np.cumsum(rng.normal(size=count // 32 + 1)), 32)[:count]
        patterns.append((coarse + 0.01 * rng.normal(size=count).round(2)).astype(np.float32).reshape(shape))
    for number in numbers:
        values = patterns[number % PATTERNS] * np.float32(1 + number / 1024)
        if np.dtype(dtype).kind == "f":
            yield values.astype(dtype)
        else:
            yield np.clip(values * 8 + 1000, 0, np.iinfo(dtype).max).astype(dtype)


def hdf5_codec(name: str) -> dict[str, Any]:
    """Return the settings of `create_dataset` for a codec."""
    if name == "none":
        return {}
    import hdf5plugin

    codecs = {
        "gzip": {"compression": "gzip", "shuffle": True},
        "lz4": hdf5plugin.LZ4(),
        "zstd": hdf5plugin.Zstd(),
        "blosc": hdf5plugin.Blosc(cname="lz4"),
        "bitshuffle": hdf5plugin.Bitshuffle(cname="lz4"),
    }
    return dict(codecs[name])


def zarr_codec(name: str) -> Any:
    """Return zarr's codec."""
    import zarr

    codecs = zarr.codecs
    return {
        "none": lambda: None,
        "gzip": codecs.GzipCodec,
        "zstd": codecs.ZstdCodec,
        "blosc": lambda: codecs.BloscCodec(cname="lz4"),
    }[name]()


def write(
    root: Path,
    container: str,
    codec: str,
    source: str,
    axis: str,
    dtype: str,
    shape: tuple,
    total: int,
    files: int,
) -> None:
    """Write the dataset."""
    each = -(-total // files)
    spans = [range(start, min(start + each, total)) for start in range(0, total, each)]
    if container == "zarr":
        import zarr

        group = zarr.create_group(root)
        array = group.create_array(
            source.strip("/"),
            shape=(total, *shape),
            dtype=dtype,
            chunks=(1, *shape),
            compressors=zarr_codec(codec),
        )
        for number, values in enumerate(samples(shape, dtype, range(total))):
            array[number] = values
        return
    if container == "npy":
        array = np.lib.format.open_memmap(root / source, "w+", dtype, (total, *shape))
        for number, values in enumerate(samples(shape, dtype, range(total))):
            array[number] = values
        array.flush()
        return
    for place, span in enumerate(spans):
        if container == "npz":
            (values,) = samples(shape, dtype, span)
            np.savez(root / f"{place:05}.npz", **{source: values, "y": np.int64(place)})
            continue
        import h5py

        with h5py.File(root / f"{place:05}.h5", "w") as file:
            if axis == "file":
                (file[source],) = samples(shape, dtype, span)
                continue
            how = hdf5_codec(codec)
            if how:
                how["chunks"] = (1, *shape)
            data = file.create_dataset(source, (len(span), *shape), dtype, **how)
            for row, values in enumerate(samples(shape, dtype, span)):
                data[row] = values


def main() -> None:
    """Write what the command line says."""
    output, container, codec, source, axis, dtype, shape, total, files = sys.argv[1:]
    edges = tuple(map(int, shape.split(",")))
    root = Path(output) / "data"
    root.mkdir()
    write(root, container, codec, source, axis, dtype, edges, int(total), int(files))
    about = {"container": container, "codec": codec, "source": source, "axis": axis, "samples": int(total)}
    about |= {"bytes": int(np.prod(edges)) * np.dtype(dtype).itemsize}
    (Path(output) / "about.json").write_text(json.dumps(about))


if __name__ == "__main__":
    main()
