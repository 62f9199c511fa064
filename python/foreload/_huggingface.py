"""Translates datasets of Hugging Face's `datasets` into settings of Foreload; that library is never imported."""

from __future__ import annotations

import json
import os
from itertools import accumulate
from typing import Any

import numpy as np

from foreload._errors import config_error
from foreload._taken import called, one_name
from foreload._transform_reader import is_a

_SAVE = "save it by save_to_disk(DIRECTORY), and load that by load_from_disk"
_LABELS = ("label", "cls", "class")
_HARMLESS = ("replace_schema_metadata", "drop", "select")
"""What a table may have gone through without having other rows or values."""
_EVALUATED = ("validation", "valid", "val", "dev", "test", "eval")


def settings_of(dataset: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The settings of `foreload.torch.ImageDataset` that mean what `dataset` does.

    Args:
        dataset: A `datasets.Dataset` whose rows lie in Arrow files.
        given: The caller's own settings.

    Raises:
        ConfigError: It does something that Foreload does not do; the message says what, and what to do.
    """
    _check(dataset)
    paths, rows = _rows(dataset)
    totals = [_count(path) for path in paths]
    firsts = dict(zip(paths, [0, *accumulate(totals)], strict=False))
    parts = []
    for path, start, length in rows:
        end = totals[paths.index(path)] if length is None else start + length
        parts.append(np.arange(firsts[path] + start, firsts[path] + end))
    numbers = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    if len(numbers) != dataset.data.num_rows:
        raise config_error("dataset", f"has other rows than its files say: {_SAVE}")
    if dataset._indices is not None:
        numbers = numbers[dataset._indices.column(0).to_numpy()]
    settings: dict[str, Any] = {"path": _root(paths), **_labels(dataset, given)}
    if not np.array_equal(numbers, np.arange(sum(totals))):
        if len(np.unique(numbers)) < len(numbers):
            raise config_error("dataset", f"has rows several times: {_SAVE}, or use weights= or repeats=")
        settings["indices"] = numbers.tolist()
    split = str(dataset.split or "").partition("[")[0]
    if split in _EVALUATED and "train" not in given:
        settings["train"] = False
    return settings


def check_same_samples(dataset: Any, loader: Any) -> None:
    """Check that the files of `loader` have the rows and classes of the dataset.

    Raises:
        ConfigError: They have not.
    """
    paths, _ = _rows(dataset)
    total = sum(_count(path) for path in paths)
    if loader.samples != total:
        raise config_error(
            "dataset", f"has files of {total} rows, {loader.samples} as indexed: say rebuild_index=True"
        )
    label = next((name for name in _LABELS if name in dataset.features), None)
    names = getattr(dataset.features.get(label), "names", None)
    if names is not None and loader.classes and list(names) != loader.classes:
        message = f"has the classes {list(names)[:5]}..., its files say {loader.classes[:5]}...: {_SAVE}"
        raise config_error("dataset", message)


def _check(dataset: Any) -> None:
    kind = type(dataset)
    if is_a(dataset, "datasets", "DatasetDict"):
        raise config_error(
            "dataset", f"has the splits {', '.join(dataset)}: give one, such as dataset['train']"
        )
    if not is_a(dataset, "datasets", "Dataset"):
        streams = " (without streaming=True)" if "Iterable" in kind.__name__ else ""
        raise config_error("dataset", f"is a {called(kind)}, must be a datasets.Dataset{streams}")
    if dataset.format["type"] == "custom":
        message = "is a function of yours, which cannot be taken over: leave with_transform out, and give transforms="
        raise config_error("transform", message)


def _rows(dataset: Any) -> tuple[list[str], list[tuple[str, int, int | None]]]:
    """The Arrow files of a dataset, each once, and which of their rows it has, in order, without its indices."""
    table = dataset.data
    blocks = getattr(table, "blocks", None)
    if not is_a(table, "datasets", "ConcatenationTable") or blocks is None:
        blocks = [[table]]
    rows = []
    for beside in blocks:
        if len(beside) != 1 or not is_a(beside[0], "datasets", "MemoryMappedTable"):
            raise config_error("dataset", f"lies in memory, all or some columns of it: {_SAVE}")
        path, start, length = os.path.abspath(beside[0].path), 0, None
        for name, arguments, _ in beside[0].replays or []:
            if name == "slice":
                offset, count = (*arguments, None)[:2]
                left = None if length is None else length - offset
                start += offset
                length = min((of for of in (left, count) if of is not None), default=None)
            elif name not in _HARMLESS:
                what = name.replace("_", " ")
                raise config_error("dataset", f"has columns that its files have not ({what}): {_SAVE}")
        if os.path.basename(path).startswith("cache-"):
            raise config_error("dataset", f"was computed, and lies in a cache ({path}): {_SAVE}")
        rows.append((path, start, length))
    return list(dict.fromkeys(path for path, _, _ in rows)), rows


def _count(path: str) -> int:
    """The number of rows of an Arrow file or stream."""
    import pyarrow as pa  # Whoever has `datasets` has it.

    with pa.memory_map(path) as source:
        try:
            return sum(batch.num_rows for batch in pa.ipc.open_stream(source))
        except pa.ArrowInvalid:
            source.seek(0)
            reader = pa.ipc.open_file(source)
            return sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))


def _root(paths: list[str]) -> str | list[str]:
    """One dataset of all these files, in this order."""
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


def _labels(dataset: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Whether batches have labels."""
    images = [name for name, of in dataset.features.items() if is_a(of, "datasets", "Image")]
    if not images:
        raise config_error("features", f"have no Image among {', '.join(dataset.features)}")
    first = dataset.data.column(images[0])[0].as_py() if dataset.data.num_rows else None
    if isinstance(first, dict) and first.get("bytes") is None and first.get("path"):
        path = first["path"]
        message = (
            f"has paths of images and not their bytes ({path}): give ImageDataset the directory of the images"
        )
        raise config_error("dataset", message)
    if given.keys() & {"fields", "with_labels", "labels"}:
        return {}
    if any(name in dataset.features for name in _LABELS):
        return {}
    classes = [name for name, of in dataset.features.items() if is_a(of, "datasets", "ClassLabel")]
    if classes:
        message = (
            f"has the classes in {classes[0]!r}, and labels are those in {' or '.join(_LABELS)}: give "
            f"fields=[{images[0]!r}, {classes[0]!r}], or with_labels=False"
        )
        raise config_error("dataset", message)
    return {"with_labels": False}
