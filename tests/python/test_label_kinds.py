"""Labels in each layout: integers are class numbers, strings are names of classes, others give an error."""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
import shards
from PIL import Image
from shards import saved
from test_fixtures import READABLE, cases

SHARDS = 2
PER_SHARD = 3

Labels = Sequence[Any]
"""The labels of six samples, three in each of two shards if there are shards."""


def image(number: int) -> bytes:
    """Return an image whose grey level encodes the number of its sample."""
    return saved(Image.new("RGB", (8, 8), (40 * number,) * 3), "png")


def shards_of(labels: Labels) -> list[list[tuple[int, Any]]]:
    """Return the numbered labels of each shard."""
    numbered = list(enumerate(labels))
    return [numbered[at : at + PER_SHARD] for at in range(0, len(numbered), PER_SHARD)]


def write_csv(root: Path, column: str, labels: Labels) -> Path:
    """Write a manifest whose cells are strings without quotes."""
    rows = [f"{number}.png,{'' if label is None else label}" for number, label in enumerate(labels)]
    (root / "all.csv").write_text("\n".join([f"file_name,{column}", *rows]) + "\n")
    return root / "all.csv"


def write_lines(root: Path, column: str, labels: Labels) -> Path:
    """Write a manifest of JSON lines."""
    rows = [json.dumps({"file_name": f"{number}.png", column: label}) for number, label in enumerate(labels)]
    (root / "all.jsonl").write_text("\n".join(rows) + "\n")
    return root / "all.jsonl"


def write_tars(root: Path, column: str, labels: Labels) -> Path:
    """Write tars whose JSON members have the labels."""
    for shard, rows in enumerate(shards_of(labels)):
        samples = []
        for number, label in rows:
            document = json.dumps({} if label is None else {column: label}).encode()
            samples.append((str(number), {"png": image(number), "json": document}))
        shards.write(root / f"{shard}.tar", samples)
    return root


def write_mds(root: Path, column: str, labels: Labels) -> Path:
    """Write shards of MosaicML Streaming: sizes, offsets, and values one after another."""
    is_text = isinstance(labels[0], str)
    encoding = "str" if is_text else "int" if isinstance(labels[0], int) else "float64"
    lists = []
    for shard, rows in enumerate(shards_of(labels)):
        samples = []
        for number, label in rows:
            if is_text:
                values = [image(number), label.encode()]
                head = struct.pack("<2I", *map(len, values))
            else:
                values = [image(number), struct.pack("<q" if encoding == "int" else "<d", label)]
                head = struct.pack("<I", len(values[0]))
            samples.append(head + b"".join(values))
        offsets = np.cumsum([4 + 4 * (len(samples) + 1), *map(len, samples)]).astype(np.uint32)
        data = struct.pack("<I", len(samples)) + offsets.tobytes() + b"".join(samples)
        name = f"shard.{shard:05}.mds"
        (root / name).write_bytes(data)
        lists.append(
            {
                "format": "mds",
                "version": 2,
                "column_names": ["image", column],
                "column_encodings": ["png", encoding],
                "column_sizes": [None, None if is_text else 8],
                "compression": None,
                "hashes": [],
                "size_limit": 1 << 26,
                "samples": len(samples),
                "raw_data": {"basename": name, "bytes": len(data), "hashes": {}},
                "zip_data": None,
            }
        )
    (root / "index.json").write_text(json.dumps({"version": 2, "shards": lists}))
    return root


def write_arrow(root: Path, column: str, labels: Labels, **how: Any) -> Path:
    """Write Parquet files, or Arrow files with a dictionary."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed; make test-frameworks has it")
    from pyarrow import parquet

    for shard, rows in enumerate(shards_of(labels)):
        values = pa.array([label for _, label in rows])
        images = pa.array([image(number) for number, _ in rows], pa.binary())
        if how.get("dictionary"):
            table = pa.table({"image": images, column: values.dictionary_encode()})
            with (
                pa.OSFile(str(root / f"{shard}.arrow"), "wb") as file,
                pa.ipc.new_file(file, table.schema) as writer,
            ):
                writer.write_table(table)
        else:
            parquet.write_table(pa.table({"image": images, column: values}), root / f"{shard}.parquet")
    return root


WRITERS: dict[str, Callable[..., Path]] = {
    "csv": write_csv,
    "jsonl": write_lines,
    "tar": write_tars,
    "mds": write_mds,
    "parquet": write_arrow,
    "arrow dictionary": lambda *what: write_arrow(*what, dictionary=True),
}

KINDS: dict[str, tuple[Labels, list[int], list[str]]] = {
    "names": (["cat", "dog", "cat", "ant", "dog", "cow"], [1, 3, 1, 0, 3, 2], ["ant", "cat", "cow", "dog"]),
    "numbers": ([2, 0, 1, 1, 3, 0], [2, 0, 1, 1, 3, 0], []),
    "whole floats": ([2.0, 0.0, 1.0, 1.0, 3.0, 0.0], [2, 0, 1, 1, 3, 0], []),
    "truths": ([True, False, True, True, False, True], [1, 0, 1, 1, 0, 1], []),
    "numbers as names": (["10", "2", "1", "2", "0", "1"], [3, 2, 1, 2, 0, 1], ["0", "1", "2", "10"]),
}
"""Labels of each kind, with their class numbers and names."""


def loader_of(path: Path, **settings: Any) -> foreload.ImageLoader:
    """Return a loader that delivers samples in their order."""
    usual = dict(batch_size=4, image_size=8, train=False, dtype="uint8", device="cpu")
    return foreload.ImageLoader(path, **{**usual, **settings})


def labels_by_level(loader: foreload.ImageLoader) -> list[int]:
    """Return the label of each sample, by the number in its image."""
    found = {}
    for batch in loader:
        levels = np.from_dlpack(batch.images).mean(axis=(1, 2, 3)) / 40
        found.update(
            zip(levels.round().astype(int).tolist(), np.from_dlpack(batch.labels).tolist(), strict=True)
        )
    return [found[number] for number in range(len(found))]


def write_images(root: Path) -> None:
    """Write the six images that manifests list."""
    for number in range(SHARDS * PER_SHARD):
        (root / f"{number}.png").write_bytes(image(number))


@pytest.mark.filterwarnings("ignore:.*class names look like numbers")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", WRITERS)
def test_labels_are_the_same_classes_in_every_layout(layout: str, kind: str, tmp_path: Path) -> None:
    labels, numbers, classes = KINDS[kind]
    if (layout, kind) == ("csv", "numbers as names"):
        # Without quotes, cells are the numbers themselves, not strings.
        numbers, classes = [int(label) for label in labels], []
    if (layout, kind) == ("csv", "truths"):
        # These cells are strings, whose sort order is that of the numbers.
        classes = ["False", "True"]
    # By the usual name, by a name that the user gives, and by another usual name.
    for column, named in {"label": {}, "species": {"label": "species"}, "labels": {}}.items():
        if (layout, column) == ("tar", "labels"):
            continue
        place = tmp_path / column
        place.mkdir()
        if layout in ("csv", "jsonl"):
            write_images(place)
        loader = loader_of(WRITERS[layout](place, column, labels), **named)
        found = (labels_by_level(loader), loader.targets.tolist(), loader.classes)
        assert found == (numbers, numbers, classes)


@pytest.mark.filterwarnings("ignore::foreload.Warning")
@pytest.mark.parametrize(("name", "expected", "reading"), cases())
def test_a_named_column_has_the_labels_that_libraries_read(
    name: str, expected: dict[str, Any], reading: dict[str, Any]
) -> None:
    if name not in READABLE or name.startswith(("folder", "imagenet")):
        pytest.skip("no columns, or none that is read")
    path = (Path(__file__).parents[1] / "fixtures" / name / "files" / reading["path"]).resolve()
    split = {"split": reading["split"]} if reading["split"] else {}
    image_field = next(field for field, kind in expected["kinds"].items() if kind == "image")
    count = 0
    for column, kind in expected["kinds"].items():
        if kind not in ("text", "integer") or "/bbox/" in column:
            continue
        values = [sample[column] for sample in reading["samples"]]
        texts = ["" if value is None else str(value).strip() for value in values]
        if name.startswith("webdataset") and not all(text and "\n" not in text for text in texts):
            continue
        count += 1
        named = dict(**split, label=column, fields=[image_field, "label"])
        # An empty string is no label.
        missing = [value in (None, "") for value in values]
        if any(missing) or (kind == "integer" and not all(0 <= value < 2**32 - 1 for value in values)):
            with pytest.raises(
                foreload.ConfigError if all(missing) else foreload.DatasetError,
                match=r"has no label for|is not a class number|class number from 0|has no values",
            ):
                loader_of(path, **named)
            continue
        loader = loader_of(path, **named)
        if kind == "text":
            values = [value.strip() for value in values] if name.startswith("webdataset") else values
            classes = sorted(set(values))
            assert loader.classes == classes
            values = [classes.index(value) for value in values]
        assert sorted(loader.targets.tolist()) == sorted(values)
        if not name.startswith("webdataset"):
            assert loader.targets.tolist() == values
    assert count or name.startswith("webdataset/hostile")


def test_each_label_has_an_index_and_a_fingerprint_of_its_own(tmp_path: Path) -> None:
    root = tmp_path
    write_images(root)
    rows = "".join(f"{number}.png,{number % 2},{number % 3}\n" for number in range(6))
    (root / "all.csv").write_text("file_name,label,fine\n" + rows)
    usual, fine = loader_of(root / "all.csv"), loader_of(root / "all.csv", label="fine")
    again = loader_of(root / "all.csv")
    assert (usual.targets.tolist(), fine.targets.tolist()) == ([0, 1] * 3, [0, 1, 2] * 2)
    assert usual.fingerprint == again.fingerprint != fine.fingerprint
    next(iter(usual))
    with pytest.raises(foreload.Error, match="dataset"):
        fine.load_state_dict(usual.state_dict())
    # A manifest with another class is another dataset, which the next start finds.
    (root / "all.csv").write_text("file_name,label,fine\n" + rows.replace("5.png,1,2", "5.png,1,7"))
    with pytest.warns(foreload.Warning, match="has label 7 for its sample 5, but had 2"):
        assert loader_of(root / "all.csv", label="fine").targets.tolist()[-1] == 7


def test_fractions_in_any_shard_are_no_classes(tmp_path: Path) -> None:
    path = write_mds(tmp_path, "label", [1.0, 2.0, 3.0, 0.5, 1.0, 2.0])
    loader = loader_of(path)
    assert not hasattr(loader, "targets")
    with pytest.raises(AttributeError, match=r'"label" has numbers with fractions, which cannot be class'):
        _ = loader.targets
    values = [
        value
        for batch in loader_of(path, fields=["image", "label"])
        for value in np.from_dlpack(batch["label"])
    ]
    assert values == [1.0, 2.0, 3.0, 0.5, 1.0, 2.0]


@pytest.mark.parametrize("long", [0, 1])
def test_a_column_that_is_no_label_in_one_shard_is_none_in_any(long: int, tmp_path: Path) -> None:
    """If any shard has strings that are too long for names of classes, the next column is used."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed; make test-frameworks has it")
    from pyarrow import parquet

    for shard in range(2):
        labels = ["x" * (2000 if shard == long else 3) + str(row) for row in range(3)]
        table = {"image": [image(row) for row in range(3)], "label": labels, "class": ["a", "b", "c"]}
        parquet.write_table(pa.table(table), tmp_path / f"{shard}.parquet")
    loader = loader_of(tmp_path)
    assert loader.classes == ["a", "b", "c"]
    assert loader.targets.tolist() == [0, 1, 2] * 2


def test_shards_that_changed_are_known_by_their_names(tmp_path: Path) -> None:
    root = tmp_path
    write_mds(root, "label", ["cat", "dog", "cat", "ant", "dog", "cow"])
    first = loader_of(root)
    (root / "shard.00001.mds").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loader_of(root, changed="refuse").fingerprint == first.fingerprint
    shard = (root / "shard.00001.mds").read_bytes()
    (root / "shard.00001.mds").write_bytes(shard.replace(b"ant", b"bee"))
    with pytest.raises(foreload.DatasetChangedError, match='the class "bee", which no sample had'):
        loader_of(root, changed="refuse")


REFUSED: list[tuple[str, Callable[[Path], Path], dict[str, Any], str]] = [
    (
        "a table names its columns and an example",
        lambda root: write_mds(root, "caption", list("abcdef")),
        {},
        r'no column gives class labels: .*"caption" \(texts\), "image" \(images\).*fields=\["image", "caption"\]',
    ),
    (
        "a likely column is proposed",
        lambda root: write_mds(root, "fine_label", [0, 1, 2, 0, 1, 2]),
        {},
        r'"fine_label" \(integers\).*label="fine_label" takes classes',
    ),
    (
        "a column that there is not",
        lambda root: write_mds(root, "label", [0, 1, 2, 0, 1, 2]),
        {"label": "fine"},
        r'label: is "fine", which is not a column with .*"label" \(integers\)',
    ),
    (
        "a tar names its members",
        lambda root: write_tars(root, "width", [1, 2, 3, 4, 5, 6]),
        {},
        r'samples have "json", "png"; .*\.cls member.*label="KEY".*fields=\["image", "json"\]',
    ),
    (
        "a column without values is not proposed",
        lambda root: [write_images(root), write_lines(root, "label", [None] * 6)][1],
        {"label": "label"},
        r'label: is "label", a column that has no values; samples of .* have "label"',
    ),
    (
        "semicolons",
        lambda root: [(root / "a.csv").write_text("file_name;label\n0.png;1\n"), root / "a.csv"][1],
        {},
        r"values seem to be separated by ';': use commas",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[0])
def test_what_has_no_labels_says_what_there_is(case: Any, tmp_path: Path) -> None:
    _, write, settings, message = case
    path = write(tmp_path)
    with pytest.raises((AttributeError, foreload.Error), match=message) as refused:
        _ = loader_of(path, **settings).targets
    assert (".cls" in str(refused.value)) == ("tar" in case[0])


def test_an_empty_column_of_shards_is_not_proposed(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed; make test-frameworks has it")
    from pyarrow import parquet

    table = {"image": [image(row) for row in range(3)], "label": pa.array([None] * 3, pa.int64())}
    parquet.write_table(pa.table({**table, "kind": [0, 1, 2]}), tmp_path / "0.parquet")
    with pytest.raises(
        AttributeError,
        match=r'"label" has no values; .*label="kind" takes classes .*fields=\["image", "kind"\]',
    ):
        _ = loader_of(tmp_path).targets
    with pytest.raises(foreload.ConfigError, match='label: is "label", a column that has no values'):
        loader_of(tmp_path, label="label")
    assert loader_of(tmp_path, label="kind").targets.tolist() == [0, 1, 2]


def test_a_cls_that_is_named_has_names_of_classes(tmp_path: Path) -> None:
    root = shards.make(
        tmp_path, 4, 2, lambda number: {"png": image(number), "cls": b"cat" if number else b"ant"}
    )
    with pytest.raises(
        foreload.DatasetError, match=r'"000000\.cls" should hold .*; label="cls" reads names of classes, too'
    ):
        loader_of(root)
    loader = loader_of(root, label="cls")
    assert (loader.classes, loader.targets.tolist()) == (["ant", "cat"], [0, 1, 1, 1])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, "cat", 1, 0, 1, 2], 'has the class number 0, but others have class names such as "cat": write'),
        (
            [0, 1, 2, "cat", "cat", "dog"],
            "class names as labels, but .*0.tar has class numbers: write the same",
        ),
    ],
)
def test_numbers_and_names_are_not_mixed(labels: Labels, message: str, tmp_path: Path) -> None:
    with pytest.raises(foreload.DatasetError, match=message):
        loader_of(write_tars(tmp_path, "label", labels))


def test_directories_in_a_tar_are_no_classes(tmp_path: Path) -> None:
    shards.write(tmp_path / "train.tar", [("cat/1", {"png": image(0)}), ("dog/2", {"png": image(1)})])
    with pytest.raises(
        AttributeError, match=r'directories inside a tar are not classes \(e.g. "cat/1".*extract the tar'
    ):
        _ = loader_of(tmp_path / "train.tar").targets


def test_class_directories_have_no_column(dataset: Path) -> None:
    with pytest.raises(foreload.ConfigError, match=r"label: is .* names of its directories: omit label"):
        loader_of(dataset, label="fine")


@pytest.mark.parametrize(
    ("names", "message"),
    [(["0", "1", "10", "2"], 'class "10" has number 2'), (["cat", "cat ", "dog"], '"cat" and "cat "')],
)
def test_names_that_mislead_are_told_once(names: list[str], message: str, tmp_path: Path) -> None:
    for number, name in enumerate(names):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.png").write_bytes(image(number))
    with pytest.warns(foreload.Warning) as caught:
        loader = loader_of(tmp_path)
    assert [message in str(warning.message) for warning in caught] == [True]
    assert loader.classes == names, "the order of torchvision's ImageFolder"
