"""`where=` chooses the samples that SQLite chooses, and the sizes of images are stored next to the index."""

from __future__ import annotations

import csv
import json
import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from foreload import transforms as T
from PIL import Image

COUNT = 60
COLUMNS = {"score": "REAL", "stars": "INTEGER", "lang": "TEXT", "two words": "TEXT"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, sqlite3.Connection]:
    """Images that a CSV lists, some of them without values, and the same table in SQLite with their sizes."""
    root, rng = tmp_path_factory.mktemp("table"), random.Random(7)
    base = sqlite3.connect(":memory:")
    names = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
    base.execute(f"CREATE TABLE t (id INTEGER, width INTEGER, height INTEGER, aspect REAL, {names})")
    rows = []
    for number in range(COUNT):
        width, height = rng.choice([(8, 16), (16, 8), (16, 16), (40, 10), (9, 31)])
        Image.new("RGB", (width, height)).save(root / f"{number:02}.png")
        row: dict[str, Any] = {
            "score": rng.choice([None, 0.1, 0.25, -1.5, 3.0, 1e9]),
            "stars": rng.choice([None, 0, 1, 2, 2**60, 2**60 + 1, -3]),
            "lang": rng.choice([None, "en", "EN", "de", "it's", "a dog"]),
            "two words": rng.choice(["en", "a dog and a cat", ""]),
        }
        rows.append({"file_name": f"{number:02}.png", **row})
        values = (number, width, height, width / height, *row.values())
        base.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(values))})", values)
    # Without a null, an empty text would be a missing value of the CSV.
    with (root / "list.jsonl").open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return root, base


def chosen(path: Path, where: str, **settings: Any) -> list[int]:
    settings = {"batch_size": 7, "train": False, "device": "cpu", "image_size": 8, **settings}
    loader = foreload.ImageLoader(path, where=where, **settings)
    return [sample for batch in loader for sample in np.from_dlpack(batch.sample_ids).tolist()]


class Conditions:
    """Random conditions, each in our language and in SQL."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def number(self, depth: int) -> tuple[str, str]:
        """Return an expression of numbers."""
        kind = self.random.randrange(5 if depth > 0 else 3)
        if kind == 0:
            stated = self.random.choice(["0", "1", "2", "10", "0.25", "1e9", "15.5", "-3"])
            return stated, stated
        if kind == 1:
            return ("stars", "stars")
        if kind == 2:
            name = self.random.choice(["width", "height", "aspect", "score"])
            return name, name
        (a, x), (b, y) = self.number(depth - 1), self.number(depth - 1)
        if kind == 3:
            return f"-({a})", f"-({x})"
        by = self.random.choice("+-*/")
        # SQLite divides whole numbers without rest, and gives NULL for a division by zero.
        return (f"({a} {by} {b})", f"({x} {by} {y})") if by != "/" else (f"{a} / 4", f"{x} / 4.0")

    def text(self) -> tuple[str, str]:
        """Return an expression of texts."""
        kind = self.random.randrange(4)
        if kind == 0:
            stated = self.random.choice(["en", "dog", "", "zz"])
            return f'"{stated}"', f"'{stated}'"
        if kind == 1:
            return "lower(lang)", "lower(lang)"
        return ("lang", "lang") if kind == 2 else ("`two words`", '"two words"')

    def condition(self, depth: int) -> tuple[str, str]:
        """Return a condition that has others to this depth."""
        kind = self.random.randrange(9 if depth > 0 else 5)
        by, sql = self.random.choice(
            [("<", "<"), ("<=", "<="), ("==", "="), ("=", "="), ("!=", "<>"), (">", ">"), (">=", ">=")]
        )
        if kind == 0:
            (a, x), (b, y) = self.text(), self.text()
            return f"{a} {by} {b}", f"{x} {sql} {y}"
        if kind == 1:
            (a, x), no = self.text(), self.random.choice(["", "not "])
            return f"{a} is {no}missing", f"{x} IS {no}NULL"
        if kind == 2:
            (a, x), no = self.number(1), self.random.choice(["", "not "])
            return f"{a} {no}in [1, 2, -3, 0.25]", f"{x} {no}IN (1, 2, -3, 0.25)"
        if kind == 3:
            (a, x), (b, y) = self.text(), self.text()
            return f"{a} in {b}", f"instr({y}, {x}) > 0"
        if kind == 4:
            (a, x), (b, y) = self.number(depth), self.number(depth)
            return f"{a} {by} {b}", f"{x} {sql} {y}"
        (a, x), (b, y) = self.condition(depth - 1), self.condition(depth - 1)
        if kind == 5:
            return f"not ({a})", f"NOT ({x})"
        if kind == 6:
            return f"len(lang) {by} 2 or {a}", f"length(lang) {sql} 2 OR {x}"
        word = self.random.choice(["and", "or"])
        return f"({a} {word} {b})", f"({x} {word} {y})"


def test_where_chooses_what_sqlite_chooses(table: tuple[Path, sqlite3.Connection]) -> None:
    root, base = table
    seed = int(os.environ.get("FORELOAD_SEED", "1"))
    print(f"FORELOAD_SEED={seed}")
    conditions = Conditions(seed)
    some = 0
    for _ in range(300):
        ours, sql = conditions.condition(3)
        expected = [row[0] for row in base.execute(f"SELECT id FROM t WHERE {sql} ORDER BY id")]
        if not expected:
            with pytest.raises(foreload.ConfigError, match="is true for none"):
                chosen(root / "list.jsonl", ours)
            continue
        found = chosen(root / "list.jsonl", ours)
        assert found == expected, f"{ours}\n{sql}"
        some += len(expected) < COUNT
    assert some > 100, "the conditions choose some of the samples"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("width >> 3", 'mistake at character 8, at "> 3"'),
        ("width >= 512 and", "ends too early"),
        ("(width > 3", "ends too early"),
        ("score > 'a'", "mistake at character 1: a number cannot be compared with a text"),
        ("3 < hight", 'mistake at character 5: the dataset has no column "hight"'),
        ("width", "the whole is a value"),
        ("not width", "mistake at character 5: this is a number, but true or false is needed"),
        ("lang + 1 > 2", "mistake at character 1: this is a text"),
        ("len(stars) > 1", "mistake at character 5: this is a number"),
        ("width > 1000", "is true for none"),
        ("(" * 5000, "too long"),
        ("not " * 900 + "true", "too long"),
        ("", "must be"),
        (3, "must be"),
    ],
    ids=lambda of: str(of)[:20],
)
def test_mistakes_are_named(table: tuple[Path, sqlite3.Connection], where: Any, message: str) -> None:
    with pytest.raises(foreload.ConfigError) as refused:
        chosen(table[0] / "list.jsonl", where)
    assert str(refused.value).startswith("config: where: "), refused.value
    assert message in str(refused.value).replace("\\", "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(24):
        path = tmp_path / "data" / f"class{number % 2}" / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = (48, 24) if number % 3 == 0 else (24, 24 + number)
        Image.new("RGB", size, (number, 0, 0)).save(path)
    return tmp_path / "data"


def test_where_goes_with_other_selections_and_own_columns(folder: Path, tmp_path: Path) -> None:
    names = sorted(folder.glob("*/*.jpg"))
    with (tmp_path / "own.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerow(["file_name", "quality"])
        writer.writerows([path.relative_to(folder), 0.1 * (at % 4)] for at, path in enumerate(names))
    wide = [at for at, path in enumerate(names) if int(path.stem) % 3 == 0]
    assert chosen(folder, "aspect > 1.5") == wide
    assert chosen(folder, "width = 48 AND NOT height > 24", classes=["class1"]) == [
        at for at in wide if at >= 12
    ]
    assert chosen(folder, "width = 48", indices=range(23, 0, -1)) == [at for at in reversed(wide) if at > 0]
    # 0.1 is not exact: numbers of `labels` are float32, and are compared as such.
    own = chosen(folder, "quality = 0.1 and height < 40", labels=tmp_path / "own.csv")
    assert own == [
        at
        for at, path in enumerate(names)
        if at % 4 == 1 and (int(path.stem) % 3 == 0 or int(path.stem) < 16)
    ]
    loader = foreload.ImageLoader(folder, where="aspect > 1.5", batch_size=2, device="cpu")
    state = loader.state_dict()
    other = foreload.ImageLoader(folder, where="aspect < 1.5", batch_size=2, device="cpu")
    with pytest.raises(foreload.ConfigError):
        other.load_state_dict(state)
    with pytest.raises(foreload.ConfigError, match="none of the fields is an image"):
        foreload.Loader(folder, fields=["label"], where="width > 3", batch_size=2, device="cpu")


def index(*words: str | Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "foreload", "index", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_sizes_are_stored_and_counted(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FORELOAD_INDEX_DIR", str(tmp_path / "index"))
    found = index(folder, "--sizes")["sizes"]
    assert (found["samples"], found["unreadable"]) == (24, 0)
    assert found["width"] == {"least": 24, "median": 24, "largest": 48}
    [path] = found["paths"]
    before = Path(path).stat().st_mtime_ns
    found = index(
        folder, "--buckets", "2048", "--buckets-step", "32", "--where", "len('ab') == 2 and aspect > 1.5"
    )
    assert found["sizes"]["chosen"] == 8
    images = {(of["height"], of["width"]): of["images"] for of in found["sizes"]["buckets"]}
    assert sum(images.values()) == images[32, 64] == 8, images
    assert Path(path).stat().st_mtime_ns == before, "no size is measured again"
    text = subprocess.run(
        [sys.executable, "-m", "foreload", "index", folder, "--sizes"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "24 images: width 24 to 48, median 24" in text.stdout


def test_only_headers_are_read(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (600, 600, 3), dtype=np.uint8)
    (tmp_path / "data").mkdir()
    for number in range(4):
        Image.fromarray(noise).save(tmp_path / "data" / f"{number}.png", compress_level=0)
    settings: dict[str, Any] = {"batch_size": 1, "device": "cpu", "where": "width = 600"}
    foreload.ImageLoader(tmp_path / "data", batch_size=1, device="cpu")

    def bytes_read() -> int:
        return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])

    before = bytes_read()
    foreload.ImageLoader(tmp_path / "data", **settings)
    assert bytes_read() - before < 300_000, "4 files of 1 MB"


def test_a_file_that_was_rewritten_is_reported(folder: Path) -> None:
    settings: dict[str, Any] = {
        "batch_size": 2,
        "buckets": [(32, 32), (32, 64), (64, 32)],
        "last_batch": "pad",
        "device": "cpu",
        "transforms": [T.ResizeToCover("bucket"), T.CenterCrop("bucket")],
    }
    list(foreload.ImageLoader(folder, **settings))
    first = min(folder.glob("*/*.jpg"))
    stamp = first.parent.stat()
    # The file keeps its length, so that the index stays valid.
    length = first.stat().st_size
    Image.new("RGB", (12, 36)).save(first, quality=1)
    with first.open("r+b") as file:
        file.truncate(length) if first.stat().st_size >= length else file.write(
            first.read_bytes().ljust(length, b"\0")
        )
    os.utime(first.parent, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with pytest.warns(
        foreload.Warning, match=r"another shape than when their sizes were measured.*now 12x36"
    ):
        list(foreload.ImageLoader(folder, **settings))
    loader = foreload.ImageLoader(folder, rebuild_index=True, **settings)
    list(loader)


def test_damaged_and_missing_sizes_are_measured_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FORELOAD_INDEX_DIR", str(tmp_path / "index"))
    expected = index(folder, "--sizes")["sizes"]
    path = Path(expected["paths"][0])
    whole = path.read_bytes()
    random.seed(4)
    for _ in range(60):
        damaged = bytearray(whole)
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        path.write_bytes(damaged[: random.randrange(len(damaged))] if random.random() < 0.3 else damaged)
        assert chosen(folder, "aspect > 1.5", index_dir=tmp_path / "index") == chosen(
            folder, "aspect > 1.5", index_dir=tmp_path / "other"
        )
    assert index(folder, "--sizes")["sizes"] == expected
    assert path.read_bytes() == whole


def test_sizes_that_cannot_be_stored(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FORELOAD_INDEX_DIR", str(tmp_path / "index"))
    path = Path(index(folder, "--sizes")["sizes"]["paths"][0])
    path.unlink()
    # A file cannot replace a directory, not even for root.
    path.mkdir()
    with pytest.warns(foreload.Warning, match="cannot be stored next to the index"):
        assert len(chosen(folder, "aspect > 1.5")) == 8
