"""Files of the original libraries (tests/fixtures) are read as those libraries read them, field by field, or refused
with a clear error.

`READABLE` lists the fixtures that Foreload reads today. All others must be errors: nothing is read partially or
silently.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from fixture_rows import FIXTURES, KINDS, REFUSED, Row, agrees, asked_for, expectations, files_of, rows_of


@dataclass(frozen=True)
class Reads:
    """How Foreload reads a fixture."""

    files: bool = False
    """Whether its samples are single files. Batches then have the bytes and the label, but no fields."""
    unread: tuple[str, ...] = ()
    """Fields that are refused by name and with a reason, although the library reads them."""


READABLE = {
    "folder/images": Reads(files=True),
    "webdataset/shards": Reads(),
    "webdataset/several-images": Reads(),
    "webdataset/gzip": Reads(),
    "webdataset/zstd": Reads(),
    "webdataset/hostile-pickle": Reads(),
    "webdataset/hostile-names": Reads(),
    "imagenet/train": Reads(),
    "imagenet/hostile": Reads(),
    "tfrecord/plain": Reads(),
    "tfrecord/absent": Reads(),
    "tfrecord/gzip": Reads(),
    "tfrecord/zlib": Reads(),
    "tfrecord/imagenet": Reads(unread=("image/object/bbox/xmin", "image/object/bbox/label")),
    "mds/all": Reads(unread=("box", "points")),
    "mds/hostile-pickle": Reads(unread=("trap",)),
    "mds/splits": Reads(),
    "mds/zstd": Reads(),
    "mds/gz": Reads(),
    "mds/snappy": Reads(),
    "parquet/datasets": Reads(),
    "parquet/nulls": Reads(),
    "parquet/two-images": Reads(),
    "parquet/bytes": Reads(),
    "parquet/checksums": Reads(),
    "parquet/delta": Reads(),
    "parquet/no-dictionary": Reads(),
    "parquet/page-v2": Reads(),
    "parquet/small-pages": Reads(),
    "parquet/snappy": Reads(),
    "parquet/gzip": Reads(),
    "parquet/lz4": Reads(),
    "parquet/zstd": Reads(),
    "parquet/page-v2-zstd": Reads(),
    "arrow/saved": Reads(),
    "arrow/splits": Reads(),
    "arrow/file": Reads(),
    "arrow/stream": Reads(),
    "arrow/dictionary": Reads(),
    "arrow/file-lz4": Reads(),
    "arrow/stream-zstd": Reads(),
    "manifest/csv": Reads(),
    "manifest/jsonl": Reads(),
    "snapshot/single": Reads(),
    "snapshot/splits": Reads(),
}
"""The fixtures that are read. All fixtures of a new layout belong here, except hostile ones."""

WARNINGS = {"webdataset/hostile-names": "3 links, devices and sparse files in shards"}
"""The warnings about fixtures that are read."""

SETTINGS: dict[str, Any] = {"batch_size": 3, "last_batch": "partial", "train": False, "device": "cpu"}

ORDERS: dict[str, dict[str, Any]] = {
    "as-written": {"shuffle": False},
    "shuffled": {"shuffle": True, "seed": 7},
    "shuffled-pread": {"shuffle": True, "seed": 8, "io": "pread"},
    "ranks": {"shuffle": True, "seed": 9, "world_size": 2, "batch_size": 1},
}

Cases = list[tuple[str, dict[str, Any], dict[str, Any]]]


def cases() -> Cases:
    """Return each way to open each fixture: its name, its expected content, and the way."""
    found = []
    for path in expectations():
        expected = json.loads(path.read_text(encoding="utf-8"))
        name = path.parent.relative_to(FIXTURES).as_posix()
        found += [(name, expected, reading) for reading in expected["readings"]]
    return found


def named(case: tuple[str, dict[str, Any], dict[str, Any]]) -> str:
    """Return a test's name."""
    name, _, reading = case
    split = f":{reading['split']}" if reading["split"] else ""
    return f"{name}/{reading['path']}{split}".replace("/.", "")


def opened(name: str, path: str, split: str | None = None, **settings: Any) -> foreload.ImageLoader:
    """Return a loader of a fixture."""
    if split:
        settings["split"] = split
    root = (FIXTURES / name / "files" / path).resolve()
    return foreload.ImageLoader(root, **{**SETTINGS, **settings})


def check(found: list[tuple[int, Row]], reading: dict[str, Any], kinds: dict[str, str]) -> None:
    """Check that all samples came once, with the values that the library reads."""
    assert sorted(number for number, _ in found) == list(range(len(reading["samples"])))
    for number, row in found:
        wanted = reading["samples"][number]
        for key in row:
            assert agrees(row[key], wanted[key], kinds[key]), (number, key, row[key], wanted[key])


def epochs(
    name: str, expected: dict[str, Any], reading: dict[str, Any], count: int = 1, **settings: Any
) -> Iterator[list[tuple[int, Row]]]:
    """Yield the samples of each epoch of a readable fixture, on all ranks together."""
    way = READABLE[name]
    kinds = {key: kind for key, kind in expected["kinds"].items() if key not in way.unread and kind in KINDS}
    if way.files:
        settings["decoded"] = False
    else:
        settings["fields"] = asked_for(expected, reading, way.unread)
    ranks = range(settings.get("world_size", 1))
    loaders = [
        opened(
            name, reading["path"], reading["split"], **settings, **({"rank": rank} if len(ranks) > 1 else {})
        )
        for rank in ranks
    ]
    for _ in range(count):
        yield [
            sample
            for loader in loaders
            for sample in (files_of(loader) if way.files else rows_of(loader, kinds))
        ]


def quietly(name: str, body: Any) -> Any:
    """Call a function; allow the known warnings of the fixture, and no others."""
    if name not in WARNINGS:
        return body()
    with pytest.warns(foreload.Warning, match=WARNINGS[name]):
        return body()


READ = [case for case in cases() if case[0] in READABLE]
UNREAD = [case for case in cases() if case[0] not in READABLE]


def test_the_lists_name_fixtures() -> None:
    there = {path.parent.relative_to(FIXTURES).as_posix() for path in expectations()}
    assert there, f"no fixtures in {FIXTURES}"
    assert {*READABLE, *REFUSED, *WARNINGS} <= there
    assert not READABLE.keys() & REFUSED.keys()
    assert {path.parent.relative_to(FIXTURES).as_posix() for path in expectations(name="files")} == there


def in_all_orders() -> list[Any]:
    """Return all readings in all orders. Ranks have equal numbers of samples, so some samples of an odd number come
    twice.
    """
    return [
        pytest.param(case, order, id=f"{named(case)}-{order}")
        for case in READ
        for order, settings in ORDERS.items()
        if len(case[2]["samples"]) % settings.get("world_size", 1) == 0
    ]


@pytest.mark.parametrize(("case", "order"), in_all_orders())
def test_samples_are_what_their_library_reads(case: tuple[str, Any, Any], order: str) -> None:
    name, expected, reading = case
    for found in quietly(name, lambda: list(epochs(*case, count=2, **ORDERS[order]))):
        check(found, reading, expected["kinds"])
        if not ORDERS[order]["shuffle"]:
            assert [number for number, _ in found] == list(range(len(reading["samples"])))


@pytest.mark.parametrize("case", READ, ids=named)
def test_samples_from_a_cache_are_the_same(case: tuple[str, Any, Any], tmp_path: Path) -> None:
    name, expected, reading = case
    for _start in range(2):
        cache = foreload.Directory(tmp_path / "cache", "10MB")
        for found in quietly(name, lambda cache=cache: list(epochs(*case, count=2, cache=cache))):
            check(found, reading, expected["kinds"])


@pytest.mark.parametrize("case", [case for case in READ if len(case[2]["samples"]) > 1], ids=named)
def test_an_epoch_that_is_resumed_has_the_rest(case: tuple[str, Any, Any]) -> None:
    name, expected, reading = case
    way = READABLE[name]
    settings: dict[str, Any] = {"shuffle": True, "seed": 4, "batch_size": 1}
    if way.files:
        settings["decoded"] = False
    else:
        settings["fields"] = asked_for(expected, reading, way.unread)
    kinds = {key: kind for key, kind in expected["kinds"].items() if key not in way.unread and kind in KINDS}
    rows = files_of if way.files else lambda loader: rows_of(loader, kinds)

    def read() -> list[tuple[int, Row]]:
        first, second = (opened(name, reading["path"], reading["split"], **settings) for _ in range(2))
        begun = rows(first)
        found = [next(begun)]
        second.load_state_dict(first.state_dict())
        return found + list(rows(second))

    check(quietly(name, read), reading, expected["kinds"])


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("parquet/zstd", 1),
        ("arrow/file-lz4", 2),
        ("mds/zstd", 2),
        ("webdataset/gzip", 1),
        ("parquet/datasets", 0),
    ],
)
def test_compressed_blocks_are_unpacked_once_and_counted(name: str, blocks: int) -> None:
    loader = opened(name, ".", shuffle=True)
    for unpacked in (blocks, 0):
        batches = iter(loader)
        list(batches)
        stats = batches.stats()
        assert stats["blocks_unpacked"] == unpacked
        assert bool(stats["blocks_unpacked_bytes"]) == bool(unpacked)


def with_classes() -> Cases:
    """Return the readings whose classes have names, and whose samples all have images."""
    named = [case for case in READ if case[1].get("classes")]
    return [case for case in named if all(row["image"] for row in case[2]["samples"])]


def test_fingerprints_stay_what_they_were() -> None:
    """Samples, order and labels of a valid dataset never change, because states depend on them."""
    known = json.loads((FIXTURES / "fingerprints.json").read_text(encoding="utf-8"))
    found = {
        f"{name}/{Path(reading['path']).as_posix()}:{reading['split'] or ''}": opened(
            name, reading["path"], reading["split"]
        ).state_dict()["fingerprint"]
        for name, _, reading in READ
        if name not in ("parquet/two-images", "webdataset/several-images", *WARNINGS)
    }
    assert len(found) > 40
    assert {key: known.get(key) for key in found} == found


@pytest.mark.parametrize("case", with_classes(), ids=named)
def test_classes_have_the_library_s_names(case: tuple[str, Any, Any]) -> None:
    name, expected, reading = case
    loader = opened(name, reading["path"], reading["split"])
    assert loader.classes == expected["classes"]
    labels = {row["label"] for row in reading["samples"]}
    assert set(itertools.chain(*(np.from_dlpack(batch.labels).tolist() for batch in loader))) == labels


@pytest.mark.parametrize("case", READ, ids=named)
def test_fields_that_are_not_read_are_refused_by_name(case: tuple[str, Any, Any]) -> None:
    name, _, reading = case
    for key in READABLE[name].unread:
        with pytest.raises(foreload.Error, match=re.escape(f'"{key}"')):
            list(opened(name, reading["path"], reading["split"], fields=[key]))


def refusal(path: Path, name: str, error: foreload.Error) -> None:
    """Check that an error says where the problem is (the path or the setting), and why."""
    told = str(error)
    assert not isinstance(error, foreload.InternalError), told
    assert str(path) in told or told.startswith("config: "), told
    assert re.search(REFUSED.get(name, ""), told), told


@pytest.mark.parametrize("case", UNREAD, ids=named)
def test_what_is_not_read_is_refused(case: tuple[str, Any, Any]) -> None:
    name, expected, reading = case
    for asked in ({}, {"fields": asked_for(expected, reading, ())}):
        with pytest.raises(foreload.Error) as caught:
            list(opened(name, reading["path"], reading["split"], **asked))
        refusal(FIXTURES / name / "files", name, caught.value)


def traps() -> list[tuple[str, str, str]]:
    """Return data of fixtures that must not be read: the fixture, a path or field, and the reason."""
    return [
        (path.parent.relative_to(FIXTURES).as_posix(), what, why)
        for path in expectations()
        for what, why in json.loads(path.read_text(encoding="utf-8")).get("refused", {}).items()
    ]


@pytest.mark.parametrize("trap", traps(), ids=lambda trap: f"{trap[0]}/{trap[1]}")
def test_what_leads_astray_is_not_followed(
    trap: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths outside of the dataset, and datasets of several splits, are errors; pickles are read as bytes, or are
    errors.
    """
    monkeypatch.chdir(tmp_path)
    name, what, why = trap
    files = FIXTURES / name / "files"
    if (files / what).exists():
        with pytest.raises(foreload.Error) as caught:
            list(opened(name, what))
        refusal(files, name, caught.value)
        return
    told, values = "", []
    try:
        for batch in opened(name, ".", fields=[what], shuffle=False):
            values += batch[what]
    except foreload.Error as error:
        told = str(error)
    # A layout that is not read at all has other reasons.
    assert f'"{what}"' in told or (told and name not in READABLE) or "pickle" in why, told
    assert bool(told) != bool(values)
    assert all(type(value) is bytes for value in values)
    assert list(tmp_path.iterdir()) == []
