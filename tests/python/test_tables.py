"""`labels=`: the types of columns, and errors for columns without a type, rows without a sample, and files that are no
tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from conftest import paths
from foreload import fields
from numpy import from_dlpack as array

SAMPLES = 60


def by_sample(loader: foreload.ImageLoader, name: str) -> list[Any]:
    """Return a field's values, in the order of the index."""
    found: dict[int, Any] = {}
    for batch in loader:
        values = batch[name]
        values = values if isinstance(values, list) else list(array(values))
        found.update(zip(array(batch.sample_ids).tolist(), values, strict=True))
    return [found[number] for number in range(len(found))]


def of(dataset: Path, labels: Any, *asked: Any, **more: Any) -> foreload.ImageLoader:
    named = {"fields": ["image", *asked]} if asked else {}
    return foreload.ImageLoader(dataset, batch_size=20, image_size=8, labels=labels, **named, **more)


def csv(path: Path, values: list[Any], name: str = "x") -> Path:
    path.write_text(
        f"sample_id,{name}\n" + "".join(f"{number},{value}\n" for number, value in enumerate(values))
    )
    return path


def jsonl(path: Path, values: list[Any], name: str = "x") -> Path:
    lines = (json.dumps({"sample_id": number, name: value}) for number, value in enumerate(values))
    path.write_text("".join(line + "\n" for line in lines))
    return path


TABLES = pytest.mark.parametrize("write", [csv, jsonl])


def table(tmp_path: Path, write: Any, values: list[Any]) -> Path:
    return write(tmp_path / f"t.{write.__name__}", values)


@TABLES
def test_whole_numbers_stay_what_they_are(dataset: Path, tmp_path: Path, write: Any) -> None:
    """No integer is silently changed: neither above int64 nor in a column with fractions."""
    ids = [2**63 - 1 - number for number in range(SAMPLES)]
    path = table(tmp_path, write, ids)
    assert by_sample(of(dataset, path, "x"), "x") == ids
    path = table(tmp_path, write, [*ids[1:], 2**63 + 5])
    with pytest.raises(
        foreload.ConfigError, match=r'labels: .*line 6[01]: "x" is 9223372036854775813, .*int64'
    ):
        of(dataset, path, "x")
    assert by_sample(of(dataset, path, fields.Text("x")), "x") == [*map(str, ids[1:]), str(2**63 + 5)]
    mixed = [0.5] * (SAMPLES - 1) + [2**24]
    assert by_sample(of(dataset, table(tmp_path, write, mixed), "x"), "x") == mixed
    path = table(tmp_path, write, [*mixed[:-1], 2**24 + 1])
    with pytest.raises(foreload.ConfigError, match=r'"x" is 16777217, which is an integer that float32'):
        of(dataset, path, "x")
    assert by_sample(of(dataset, path, fields.Float("x")), "x")[-1] == np.float32(2**24)


@TABLES
def test_infinities_are_meant(dataset: Path, tmp_path: Path, write: Any) -> None:
    values = [float("nan"), float("inf"), float("-inf")] * 20
    found = by_sample(of(dataset, table(tmp_path, write, values), "x"), "x")
    np.testing.assert_array_equal(found, values)
    for number in (1e300, -1e39):
        path = table(tmp_path, write, [number] * SAMPLES)
        with pytest.raises(foreload.ConfigError, match=r"labels: .*which exceeds the range of float32"):
            of(dataset, path, "x")
    path = table(tmp_path, write, [1.5] * SAMPLES)
    path.write_text(path.read_text().replace("1.5", "1e400", 1))
    with pytest.raises(foreload.ConfigError, match=r'"x" is 1e400, which exceeds the range of float32'):
        of(dataset, path, fields.Float("x"))


@TABLES
def test_a_column_is_of_the_kind_that_is_asked_for(dataset: Path, tmp_path: Path, write: Any) -> None:
    path = table(tmp_path, write, list(range(SAMPLES)))
    assert {value.dtype for value in by_sample(of(dataset, path, fields.Float("x")), "x")} == {
        np.dtype("float32")
    }
    assert by_sample(of(dataset, path, fields.Text("x")), "x") == [str(number) for number in range(SAMPLES)]
    path = table(tmp_path, write, [number / 2 for number in range(SAMPLES)])
    with pytest.raises(foreload.ConfigError, match=r'"x" is 0.5, which is not an integer'):
        of(dataset, path, fields.Integer("x"))
    path = table(tmp_path, write, [float(number) for number in range(SAMPLES)])
    found = by_sample(of(dataset, path, fields.Integer("x")), "x")
    assert (found[0].dtype, found) == ("int64", list(range(SAMPLES)))
    for kind in (fields.Mask, fields.Image, fields.Boxes, fields.Json, fields.Bytes, fields.Array):
        with pytest.raises(foreload.ConfigError, match=r'^config: fields: has "x", a column of labels='):
            of(dataset, path, kind("x"))
    with pytest.raises(foreload.ConfigError, match=r'^config: fields: has "x", .* as optional'):
        of(dataset, path, fields.Float("x", optional=True))
    path = table(tmp_path, write, ["a"] * SAMPLES)
    with pytest.raises(foreload.ConfigError, match=r'"x" is "?a"?, must be a number'):
        of(dataset, path, fields.Float("x"))


def test_text_is_as_it_stands_in_the_table(dataset: Path, tmp_path: Path) -> None:
    codes = [f"{number:05}" for number in range(SAMPLES)]
    path = csv(tmp_path / "t.csv", codes)
    assert by_sample(of(dataset, path, fields.Text("x")), "x") == codes
    assert by_sample(of(dataset, path, "x"), "x") == list(range(SAMPLES))
    assert by_sample(of(dataset, jsonl(tmp_path / "t.jsonl", codes), "x"), "x") == codes


def test_the_datasets_own_label_is_an_integer(dataset: Path) -> None:
    for kind in (fields.Text, fields.Mask, fields.Float):
        with pytest.raises(
            foreload.ConfigError, match="the dataset's class number, as a kind other than Integer"
        ):
            foreload.ImageLoader(dataset, fields=["image", kind("label")])
    loader = foreload.ImageLoader(
        dataset, batch_size=20, image_size=8, fields=["image", fields.Integer("label")]
    )
    assert by_sample(loader, "label") == loader.targets.tolist()


def test_rows_of_no_sample_say_nothing_of_the_others(dataset: Path, tmp_path: Path) -> None:
    """A table may have rows for more than the dataset; only the user knows whether that is intended."""
    names = [path.relative_to(dataset) for path in paths(dataset)]
    good = "file_name,x\n" + "".join(f"{name},{number}\n" for number, name in enumerate(names))
    path = tmp_path / "t.csv"
    for other in ("NA", "0.5", "", str(2**70)):
        path.write_text(good + f"val/x.jpg,{other}\nval/y.jpg,7\n")
        with pytest.warns(
            foreload.Warning, match=r"2 of 62 rows match no sample .* line 62: .val/x.jpg"
        ) as told:
            loader = of(dataset, path, "x")
        assert len(told) == 1
        assert by_sample(loader, "x") == list(range(SAMPLES))
    path.write_text(good + 'val/x.jpg,"abc\n')
    with pytest.raises(foreload.ConfigError, match="line 62: has a quote that is never closed"):
        of(dataset, path, "x")
    path.write_text(good.replace(",3\n", ',"3"\n').replace(",4\n", ',"a ""b"", c"\n'))
    assert by_sample(of(dataset, path, "x"), "x")[3:5] == ["3", 'a "b", c']


def test_two_columns_of_one_name_are_refused(dataset: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("sample_id,x,x\n" + "".join(f"{number},1,2\n" for number in range(SAMPLES)))
    with pytest.raises(foreload.ConfigError, match=r'labels: .*has two columns "x"'):
        of(dataset, path, "x")
    path = tmp_path / "t.jsonl"
    for lines in (range(SAMPLES), [5]):
        text = [f'{{"sample_id": {number}, "x": 1}}' for number in range(SAMPLES)]
        for number in lines:
            text[number] = text[number].replace("1}", '1, "x": 2}')
        path.write_text("\n".join(text))
        with pytest.raises(foreload.ConfigError, match=r'labels: .*line [16]: has "x" twice'):
            of(dataset, path, "x")


def test_a_sample_has_one_row(dataset: Path, tmp_path: Path) -> None:
    names = [path.relative_to(dataset) for path in paths(dataset)]
    rows = [f"{name},{number}" for number, name in enumerate(names)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["file_name,x", *rows, f"{names[7].with_suffix('')},10"]))
    with pytest.raises(foreload.ConfigError, match="line 62: is for the same sample as line 9"):
        of(dataset, path, "x")
    rows = [f"{name},{number},{number}" for number, name in enumerate(names)]
    path.write_text("\n".join(["file_name,sample_id,x", *rows]))
    assert by_sample(of(dataset, path), "label") == list(range(SAMPLES)), "both name the samples"
    for wrong in ("8", "-1", "x"):
        path.write_text("\n".join(["file_name,sample_id,x", *rows[:7], f"{names[7]},{wrong},7", *rows[8:]]))
        with pytest.raises(
            foreload.ConfigError, match=rf"line 9: sample_id is {wrong}, (but .* is sample 7|must be)"
        ):
            of(dataset, path, "x")


def test_a_sample_id_says_what_it_is(dataset: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for given, shown in [("0", '"0", a text'), (0.0, "0.0"), (True, "true"), (60, "60"), (-1, "-1")]:
        path.write_text(json.dumps({"sample_id": given, "x": 1}))
        with pytest.raises(
            foreload.ConfigError, match=f"line 1: sample_id is {shown}, must be a whole number from 0 to 59"
        ):
            of(dataset, path, "x")


def test_json_lines_are_what_python_writes(dataset: Path, tmp_path: Path) -> None:
    path = jsonl(tmp_path / "t.jsonl", [float("nan"), 1.5] * 30)
    path.write_text("\ufeff" + path.read_text(), encoding="utf-8")
    np.testing.assert_array_equal(by_sample(of(dataset, path, "x"), "x"), [np.nan, 1.5] * 30)
    vectors = [[float("-inf"), 1, number] for number in range(SAMPLES)]
    found = by_sample(of(dataset, jsonl(path, vectors), "x"), "x")
    np.testing.assert_array_equal(found, np.array(vectors, np.float32))
    truths = by_sample(of(dataset, jsonl(path, [[True, False]] * SAMPLES), "x"), "x")
    assert (truths[0].dtype, truths[0].tolist()) == ("uint8", [1, 0])


def test_lists_are_taken_as_they_are(dataset: Path) -> None:
    def label(labels: Any, *asked: Any) -> np.ndarray:
        return np.array(by_sample(of(dataset, labels, *asked), "label"))

    assert label(range(SAMPLES)).tolist() == list(range(SAMPLES))
    assert label([0, 0.5] * 30).tolist() == [0, 0.5] * 30
    hot = np.arange(SAMPLES * 3).reshape(SAMPLES, 3) % 2 == 0
    assert label(hot).dtype == np.uint8
    np.testing.assert_array_equal(label(hot), hot)
    np.testing.assert_array_equal(label(hot[:, 0]), hot[:, 0])
    np.testing.assert_array_equal(label(hot.tolist(), fields.Float("label")), hot.astype(np.float32))
    large = np.full((SAMPLES, 2), 2**63 - 1)
    np.testing.assert_array_equal(label(large), large)
    assert label([2**24 + 1, 0.5] * 30, fields.Float("label"))[0] == 2**24
    assert label(np.arange(SAMPLES) * 1.0, fields.Integer("label")).dtype == np.int64
    for wrong, message in [
        ([2**24 + 1, 0.5] * 30, "has 16777217 for sample 0, which is an integer that float32"),
        ([0.5] * 59 + [1e300], r"has 1e\+?300 for sample 59, which exceeds the range of float32"),
        (
            np.full(SAMPLES, 2**63 + 1, np.uint64),
            "has 9223372036854775809 for sample 0, which exceeds the range of int64",
        ),
        ([[1, 2]] * 59 + [[1, 2, 3]], "has a list of 3 for sample 59, a list of 2 for sample 0"),
        ([1] * 59 + [[1]], "has a list of 1 for sample 59, a number for sample 0"),
        (["a"] * SAMPLES, 'has "a" for sample 0, which is not a number'),
        ([], r"is \(\)"),
    ]:
        with pytest.raises(foreload.ConfigError, match=f"^config: labels: {message}"):
            of(dataset, wrong)
    with pytest.raises(
        foreload.ConfigError, match=r'^config: fields: has "label", whose numbers come from labels='
    ):
        of(dataset, range(SAMPLES), fields.Mask("label"))


def test_a_file_that_is_not_there_is_named_with_its_setting(dataset: Path) -> None:
    with pytest.raises(foreload.ConfigError, match=r"^config: labels: nope.csv cannot be read: No such file"):
        foreload.ImageLoader(dataset, labels="nope.csv")
    with pytest.raises(foreload.ConfigError, match=r"^config: files: nope.txt cannot be read: No such file"):
        foreload.ImageLoader(dataset, files="nope.txt")
