"""Reads fixtures (tests/fixtures) with Foreload: samples as rows of Python values, field by field."""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import foreload
import numpy as np
from foreload import fields

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
sys.path.append(str(FIXTURES))
from common import cell  # noqa: E402

# Folders of fixtures have the names of libraries, such as webdataset, and must not be taken for them.
sys.path.remove(str(FIXTURES))

CONTAINERS = ("hdf5", "netcdf", "zarr", "npy", "npz")
"""The layouts of files of arrays, which a `Loader` reads."""

KINDS = {
    "image": fields.Bytes,
    "mask": fields.Bytes,
    "bytes": fields.Bytes,
    "text": fields.Text,
    "json": fields.Json,
    "array": fields.Array,
    "integer": fields.Integer,
    "truth": fields.Integer,
    "float": fields.Float,
}
"""The field settings for each kind: images are read as the bytes of their files."""

HOSTILE_MANIFEST = (
    r"line [12]: .*(which does not end in|which is not an existing file|has an unsupported URL scheme"
    r"|example\.invalid|a link-local address)"
)
"""The errors of manifests that name files outside: each has its own reason, and the line."""

REFUSED = {
    "parquet/brotli": r"brotli",
    "snapshot/hostile": r"README\.md: names \"\.\./\.\./splits/files/data/train-\*\", which is outside its",
    "manifest/hostile-csv": HOSTILE_MANIFEST,
    "manifest/hostile-jsonl": HOSTILE_MANIFEST,
    "mds/hostile-parent": r"which is not the path of a file next to index\.json",
    "mds/hostile-root": r"which is not the path of a file next to index\.json",
}
"""The errors of refused fixtures, if they say more than that the dataset cannot be used."""

Row = dict[str, Any]


def expectations(containers: bool = False, name: str = "expected.json") -> list[Path]:
    """Return the files `name` of all fixtures of arrays in containers, or of all others."""
    found = sorted(FIXTURES.glob(f"*/*/{name}"))
    return [path for path in found if (path.parts[-3] in CONTAINERS) == containers]


def asked_for(expected: dict[str, Any], reading: dict[str, Any], unread: tuple[str, ...]) -> list[Any]:
    """Return the settings of all fields that are read; fields that a sample lacks are optional."""
    more = expected.get("parameters", {})
    return [
        KINDS[kind](key, any(row.get(key) is None for row in reading["samples"]), **more.get(key, {}))
        for key, kind in expected["kinds"].items()
        if key not in unread and kind in KINDS
    ]


def values_of(batch: foreload.Batch, key: str, kind: str) -> list[Any]:
    """Return the cells of a field as Python values, with None if they are absent."""
    column = batch[key]
    if kind == "array":
        column = arrays(column)
    elif not isinstance(column, list):
        column = np.from_dlpack(column).tolist()
    try:
        there = np.from_dlpack(batch.present(key)).tolist()
    except AttributeError:
        there = [True] * len(batch)
    return [value if here else None for value, here in zip(column, there, strict=True)]


def arrays(column: Any) -> list[np.ndarray]:
    """Return the arrays of a batch one by one."""
    if isinstance(column, tuple):
        values, offsets = map(np.from_dlpack, column)
        return [values[start:end] for start, end in itertools.pairwise(offsets)]
    if isinstance(column, list):
        return [np.from_dlpack(each) for each in column]
    return list(np.from_dlpack(column))


def rows_of(loader: foreload.Loader, kinds: dict[str, str]) -> Iterator[tuple[int, Row]]:
    """Yield the samples of an epoch with their numbers."""
    for batch in loader:
        columns = {key: values_of(batch, key, kind) for key, kind in kinds.items()}
        for at, number in enumerate(np.from_dlpack(batch.sample_ids).tolist()):
            yield number, {key: cells[at] for key, cells in columns.items()}


def files_of(loader: foreload.ImageLoader) -> Iterator[tuple[int, Row]]:
    """Yield the samples of an epoch of single files."""
    for batch in loader:
        labels = np.from_dlpack(batch.labels).tolist()
        numbers = np.from_dlpack(batch.sample_ids).tolist()
        for number, file, label in zip(numbers, batch.files, labels, strict=True):
            yield number, {"image": np.from_dlpack(file).tobytes(), "label": label}


def agrees(found: Any, wanted: Any, kind: str) -> bool:
    """Whether a value equals the library's."""
    if wanted is None or found is None:
        return wanted is None and found is None
    if kind in ("image", "mask", "bytes"):
        digest = hashlib.sha256(found).hexdigest()
        return {"sha256": digest, "length": len(found)} == wanted
    if kind == "float":
        if isinstance(wanted, dict):
            wanted = wanted["float"]
        elif not isinstance(wanted, (int, float)):
            return False
        # A column of numbers is float32, as CSV and all other tables are.
        with np.errstate(over="ignore"):
            return np.array_equal(np.float32(found), np.float32(wanted), equal_nan=True)
    if kind == "array":
        if not isinstance(wanted, dict) or "crc" in wanted:
            return cell(found) == wanted
        same = found.dtype == wanted["dtype"] and list(found.shape) == wanted["shape"]
        return same and found.tolist() == wanted["values"]
    return type(found) in (type(wanted), int) and found == wanted
