"""Damages fixtures at random places: Foreload must refuse them, or read the same as the layout's own library.

    python tests/python/damaged_fixtures.py --module target/debug/python/module
    python tests/python/damaged_fixtures.py --module ... --fixtures webdataset/shards --count 200 --seed 3

Each fixture is read by Foreload and by the library that wrote it, in that library's environment
(tests/fixtures/make.py) and in separate processes; a manifest by Python's csv and json. Files that are compressed as a
whole are damaged directly or, equally often, decompressed, damaged and compressed again. Of manifests, the table is
damaged. Of datasets of arrays, files are also deleted and exchanged.

Three results are failures: a process that dies; an error of Foreload that says it is a defect; and a sample with a
value that neither the library reads from the same files nor the undamaged fixture has. A library that crashes reads
nothing. The seed and the number of the damage reproduce a failure.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import csv
import gzip
import io
import itertools
import json
import os
import pickle
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import traceback
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
SECONDS = 60
"""The longest time that a process may read a damaged fixture."""
LIBRARY_SECONDS = 2
"""The same for libraries of arrays. HDF5's loops forever over some damaged heaps, and has then read nothing."""
MEMORY = 8 << 30
"""The limit of such a process's address space, in bytes, because a damaged file may claim any size."""

ENVIRONMENTS = {
    "arrow": "huggingface",
    "imagenet": "webdataset",
    "manifest": "huggingface",
    "mds": "mds",
    "parquet": "huggingface",
    "tfrecord": "tensorflow",
    "webdataset": "webdataset",
    **dict.fromkeys(("hdf5", "netcdf", "zarr", "npy", "npz"), "arrays"),
}
"""The environments of the libraries that read each layout."""

COMPRESSED = {
    "mds/gz": "gzip",
    "mds/snappy": "snappy",
    "mds/zstd": "zstd",
    "tfrecord/gzip": "gzip",
    "tfrecord/zlib": "zlib",
    "webdataset/gzip": "gzip",
    "webdataset/zstd": "zstd",
}
"""The fixtures whose shards are compressed as a whole, and their compression."""

MANIFESTS = ("metadata.csv", "metadata.jsonl")
"""The files of manifest fixtures that are opened."""

Rows = Iterable[dict[str, Any]]


def codec(name: str) -> tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]:
    """Return the functions that compress and decompress; zstd and snappy exist if the library has them."""
    if name == "gzip":
        return gzip.compress, gzip.decompress
    if name == "zlib":
        return zlib.compress, zlib.decompress
    module = __import__(name)
    return module.compress, module.decompress


def manifest_rows(kind: str, data: bytes) -> Rows:
    """Yield the rows of a manifest, as Python's own csv and json read them."""
    text = data.decode("utf-8-sig")
    if kind == "csv":
        header, *rows = csv.reader(io.StringIO(text, newline=""))
        header = [name.strip() for name in header]
        yield from (dict(zip(header, row, strict=True)) for row in rows if row)
    else:
        yield from (json.loads(line) for line in text.split("\n") if line.strip())


def manifest_values(files: Path, name: str, kinds: dict[str, str]) -> Rows:
    """Yield the fields of a manifest's rows, with the contents of the files that they name, and with CSV's numbers as
    numbers.
    """
    rows, failure = [], None
    try:
        rows.extend(manifest_rows(name, (files / f"metadata.{name}").read_bytes()))
    except Exception as error:
        failure = error
    classes = class_numbers([row.get("label") for row in rows])
    for row in rows:
        values = {}
        for key, kind in kinds.items():
            cell = row.get(key)
            if kind == "image":
                values[key] = (files / row["file_name"]).read_bytes()
            elif cell is None or cell == "":
                values[key] = None
            elif key == "label" and classes:
                values[key] = classes.get(cell)
            else:
                read = {"integer": int, "float": float}.get(kind)
                values[key] = read(cell) if read and isinstance(cell, str) else cell
        yield values
    if failure:
        raise failure


def class_numbers(labels: list[Any]) -> dict[str, int]:
    """Return the class numbers of labels, in sorted order; labels are names if one of them is no integer."""
    names = sorted({label for label in labels if isinstance(label, str) and label})
    if all(re.fullmatch("-?[0-9]+", name) for name in names):
        return {}
    return {name: number for number, name in enumerate(names)}


def saved_rows(files: Path) -> Rows:
    """Yield what `datasets` reads of a saved dataset, or, if it refuses to join the shards, what pyarrow reads of each.

    Names and types of one shard can change without a sign of damage in the shard itself.
    """
    import arrow

    try:
        yield from list(arrow.huggingface.read_unopened(arrow.datasets.load_from_disk(str(files))))
    except Exception as refused:
        for path in sorted(files.glob("*.arrow")):
            with contextlib.suppress(Exception):
                yield from arrow.columns.rows_of(arrow.opened(path, "stream"))
        raise refused


def reader_of(layout: str, name: str, expected: dict[str, Any]) -> Callable[[Path], Rows]:
    """Return the function that reads a directory with the layout's own library."""
    kinds = expected["kinds"]
    if ENVIRONMENTS[layout] == "arrays":
        import array_files

        return array_files.reader_of(layout, expected)
    if layout == "parquet":
        import columns

        return lambda files: (row for path in sorted(files.glob("*.parquet")) for row in columns.read(path))
    if layout == "arrow":
        import arrow

        def read(files: Path) -> Rows:
            if name == "saved":
                return saved_rows(files)
            format = "stream" if name.startswith("stream") else "file"
            return arrow.columns.rows_of(arrow.opened(files / "part-0.arrow", format))

        return read
    if layout == "mds":
        import mds

        if f"{layout}/{name}" in COMPRESSED:
            return lambda files: mds.read_damaged(mds.unpacked(files, files.with_name("unpacked")))
        return mds.read_damaged
    if layout == "tfrecord":
        import tfrecord

        packed = {"gzip": "GZIP", "zlib": "ZLIB"}.get(name, "")
        return lambda files: tfrecord.iterated(files, kinds, packed)
    if layout == "imagenet":
        import imagenet

        return lambda files: imagenet.read(files / imagenet.NAME)
    if layout == "manifest":
        return lambda files: manifest_values(files, name, kinds)
    import tar_shards

    if name == "zstd":
        return lambda files: (
            tar_shards.values(sample, kinds)
            for sample in tar_shards.read([tar_shards.unpacked(files, files.parent)])
        )
    return lambda files: (
        tar_shards.values(sample, kinds) for sample in tar_shards.read(sorted(files.iterdir()))
    )


def damaged_text(text: bytes, rng: random.Random) -> bytes:
    """Return a text in which a few bytes are changed, removed, duplicated or cut off."""
    changed = bytearray(text)
    for _ in range(rng.randint(1, 3)):
        if not changed:
            break
        at = rng.randrange(len(changed))
        match rng.randrange(5):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                changed[at] = rng.choice(b'",\n\r\\{}[]:0-.\0\xff')
            case 2:
                del changed[at : at + rng.randint(1, 20)]
            case 3:
                changed[at:at] = changed[at : at + rng.randint(1, 40)]
            case _:
                del changed[at:]
    return bytes(changed)


def damage(files: Path, name: str, rng: random.Random) -> None:
    """Damage one of a fixture's files."""
    layout, _, own_name = name.partition("/")
    if layout == "manifest":
        path = files / f"metadata.{own_name}"
        path.write_bytes(damaged_text(path.read_bytes(), rng))
        return
    paths = sorted(path for path in files.rglob("*") if path.is_file())
    if ENVIRONMENTS[layout] == "arrays" and len(paths) > 1 and rng.random() < 0.2:
        one, other = rng.sample(paths, 2)
        match rng.randrange(3):
            case 0:
                one.unlink()
            case 1:
                one.unlink()
                one.mkdir()
            case _:
                data = one.read_bytes()
                one.write_bytes(other.read_bytes())
                other.write_bytes(data)
        return
    path = rng.choice(paths)
    if name not in COMPRESSED or path.suffix == ".json" or rng.random() < 0.5:
        path.write_bytes(damaged(path.read_bytes(), rng))
        return
    pack, unpack = codec(COMPRESSED[name])
    unpacked = damaged(unpack(path.read_bytes()), rng)
    packed = pack(unpacked)
    path.write_bytes(packed)
    if layout == "mds":
        # The index holds the lengths of both forms. With other lengths the shard would be refused before it is
        # decompressed.
        index = json.loads((files / "index.json").read_text())
        for shard in index["shards"]:
            if shard["zip_data"]["basename"] == path.name:
                shard["zip_data"]["bytes"], shard["raw_data"]["bytes"] = len(packed), len(unpacked)
        (files / "index.json").write_text(json.dumps(index))


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return damaged bytes: a changed bit, byte or number, a truncation, a hole, or a duplicated part."""
    changed = bytearray(data)
    at = rng.randrange(len(data))
    kind = rng.randrange(6)
    if kind == 0:
        changed[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        changed[at] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    elif kind == 2:
        number = rng.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, rng.randrange(2**32), len(data)))
        changed[at : at + 4] = number.to_bytes(4, "little")[: len(data) - at]
    elif kind == 3:
        del changed[at:]
    elif kind == 4:
        length = min(rng.randrange(1, 64), len(data) - at)
        changed[at : at + length] = bytes(length)
    else:
        changed[at:at] = data[at : at + rng.randrange(1, 64)]
    return bytes(changed)


def apart(
    body: Callable[[Callable[[Any], None]], None], seconds: int = SECONDS
) -> tuple[list[Any], str | None]:
    """Run a function in its own process; return the values that it sent, and how it ended if that was an error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        status = 1
        with os.fdopen(writing, "wb") as pipe:
            give = lambda value: pipe.write(pickle.dumps(value))  # noqa: E731
            try:
                body(give)
                status = 0
            except BaseException as error:
                give({"error": type(error).__name__, "told": str(error)})
        os._exit(status)
    os.close(writing)
    given = []
    with os.fdopen(reading, "rb") as pipe:
        while True:
            try:
                given.append(pickle.load(pipe))
            except (EOFError, pickle.UnpicklingError):
                break
    _, status = os.waitpid(child, 0)
    ended = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else None
    return given, ended


def compare(
    files: Path, expected: dict[str, Any], read: Callable[[Path], Rows], files_are_whole: bool
) -> str:
    """Return in a word the result of Foreload for a damaged fixture; wrong results begin with `WRONG`."""
    import fixture_rows
    import foreload
    from common import cell, shown

    kinds = {key: kind for key, kind in expected["kinds"].items() if kind in fixture_rows.KINDS}
    reading = expected["readings"][0]
    of_arrays = expected["layout"] in fixture_rows.CONTAINERS

    def own(give: Callable[[Any], None]) -> None:
        loader = (foreload.Loader if of_arrays else foreload.ImageLoader)(
            files / reading["path"],
            batch_size=1,
            shuffle=False,
            device="cpu",
            last_batch="partial",
            progress=False,
            index_dir=files.with_name("index"),
            fields=fixture_rows.asked_for(expected, reading, ()),
            **({} if of_arrays else {"train": False}),
            **expected.get("settings", {}),
        )
        # A damaged file of arrays may claim any number of samples; a library gives no more of them either.
        for _, row in itertools.islice(fixture_rows.rows_of(loader, kinds), 64 if of_arrays else None):
            give(row)

    def theirs(give: Callable[[Any], None]) -> None:
        # If a library loads a hostile pickle, the pickle leaves its mark here and not in the working directory.
        os.chdir(files.parent)
        for row in read(files):
            given = {key: shown(row.get(key)) for key in kinds}
            give({key: repr(of) if isinstance(of, Exception) else of for key, of in given.items()})

    seconds = LIBRARY_SECONDS if of_arrays else SECONDS
    if files_are_whole:
        wanted, _ = apart(theirs, seconds)
        if wanted != [{key: row.get(key) for key in kinds} for row in reading["samples"]]:
            return f"WRONG: the library itself reads {str(wanted)[:300]}"
    found, ended = apart(own)
    error = found.pop() if found and "told" in found[-1] else None
    if ended:
        return f"WRONG: Foreload dies by {ended}"
    if error and error["error"] in ("InternalError", "PanicException", "MemoryError"):
        return f"WRONG: {error['error']}: {error['told']}"
    if not found:
        return "refused" if error else "empty"
    wanted, _ = apart(theirs, seconds)
    rows = [row for row in wanted if "told" not in row]
    more = False
    if of_arrays:
        # Libraries read each array by itself, so values of a sample may be those of different rows.
        rows += reading["samples"]
        rows = [
            {key: next((of[key] for of in rows if of[key] == cell(row[key])), None) for key in kinds}
            for row in found
        ]
    for row in found:
        strange = [
            {key: row[key] for key in kinds if not fixture_rows.agrees(row[key], of[key], kinds[key])}
            for of in rows
        ]
        if all(strange) and not any(matches(row, of, kinds) for of in reading["samples"]):
            ending = ", then fails" if len(rows) < len(wanted) else ""
            least = min(strange, key=len, default=row)
            return f"WRONG: the library reads {len(rows)} samples{ending}; Foreload has {str(least)[:300]}"
        more |= all(strange)
    if more:
        return "as undamaged, though the library refuses it"
    return "refused after some samples" if error else "the same"


def matches(row: dict[str, Any], wanted: dict[str, Any], kinds: dict[str, str]) -> bool:
    """Whether all values of a sample are as expected."""
    import fixture_rows

    return all(fixture_rows.agrees(row[key], wanted.get(key), kinds[key]) for key in kinds)


def hammer(name: str, count: int, seed: int) -> int:
    """Damage a fixture `count` times; return the number of failures, or 1 if the undamaged fixture cannot be read."""
    import fixture_rows

    expected = json.loads((FIXTURES / name / "expected.json").read_text(encoding="utf-8"))
    # An undamaged fixture that is refused has no values to compare.
    refused = expected.get("refused", {})
    expected["kinds"] = {key: kind for key, kind in expected["kinds"].items() if key not in refused}
    layout, _, own_name = name.partition("/")
    expected["layout"] = layout
    read = reader_of(layout, own_name, expected)
    told: collections.Counter[str] = collections.Counter()

    def after(number: int, kinds: dict[str, str]) -> str:
        """Return the result of a damage; number 0 means no damage."""
        with tempfile.TemporaryDirectory() as scratch:
            files = Path(scratch) / "files"
            shutil.copytree(FIXTURES / name / "files", files)
            if number:
                damage(files, name, random.Random(f"{seed} {number}"))
            return compare(files, expected | {"kinds": kinds}, read, number == 0)

    alone = {key: after(0, {key: kind}) for key, kind in expected["kinds"].items()}
    wrong = {key: verdict for key, verdict in alone.items() if verdict.startswith("WRONG")}
    kinds = {key: kind for key, kind in expected["kinds"].items() if alone[key] == "the same"}
    for key, verdict in wrong.items():
        print(f"{name}: undamaged, {key}: {verdict}")
    if name in fixture_rows.REFUSED and set(alone.values()) == {"refused"}:
        print(f"{name}: is refused undamaged, as it must be")
        return 0
    if wrong or not kinds:
        # If the undamaged fixture cannot be read, the test proves nothing.
        print(f"{name}: is not read")
        return 1
    if kinds != expected["kinds"]:
        print(f"{name}: fields that are not read: {', '.join(expected['kinds'].keys() - kinds.keys())}")
    for number in range(1, count + 1):
        verdict = after(number, kinds)
        told[verdict.partition(":")[0]] += 1
        if verdict.startswith("WRONG"):
            print(f"{name}: seed {seed}, damage {number}: {verdict}", flush=True)
    print(
        f"{name}: seed {seed}: {', '.join(f'{kind} {times}' for kind, times in sorted(told.items()))}",
        flush=True,
    )
    return told["WRONG"]


def whole(expected: dict[str, Any]) -> bool:
    """Whether a fixture is one dataset, without several splits, and is meant to be read."""
    return any(
        reading["split"] is None and reading["path"] in (".", *MANIFESTS) for reading in expected["readings"]
    )


def main() -> int:
    """Run each fixture in its library's environment; return 1 if there is a failure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = sorted(
        path.parent.relative_to(FIXTURES).as_posix()
        for layout in ENVIRONMENTS
        for path in FIXTURES.glob(f"{layout}/*/expected.json")
        if whole(json.loads(path.read_text(encoding="utf-8")))
    )
    parser.add_argument("--module", type=Path, help="the folder that has the package `foreload`")
    parser.add_argument("--fixtures", nargs="+", choices=known, default=known, metavar="LAYOUT/NAME")
    parser.add_argument("--count", type=int, default=1000, help="damages of each fixture")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--here", action="store_true", help="read in this environment")
    chosen = parser.parse_args()
    if chosen.here:
        return min(1, sum(hammer(name, chosen.count, chosen.seed) for name in chosen.fixtures))
    sys.path.append(str(ROOT / "benches"))
    from harness import environments

    if chosen.module is None or not (chosen.module / "foreload").is_dir():
        parser.error("--module must name the folder that has the package `foreload`")
    path = [FIXTURES, FIXTURES / "writers", ROOT / "tests" / "python", chosen.module.resolve()]
    variables = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    }
    wrong = 0
    for name in chosen.fixtures:
        python = environments.ensure(ENVIRONMENTS[name.partition("/")[0]])
        words = ["--here", "--fixtures", name, "--count", chosen.count, "--seed", chosen.seed]
        command = [python, "-W", "ignore", __file__, *words]
        wrong += subprocess.run([str(word) for word in command], env=variables, check=False).returncode != 0
    return min(1, wrong)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        traceback.print_exc()
        sys.exit(2)
