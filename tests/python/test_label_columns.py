"""`labels=`: the user's own columns, from arrays and from tables."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
import shards
from conftest import paths
from numpy import from_dlpack as array
from PIL import Image


def rows(dataset: Path) -> list[dict[str, Any]]:
    """Return a row for each file, in another order than the index's; each value depends on the file."""
    names = [str(path.relative_to(dataset)) for path in paths(dataset)]
    made = [
        {
            "file_name": name,
            "age": number,
            "score": number / 8,
            "name": f"Nº {number}, {name}",
            "box": [number, 1, 2.5],
        }
        for number, name in enumerate(names)
    ]
    return made[::-1]


def check(dataset: Path, labels: Path, names: list[str]) -> None:
    loader = foreload.ImageLoader(
        dataset,
        batch_size=20,
        image_size=8,
        labels=labels,
        fields=[*names, "image", "label"],
        last_batch="partial",
    )
    made = {row["file_name"]: row for row in rows(dataset)}
    files = [str(path.relative_to(dataset)) for path in paths(dataset)]
    for batch in loader:
        of = [made[files[number]] for number in array(batch.sample_ids).tolist()]
        for name in names:
            wanted = [row[name] for row in of]
            if name == "name":
                assert batch[name] == wanted
            else:
                assert array(batch[name]).dtype == ("int64" if name == "age" else "float32")
                assert array(batch[name]).tolist() == wanted
        # The dataset's own classes do not change.
        assert array(batch["label"]).tolist() == array(batch.labels).tolist()


def test_columns_of_json_lines(dataset: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows(dataset)))
    check(dataset, table, ["age", "score", "name", "box"])


@pytest.mark.parametrize("separator", [",", "\t"])
def test_columns_of_a_table(dataset: Path, tmp_path: Path, separator: str) -> None:
    """The table is in the format of Python's csv, with quotes, and with the byte order mark that spreadsheets add."""
    table = tmp_path / ("t.csv" if separator == "," else "t.tsv")
    with table.open("w", encoding="utf-8-sig" if separator == "," else "utf-8", newline="") as file:
        writer = csv.DictWriter(
            file, ["age", "name", "file_name", "score"], delimiter=separator, extrasaction="ignore"
        )
        writer.writeheader()
        writer.writerows(rows(dataset))
    check(dataset, table, ["age", "score", "name"])
    table.write_text(table.read_text().replace("age", "age" + separator, 1))
    with pytest.raises(foreload.ConfigError, match=r"labels: .*line 2: is not a valid row"):
        foreload.ImageLoader(dataset, labels=table, fields=["image", "age"])


@pytest.mark.parametrize("kind", ["label", "target"])
def test_a_table_gives_the_label_of_an_unlabelled_dataset(dataset: Path, tmp_path: Path, kind: str) -> None:
    """A single column is the label, whatever its name; of several columns, the label is the one called `label`."""
    table = tmp_path / "t.jsonl"
    others = {"other": 1} if kind == "label" else {}
    lines = ({"sample_id": number, kind: number * 1.5, **others} for number in range(60))
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for batch in foreload.ImageLoader(dataset, batch_size=20, image_size=8, labels=table):
        ids = array(batch.sample_ids)
        assert array(batch.labels).dtype == np.float32
        np.testing.assert_array_equal(array(batch.labels), ids * 1.5)
        np.testing.assert_array_equal(array(batch["label"]), ids * 1.5)


@pytest.mark.parametrize(
    "labels",
    [
        np.arange(60) * 3,
        np.arange(60, dtype=np.float32) / 4,
        np.arange(180).reshape(60, 3),
        (np.arange(180).reshape(60, 3) / 4).tolist(),
    ],
    ids=["whole numbers", "numbers", "vectors", "lists"],
)
def test_arrays_are_labels(dataset: Path, labels: Any) -> None:
    wanted = np.asarray(labels)
    for batch in foreload.ImageLoader(dataset, batch_size=20, image_size=8, labels=labels, seed=4):
        found = array(batch.labels)
        assert found.dtype == ("int64" if wanted.dtype.kind == "i" else "float32")
        np.testing.assert_array_equal(found, wanted[array(batch.sample_ids)])


def test_what_does_not_fit_is_refused(dataset: Path, tmp_path: Path) -> None:
    made = rows(dataset)
    table = tmp_path / "t.jsonl"

    def refused(lines: list[dict[str, Any]], message: str, **settings: Any) -> None:
        table.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with pytest.raises(foreload.ConfigError, match=f"^config: labels: .*{message}"):
            foreload.ImageLoader(dataset, labels=table, fields=["image", "age"], **settings)

    refused(made[1:], "has no row for 1 of 60 samples, e.g. sample 59")
    refused([*made, made[3]], "line 61: names .* as line 4 does")
    refused([{"who": 1}], "has no column that identifies the sample")
    refused(
        [{**row, "age": None if number == 7 else 3} for number, row in enumerate(made)],
        'line 8: "age" is empty',
    )
    refused([{**row, "age": {"years": 3}} for row in made], 'line 1: "age" is .*, must be a number')
    refused(
        [{"sample_id": number + 1, "age": 1} for number in range(60)],
        "line 60: sample_id is 60, must be a whole number from 0 to 59",
    )
    table.write_text("{")
    with pytest.raises(foreload.ConfigError, match="line 1: is not a JSON object"):
        foreload.ImageLoader(dataset, labels=table)
    with pytest.raises(foreload.ConfigError, match=r"must be a file that ends in .*jsonl"):
        foreload.ImageLoader(dataset, labels=tmp_path / "t.xlsx")
    with pytest.raises(foreload.ConfigError, match="has 59 values, but the dataset has 60 samples"):
        foreload.ImageLoader(dataset, labels=np.arange(59))
    with pytest.raises(foreload.ConfigError, match="labels: is 3, must be the path or URL of a table"):
        foreload.ImageLoader(dataset, labels=3)
    several = [{"file_name": row["file_name"], "age": 1, "score": 2} for row in made]
    table.write_text("".join(json.dumps(line) + "\n" for line in several))
    with pytest.raises(
        foreload.ConfigError, match='has the columns "age", "score", but none is called "label"'
    ):
        foreload.ImageLoader(dataset, labels=table)


def test_a_row_is_of_one_file(tmp_path: Path) -> None:
    """A name that matches several files (without its extension, or in two datasets) does not label all of them."""
    for name in ("0.png", "1.jpg", "1.png", "1.webp"):
        for root in ("one", "two"):
            (tmp_path / root / "k").mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8)).save(tmp_path / root / "k" / name)
    table, settings = (
        tmp_path / "t.csv",
        {"batch_size": 4, "image_size": 8, "train": False, "labels": tmp_path / "t.csv"},
    )
    table.write_text("\ufefffile_name,label\nk/0,7\nk/1,8\n")
    with pytest.raises(
        foreload.ConfigError, match=r'line 3: "k/1" matches both .*1\.jpg and .*1\.webp: write its extension'
    ):
        foreload.ImageLoader(tmp_path / "one", **settings)
    table.write_text(
        "\ufefffile_name,label\nk/0,7\n" + "".join(f"k/1.{of},8\n" for of in ("jpg", "png", "webp"))
    )
    (batch,) = foreload.ImageLoader(tmp_path / "one", **settings)
    assert array(batch.labels).tolist() == [7, 8, 8, 8]
    with pytest.raises(
        foreload.ConfigError,
        match=r'line 2: "k/0" matches both .*one/k/0\.png and .*two/k/0\.png: write .*sample_id',
    ):
        foreload.ImageLoader([tmp_path / "one", tmp_path / "two"], **settings)


def test_a_column_is_not_taken_for_a_member(tmp_path: Path) -> None:
    """The type of a field with this name is ambiguous; only the class number may be replaced."""
    root = shards.make(tmp_path / "shards", 12, 2, shards.pair)
    table = tmp_path / "t.csv"

    def loaded(column: str, *asked: Any) -> foreload.ImageLoader:
        table.write_text(f"sample_id,{column}\n" + "".join(f"{number},{number}\n" for number in range(12)))
        return foreload.ImageLoader(
            root, batch_size=4, image_size=8, labels=table, fields=["left.jpg", *asked]
        )

    for column, is_too in [
        ("left.jpg", "an image by its name"),
        ("x.seg.png", "a mask by its name"),
        ("small.npy", "a member of the shards"),
    ]:
        message = f'^config: fields: has "{column}", which is both {is_too} and a column of labels=: rename'
        with pytest.raises(foreload.ConfigError, match=message):
            loaded(column, *([] if column == "left.jpg" else [column]))
    for column in ("cls", "label", "age", "Age"):
        for batch in loaded(column, column):
            assert array(batch[column]).tolist() == array(batch.sample_ids).tolist()
    # This member is not read.
    assert "small.npy" not in loaded("small.npy").fields
