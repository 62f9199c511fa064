"""Translates datasets of Hugging Face's `datasets` into settings of Foreload; that library is never imported."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from foreload._core import LABEL_COLUMNS, LONE_LABEL_COLUMNS, is_for_evaluation
from foreload._errors import config_error
from foreload._taken import called, one_name
from foreload._transform_reader import is_a

_SAVE = "save it with save_to_disk(DIRECTORY), and load that with load_from_disk"
_HARMLESS = ("replace_schema_metadata", "drop", "select")
"""Operations on a table that change neither its rows nor its values."""


def settings_of(dataset: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of `foreload.torch.ImageDataset` that are equivalent to `dataset`.

    Args:
        dataset: A `datasets.Dataset` with its rows in Arrow files.
        given: The caller's own settings.

    Raises:
        ConfigError: It does something that Foreload does not support; the message says what, and what to do.
    """
    _check(dataset)
    paths, rows = _rows(dataset)
    files = {path: _stored(path) for path in paths}
    _check_unchanged(dataset, files)
    totals = [file.rows for file in files.values()]
    firsts = dict(zip(paths, [0, *accumulate(totals)], strict=False))
    parts = []
    for path, start, length in rows:
        end = totals[paths.index(path)] if length is None else start + length
        parts.append(np.arange(firsts[path] + start, firsts[path] + end))
    numbers = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    if len(numbers) != dataset.data.num_rows:
        raise config_error("dataset", f"has other rows than its files: {_SAVE}")
    if dataset._indices is not None:
        numbers = numbers[dataset._indices.column(0).to_numpy()]
    stored = {name: rank for file in files.values() for name, rank in file.ranks.items()}
    settings: dict[str, Any] = {"path": _root(paths), **_labels(dataset, given, stored)}
    _check_dropped(dataset, given, stored)
    if not np.array_equal(numbers, np.arange(sum(totals))):
        if len(np.unique(numbers)) < len(numbers):
            raise config_error(
                "dataset", f"has some rows several times: {_SAVE}, or use weights= or repeats="
            )
        settings["indices"] = numbers.tolist()
    if "orientation" not in given:
        # That library rotates images by their EXIF orientation.
        settings["orientation"] = "apply"
    split = str(dataset.split or "").partition("[")[0]
    if is_for_evaluation(split) and "train" not in given:
        settings["train"] = False
    return settings


def check_same_samples(
    dataset: Any, loader: Any, label: str | None = None, *, are_numbered: bool = False
) -> None:
    """Check that the files of `loader` have the rows and classes of the dataset, whose label is the column `label`.

    If classes `are_numbered` by `class_names=`, the user chose them, and they are not compared.

    Raises:
        ConfigError: They differ.
    """
    paths, _ = _rows(dataset)
    total = sum(_stored(path).rows for path in paths)
    if loader.samples != total:
        raise config_error(
            "dataset",
            f"has files of {total} rows, but the index has {loader.samples}: pass rebuild_index=True",
        )
    label = label or _label_column(_ranks(dataset.data.schema))
    names = getattr(dataset.features.get(label), "names", None)
    if not are_numbered and names is not None and loader.classes and list(names) != loader.classes:
        message = f"has the classes {list(names)[:5]}..., but its files have {loader.classes[:5]}...: {_SAVE}"
        raise config_error("dataset", message)


def _check(dataset: Any) -> None:
    kind = type(dataset)
    if is_a(dataset, "datasets", "DatasetDict"):
        raise config_error(
            "dataset", f"has the splits {', '.join(dataset)}: pass one, such as dataset['train']"
        )
    if not is_a(dataset, "datasets", "Dataset"):
        streams = " (without streaming=True)" if "Iterable" in kind.__name__ else ""
        raise config_error("dataset", f"is a {called(kind)}, must be a datasets.Dataset{streams}")
    if dataset.format["type"] == "custom":
        message = (
            "is your own function, which cannot be taken over: remove with_transform, and pass transforms="
        )
        raise config_error("transform", message)


def _rows(dataset: Any) -> tuple[list[str], list[tuple[str, int, int | None]]]:
    """Return the Arrow files of a dataset, each once, and its rows of them, in order, without its indices."""
    rows = []
    for beside in _blocks(dataset):
        if len(beside) != 1 or not is_a(beside[0], "datasets", "MemoryMappedTable"):
            raise config_error("dataset", f"is in memory, at least some of its columns: {_SAVE}")
        path, start, length = os.path.abspath(beside[0].path), 0, None
        for name, arguments, _ in beside[0].replays or []:
            if name == "slice":
                offset, count = (*arguments, None)[:2]
                left = None if length is None else length - offset
                start += offset
                length = min((of for of in (left, count) if of is not None), default=None)
            elif name not in _HARMLESS:
                what = name.replace("_", " ")
                raise config_error("dataset", f"has columns that its files do not have ({what}): {_SAVE}")
        if os.path.basename(path).startswith("cache-"):
            raise config_error("dataset", f"was computed, and is in a cache ({path}): {_SAVE}")
        rows.append((path, start, length))
    return list(dict.fromkeys(path for path, _, _ in rows)), rows


def _blocks(dataset: Any) -> list[list[Any]]:
    """Return the tables of the rows, one after another, each as a list of tables with some of the columns."""
    table = dataset.data
    blocks = getattr(table, "blocks", None)
    if not is_a(table, "datasets", "ConcatenationTable") or blocks is None:
        return [[table]]
    return blocks


class _Stored(NamedTuple):
    """The content that an Arrow file has now."""

    rows: int
    ranks: dict[str, int | None]
    """The result of `_ranks` for its columns."""
    places: set[tuple[int, int]]
    """The offsets and sizes of its buffers."""


def _stored(path: str) -> _Stored:
    """Read the structure of an Arrow file or stream, without its values."""
    import pyarrow as pa  # `datasets` requires it.

    try:
        source = pa.memory_map(path)
    except OSError as error:
        raise config_error("dataset", f"has a file that can no longer be read: {error}") from error
    with source:
        try:
            base = source.read_buffer(1).address
            source.seek(0)
            reader = pa.ipc.open_stream(source)
            batches = list(reader)
        except pa.ArrowInvalid:
            source.seek(0)
            reader = pa.ipc.open_file(source)
            batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        return _Stored(
            rows=sum(batch.num_rows for batch in batches),
            ranks=_ranks(reader.schema),
            places={
                (buffer.address - base, buffer.size)
                for batch in batches
                for column in batch.columns
                for buffer in _buffers(column)
            },
        )


def _buffers(array: Any) -> list[Any]:
    """Return the buffers of an array that are not empty."""
    return [buffer for buffer in array.buffers() if buffer is not None and buffer.size]


def _mappings() -> list[tuple[int, int, int, str]]:
    """Return the files that are mapped into memory: first address, end, offset in the file, and path, by address."""
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            addresses, _, offset, _, _, *name = line.rstrip("\n").split(None, 5)
            start, end = (int(address, 16) for address in addresses.split("-"))
            if name and name[0].startswith("/"):
                found.append((start, end, int(offset, 16), name[0]))
    return found


def _check_unchanged(dataset: Any, files: dict[str, _Stored]) -> None:
    """Check that the files are those that the dataset has mapped into memory."""
    mappings = _mappings()
    starts = [start for start, *_ in mappings]
    for beside in _blocks(dataset):
        path = os.path.abspath(beside[0].path)
        for chunk in (chunk for column in beside[0].table.columns for chunk in column.chunks):
            for buffer in _buffers(chunk):
                at = bisect_right(starts, buffer.address) - 1
                start, end, offset, name = mappings[at] if at >= 0 else (0, 0, 0, "")
                if buffer.address >= end:
                    continue
                place = (buffer.address - start + offset, buffer.size)
                if _is_other(name, path) or place not in files[path].places:
                    message = f"was loaded from a file that has been replaced ({path}): load it again"
                    raise config_error("dataset", message)


def _is_other(mapped: str, path: str) -> bool:
    """Return whether a mapping is of another file than the one at a path now; False if that is unknown."""
    # Shared memory also has names of deleted files.
    if mapped.endswith(" (deleted)"):
        return mapped.removesuffix(" (deleted)") in (path, os.path.realpath(path))
    return os.path.exists(mapped) and not os.path.samefile(mapped, path)


def _ranks(schema: Any) -> dict[str, int | None]:
    """Return how well the types of Arrow columns suit a label: 0 is best, None is for types that labels never have."""
    import pyarrow as pa

    def rank(kind: Any) -> int | None:
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_integer(kind):
            return 0
        if pa.types.is_boolean(kind) or str(kind) in ("string", "large_string", "string_view"):
            return 1
        return 2 if pa.types.is_floating(kind) else None

    return {column.name: rank(column.type) for column in schema}


def _label_column(ranks: dict[str, int | None]) -> str | None:
    """Return the column that is the label, by the rule of the core (`src/data/dataset/label_column.rs`).

    The core also looks at the values. If columns with usual names all have types that labels never have, it is the
    first of them: the core then reports why there are no labels.
    """
    usual = [name for name in LABEL_COLUMNS if name in ranks]
    suited = [(rank, name) for name in usual if (rank := ranks[name]) is not None]
    if suited:
        return min(suited, key=lambda of: of[0])[1]
    lone = [name for name in LONE_LABEL_COLUMNS if name in ranks]
    if len(lone) == 1 and ranks[lone[0]] is not None:
        return lone[0]
    return usual[0] if usual else None


def _check_dropped(dataset: Any, given: dict[str, Any], stored: dict[str, int | None]) -> None:
    """Check that batches have no column that was dropped from the dataset but is still in its files.

    `stored` is the result of `_ranks` for the columns of the files.
    """
    dropped = {name for name in stored if name not in dataset.features}
    label = given.get("label") or _label_column(stored)
    fields = given.get("fields")
    if fields is None:
        asked = ["image"]
        has_label = _label_column(_ranks(dataset.data.schema)) is not None
        if given.get("with_labels", has_label):
            asked.append("label")
    else:
        names = [getattr(of, "source", of) for of in fields] if isinstance(fields, list | tuple) else []
        asked = [key for name in names if isinstance(name, str) for key in name.split(";")]
    for name in asked:
        column = label if name == "label" else name
        if name == "label" and "labels" in given:
            continue
        if column not in dropped:
            column = next((of for of in dropped if name.startswith(f"{of}.")), None)
        if column is not None:
            told = "remove it, or pass the dataset with it" if fields else f"pass fields=[...], or {_SAVE}"
            message = (
                f"would have {column!r}, which was dropped from the dataset but is still in its files: {told}"
            )
            raise config_error("fields", message)


def _root(paths: list[str]) -> str | list[str]:
    """Return the path of one dataset with all these files, in this order."""
    directories = {os.path.dirname(path) for path in paths}
    names = [os.path.basename(path) for path in paths]
    if len(directories) != 1 or names != sorted(names):
        return list(paths)
    (directory,) = directories
    state = os.path.join(directory, "state.json")
    if os.path.exists(state):
        with open(state, encoding="utf-8") as file:
            listed = json.load(file).get("_data_files") or []
        if names == [of.get("filename") for of in listed]:
            return directory
    return one_name(paths)


def _labels(dataset: Any, given: dict[str, Any], stored: dict[str, int | None]) -> dict[str, Any]:
    """Return the settings for labels of batches. `stored` is the result of `_ranks` for the columns of the files."""
    images = [name for name, of in dataset.features.items() if is_a(of, "datasets", "Image")]
    if not images:
        raise config_error("features", f"have no Image among {', '.join(dataset.features)}")
    first = dataset.data.column(images[0])[0].as_py() if dataset.data.num_rows else None
    if isinstance(first, dict) and first.get("bytes") is None and first.get("path"):
        path = first["path"]
        message = f"has paths of images and not their bytes ({path}): pass the directory of the images to ImageDataset"
        raise config_error("dataset", message)
    if given.keys() & {"fields", "with_labels", "labels", "label"}:
        return {}
    label = _label_column(_ranks(dataset.data.schema))
    if label is not None:
        # Because of a dropped column, the core may not find the label.
        return {} if _label_column(stored) is not None else {"label": label}
    classes = [name for name, of in dataset.features.items() if is_a(of, "datasets", "ClassLabel")]
    if classes:
        message = (
            f"has classes in {classes[0]!r}, but labels are read from {', '.join(LABEL_COLUMNS)}, or from "
            f"{' or '.join(LONE_LABEL_COLUMNS)} if it has only one of these: pass label={classes[0]!r}, or "
            "with_labels=False"
        )
        raise config_error("dataset", message)
    return {"with_labels": False}
