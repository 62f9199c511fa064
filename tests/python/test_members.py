"""Shards as in practice: some samples lack an image or a label, documents are of all kinds, members move."""

from __future__ import annotations

import json
import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
import shards
from foreload import fields
from numpy import from_dlpack as array
from waiting import until


def image(number: int) -> bytes:
    return shards.jpeg(np.random.default_rng(number), 32, 24)


def load(root: Path, asked: list[Any] | None, **more: Any) -> foreload.ImageLoader:
    usual = {"batch_size": 4, "image_size": 8, "shuffle": False, "last_batch": "partial"}
    return foreload.ImageLoader(root, fields=asked, **{**usual, **more})


def told(act: Callable[[], Any]) -> tuple[Any, str]:
    """Return what `act` returns, and all warnings that it gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = act()
    return result, "\n".join(str(warning.message) for warning in caught)


def column(loader: foreload.ImageLoader, name: str) -> list[Any]:
    """Return a field's values, sample by sample."""
    batches = [batch[name] for batch in loader]
    return [
        value for found in batches for value in (found if isinstance(found, list) else array(found).tolist())
    ]


# Labels that are not used.


@pytest.mark.parametrize("label", [b"-3", b"3.0", b"cat", b"", b"99999999999"])
def test_a_cls_that_is_no_class_number_is_a_field_like_others(tmp_path: Path, label: bytes) -> None:
    root = shards.make(
        tmp_path, 8, 1, lambda number: {"jpg": image(number), "cls": label if number == 2 else b"1"}
    )
    with pytest.warns(
        foreload.Warning, match=r"000002.cls.*should hold a class number.*1 labels that are no class"
    ):
        loader = load(root, ["jpg"])
    for asked in (["jpg"], ["jpg", fields.Text("cls")]):
        loader = load(root, asked)
        assert not loader.labeled
        list(loader)
    assert column(load(root, ["jpg", fields.Bytes("cls")]), "cls")[1:4] == [b"1", label, b"1"]
    for asked in (None, ["jpg", "label"]):
        with pytest.raises(foreload.DatasetError, match=r'"000002.cls" should hold a class number from 0'):
            load(root, asked)
    with pytest.raises(foreload.DatasetError, match="should hold a class number from 0"):
        load(root, ["jpg"], weights="balanced", shuffle=True)
    assert load(root, None, labels=range(8)).fields == {"image": "image", "label": "array"}
    if label == b"-3":
        assert column(load(root, ["jpg", "cls"]), "cls")[2] == -3
    elif label != b"99999999999":
        loader = load(root, ["jpg", "cls"], on_error="zero")
        batches, _ = told(lambda: list(loader))
        assert array(batches[0].mask).tolist() == [True, True, False, True]


def test_labels_of_some_samples_alone_are_for_those_who_ask(tmp_path: Path) -> None:
    root = shards.make(
        tmp_path, 8, 2, lambda number: {"jpg": image(number), **({"cls": b"1"} if number % 3 else {})}
    )
    with pytest.warns(foreload.Warning, match="are treated as unlabelled"):
        loader = load(root, ["jpg", fields.Integer("cls", optional=True)])
    with pytest.raises(foreload.DatasetError, match="label all samples or none"):
        load(root, None)
    for batch in loader:
        present = [bool(number % 3) for number in array(batch.sample_ids).tolist()]
        assert array(batch.present("cls")).tolist() == present
        assert array(batch["cls"]).tolist() == [int(there) for there in present]


def test_a_label_that_is_mended_counts(tmp_path: Path) -> None:
    """The class number is the same as the one it was taken for, so only a warning shows the repair."""
    write = lambda label: shards.make(tmp_path, 4, 1, lambda number: {"jpg": image(number), "cls": label})  # noqa: E731
    with pytest.warns(foreload.Warning):
        load(write(b"x"), ["jpg"])
    with pytest.warns(foreload.Warning, match=r"has changed since it was indexed.*saved states remain valid"):
        loader = load(write(b"0"), None)
    assert loader.targets.tolist() == [0] * 4


# Documents.

DOCUMENTS = [
    b'{"score": NaN}',
    b"[Infinity, -Infinity, 1e999, -0.0, 12345678901234567890]",
    b'\xef\xbb\xbf{"a": 1}',
    json.dumps({"ü": "\U0001f600"}).encode("utf-16"),
    json.dumps({"ü": "\U0001f600"}).encode("utf-16-be"),
    json.dumps(["ü"], ensure_ascii=False).encode("utf-32"),
    b'"\\ud800"',
    '["\ud800"]'.encode("utf-8", "surrogatepass"),
    b"[" * 200 + b"]" * 200,
    b'{"label": "dog"}',
    b'{"a": 1, "a": 2}',
    b"{",
    b'{"a": 1,}',
    b"",
    b"\xff",
    b"[01]",
    b'"\x01"',
    b'{"a": 1} x',
    b"{'a': 1}",
    b'"\xc3"',
    b"\x00",
]


def is_json(document: bytes) -> bool:
    try:
        json.loads(document)
    except ValueError:
        return False
    return True


def test_documents_are_those_that_python_takes(tmp_path: Path) -> None:
    """A job that reads other fields gets no warning about these documents."""
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    documents = list(DOCUMENTS)
    while len(documents) < 400:
        # Most of them are still valid documents.
        document = bytearray(
            rng.choice(DOCUMENTS[:12])
            + b' [1.5e-3, "\\u00e9\\n", {"b": [true, null]}] '[: rng.choice([0, 0, 99])]
        )
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(document) + 1)
            document[at : at + rng.randrange(2)] = bytes(
                [rng.choice(b'0123456789[]{}",:.-+eE\\ntu \x00\xd8')]
            )
        documents.append(bytes(document))
    root = shards.make(
        tmp_path, len(documents), 1, lambda number: {"jpg": image(0), "json": documents[number]}
    )
    good = [is_json(document) for document in documents]
    assert 20 < sum(good) < 380
    asked = {"on_error": "zero", "max_errors": 1000, "batch_size": 100}
    batches, messages = told(lambda: list(load(root, ["jpg", "json"], **asked)))
    assert "labels that are no class numbers" in messages
    found = [document for batch in batches for document in batch["json"]]
    mask = [there for batch in batches for there in array(batch.mask).tolist()]
    wrong = [
        document for document, taken, is_good in zip(documents, mask, good, strict=True) if taken != is_good
    ]
    assert wrong == []
    # NaN is not equal to itself, but its text is.
    for document, value in zip(documents, found, strict=True):
        assert repr(value) == (repr(json.loads(document)) if is_json(document) else "None")
    taken, messages = told(lambda: column(load(root, [fields.Bytes("json")]), "json"))
    assert taken == documents
    assert "labels that are no class numbers" in messages
    assert len(column(load(root, ["jpg"]), "jpg")) == len(documents)


@pytest.mark.parametrize("document", [b"[" * 200_000 + b"]" * 200_000, b"1" * 5000])
def test_what_python_cannot_hold_is_an_error_of_its_sample(tmp_path: Path, document: bytes) -> None:
    root = shards.make(
        tmp_path, 4, 1, lambda number: {"jpg": image(0), "json": document if number == 2 else b"{}"}
    )
    batch = next(iter(load(root, ["jpg", "json"])))
    with pytest.raises(foreload.SampleError, match="its JSON cannot be read") as raised:
        batch["json"]
    assert raised.value.sample_id == 2


def test_numbers_that_float32_cannot_hold_fail(tmp_path: Path) -> None:
    values = [b"1e39", b"inf", b"-1e400", b"nan", b"3e38"]
    root = shards.make(tmp_path, 5, 1, lambda number: {"jpg": image(0), "num": values[number]})
    loader = load(root, ["jpg", fields.Float("num")], on_error="zero", batch_size=5)
    (batch,), messages = told(lambda: list(loader))
    assert "too large for float32" in messages
    assert array(batch.mask).tolist() == [False, True, False, True, True]
    np.testing.assert_array_equal(array(batch["num"]), np.array([0, np.inf, 0, np.nan, 3e38], np.float32))
    far = shards.npy(np.array([[0, 0, 1e300, 8]]))
    root = shards.make(tmp_path / "boxes", 4, 1, lambda number: {"jpg": image(0), "boxes.npy": far})
    with pytest.raises(
        foreload.SampleError,
        match=r"float64 with shape \[1, 4\], must have shape \[boxes, 4\] and numbers that fit float32",
    ):
        list(load(root, ["jpg", fields.Boxes("boxes.npy")]))


# Kinds and images.


def test_samples_may_have_members_of_any_number_of_kinds(tmp_path: Path) -> None:
    """Names with numbers after their first dot give an endless number of kinds."""
    made = lambda number: {  # noqa: E731
        "jpg": image(number),
        **{f"k{kind:03}": f"{number} {kind}".encode() for kind in range(100)},
        **{f"of-{number}.{kind}": b"x" for kind in range(30)},
        "txt": str(number).encode(),
    }
    root = shards.make(tmp_path, 24, 2, made)
    loader = load(root, ["jpg", "txt", "k000", "k099", fields.Bytes("of-7.29", optional=True)], batch_size=24)
    with pytest.warns(foreload.Warning, match="members of a sample are not adjacent"):
        batch = next(iter(loader))
    assert batch["k099"] == [f"{number} 99".encode() for number in range(24)]
    assert batch["txt"] == [str(number) for number in range(24)]
    assert [number for number, of in enumerate(batch["of-7.29"]) if of] == [7]
    with pytest.raises(
        foreload.ConfigError, match=r'has "caption", which no sample .* "k000".*, and \d+ others'
    ):
        load(root, ["jpg", "caption"])
    # One stem has very many members, like the frames of a video.
    shards.write(tmp_path / "video" / "0.tar", [("frame", {f"{n:06}.jpg": b"" for n in range(30_000)})])
    with pytest.raises(foreload.DatasetError, match=r"cut at the first dot.*e.g. frame.000000.jpg"):
        load(tmp_path / "video", None)


def some_images(number: int) -> shards.Members:
    return {**({"jpg": image(number)} if number % 2 else {}), "txt": f"t{number}".encode(), "cls": b"3"}


def test_samples_without_an_image_are_given_where_none_is_needed(tmp_path: Path) -> None:
    root = shards.make(tmp_path, 12, 2, some_images)
    everything = [f"t{number}" for number in range(12)]
    assert column(load(root, ["txt"]), "txt") == everything
    assert column(load(root, ["txt", "cls", "label"]), "label") == [3] * 12
    for name in ("jpg", "image"):
        loader = load(root, [fields.Image(name, optional=True), "txt"])
        assert column(loader, "txt") == everything
        for batch in loader:
            numbers = array(batch.sample_ids).tolist()
            assert array(batch.present(name)).tolist() == [bool(number % 2) for number in numbers]
            for number, found in zip(numbers, array(batch[name]), strict=True):
                assert found.any() == bool(number % 2)
    with pytest.warns(foreload.Warning, match="6 samples without an image, e.g. 000000"):
        wanted = load(root, ["jpg", "txt"])
    assert column(wanted, "txt") == everything[1::2]
    # These are two datasets, with different orders. If each sample has an image, they are one.
    assert load(root, ["txt"]).fingerprint != wanted.fingerprint
    whole = shards.make(tmp_path / "whole", 12, 2)
    assert load(whole, ["txt"]).fingerprint == load(whole, ["jpg"]).fingerprint


def test_only_a_plain_image_that_is_asked_for_is_needed(tmp_path: Path) -> None:
    """An image with its own name is a member like others: no stem is skipped because it lacks a plain image."""

    def made(number: int) -> shards.Members:
        plain = {"jpg": image(number)} if number == 2 else {}
        return {**plain, "right.jpg": image(number), "txt": f"t{number}".encode()}

    root = shards.make(tmp_path, 6, 1, made)
    everything = [f"t{number}" for number in range(6)]
    assert column(load(root, ["right.jpg", "txt"]), "txt") == everything
    loader = load(root, [fields.Image("jpg", optional=True), "right.jpg", "txt"])
    assert column(loader, "txt") == everything
    there = np.concatenate([array(batch.present("jpg")) for batch in loader])
    assert there.tolist() == [number == 2 for number in range(6)]
    loader, said = told(lambda: load(root, ["jpg", "right.jpg", "txt"]))
    assert "5 samples without an image" in said
    assert column(loader, "txt") == ["t2"]


def until_cached(loader: foreload.ImageLoader, samples: int) -> dict[str, Any]:
    """Run epochs until all samples come from the cache; return the first epoch's counters."""
    first: dict[str, Any] = {}

    def epoch() -> dict[str, Any]:
        batches = iter(loader)
        for _ in batches:
            pass
        cache = batches.stats()["cache"]
        first.update({} if first else cache)
        return cache

    filled = until("the cache is full", epoch, lambda cache: cache["tiers"]["nvme"]["hits"] == samples)
    assert filled["source_reads"] == 0
    return first


def test_fields_beside_images_are_cached(tmp_path: Path) -> None:
    root = shards.make(tmp_path / "shards", 12, 2)
    for number, asked in enumerate((["txt"], ["cls"], ["json", "txt"], ["jpg", "txt"])):
        loader = load(root, asked, cache=foreload.Directory(tmp_path / f"cache{number}", "50MB"))
        assert until_cached(loader, 12)["source_reads"] == 12, asked
    # The captions are in another order than their images.
    members = [(f"{n:03}", {"txt": f"t{n}".encode()}) for n in (5, 3, 0, 4, 1, 2)]
    shards.write(
        tmp_path / "apart" / "0.tar", [*((f"{n:03}", {"jpg": image(n)}) for n in range(6)), *members]
    )
    loader = load(tmp_path / "apart", ["txt"], cache=foreload.Directory(tmp_path / "cache", "50MB"))
    until_cached(loader, 6)
    assert column(loader, "txt") == [f"t{n}" for n in range(6)]


def test_a_shard_that_was_written_anew_is_no_fault_of_the_drive(tmp_path: Path) -> None:
    """Only captions have changed: order and states are the same, but cached copies belong to another version."""
    write = lambda text: shards.make(  # noqa: E731
        tmp_path / "shards", 8, 1, lambda number: {"jpg": image(number), "txt": f"{text}{number}".encode()}
    )
    cache = foreload.Directory(tmp_path / "cache", "50MB")
    old = load(write("old"), ["jpg", "txt"], cache=cache)
    until_cached(old, 8)
    assert column(old, "txt") == [f"old{number}" for number in range(8)]
    state = old.state_dict()
    write("something new")

    def go_on() -> list[Any]:
        new = load(tmp_path / "shards", ["jpg", "txt"], cache=cache)
        new.load_state_dict(state)
        return column(new, "txt")

    texts, messages = told(go_on)
    assert texts == [f"something new{number}" for number in range(8)]
    assert "orders are unchanged, and saved states remain valid" in messages
    assert "cached copies are out of date" in messages
    assert "drive" not in messages
    assert "not valid any more" not in messages
    shards.make(tmp_path / "shards", 8, 1, lambda number: {"jpg": image(number + 1), "txt": b""})
    with pytest.warns(foreload.Warning, match="states that were saved before are not valid any more"):
        load(tmp_path / "shards", ["jpg", "txt"])


# The contents of a batch for samples with missing members.


def arrays(tmp_path: Path, values: list[Any]) -> Path:
    return shards.make(
        tmp_path,
        len(values),
        1,
        lambda number: {
            "jpg": image(number),
            "cls": b"7",
            **({} if values[number] is None else {"npy": shards.npy(values[number])}),
        },
    )


@pytest.mark.parametrize("on_error", ["zero", "optional"])
def test_the_type_of_an_array_does_not_depend_on_a_sample_without(tmp_path: Path, on_error: str) -> None:
    more = {"on_error": "zero"} if on_error == "zero" else {}

    def found(values: list[Any], **said: Any) -> Any:
        root = arrays(tmp_path / str(len(list(tmp_path.iterdir()))), values)
        asked = fields.Array("npy", optional=on_error == "optional", **said)
        return told(lambda: next(iter(load(root, ["jpg", asked], **more))))[0]["npy"]

    rows = [np.full((length, 2), length) for length in range(1, 5)]
    alike = [np.full((3, 2), 5, np.int16), None, np.full((3, 2), 6, np.int16), None]
    tensor = array(found(alike))
    assert (tensor.dtype, tensor[:, 0, 0].tolist()) == ("int16", [5, 0, 6, 0])
    values, offsets = map(array, found([rows[0], None, *rows[2:]]))
    assert offsets.tolist() == [0, 1, 1, 4, 8]
    for of in ([rows[0], None, *rows[2:]], alike, [None] * 3 + rows[:1]):
        values, offsets = map(array, found(of, ragged=True))
        lengths = [0 if value is None else len(value) for value in of]
        assert np.diff(offsets).tolist() == lengths
        np.testing.assert_array_equal(values, np.concatenate([value for value in of if value is not None]))
    listed = found([np.zeros((1, 2)), None, np.zeros((3, 4)), np.zeros((3, 4))])
    assert [None if value is None else array(value).shape for value in listed] == [
        (1, 2),
        None,
        (3, 4),
        (3, 4),
    ]
    with pytest.raises(foreload.ConfigError, match=r"ragged=True.*float64 \[1, 2\] and float64 \[3, 4\]"):
        found([np.zeros((1, 2)), None, np.zeros((3, 4)), np.zeros((3, 4))], ragged=True)


def test_a_batch_without_any_array_is_still_a_pair(tmp_path: Path) -> None:
    root = shards.make(
        tmp_path, 8, 1, lambda n: {"jpg": image(n), **({"npy": shards.npy(np.ones(2))} if n < 4 else {})}
    )
    asked = ["jpg", fields.Array("npy", ragged=True, optional=True)]
    pairs = [tuple(map(array, batch["npy"])) for batch in load(root, asked)]
    assert [offsets.tolist() for _, offsets in pairs] == [[0, 2, 4, 6, 8], [0] * 5]


def test_every_optional_field_says_where_it_is(tmp_path: Path) -> None:
    members = {"txt": b"", "json": b"null", "bin": b"", "npy": shards.npy(np.zeros(0)), "num": b"0"}
    root = shards.make(tmp_path, 8, 1, lambda n: {"jpg": image(n), **(members if n % 3 else {})})
    kinds = [
        fields.Text("txt"),
        fields.Json("json"),
        fields.Bytes("bin"),
        fields.Array("npy"),
        fields.Float("num"),
    ]
    asked = [type(kind)(kind.name, optional=True) for kind in kinds]
    for batch in load(root, ["jpg", *asked]):
        there = [bool(number % 3) for number in array(batch.sample_ids).tolist()]
        for kind in kinds:
            assert array(batch.present(kind.name)).tolist() == there, kind.name
        assert batch["json"] == [None] * 4


def test_what_is_known_of_a_failed_sample_stays(tmp_path: Path) -> None:
    """Its class and the user's labels are known; fields that could not be read are zero."""
    root = shards.make(
        tmp_path,
        4,
        1,
        lambda n: {"jpg": b"no image" if n == 2 else image(n), "cls": b"7", "num": b"1.5", "txt": b"t"},
    )
    table = tmp_path / "t.jsonl"
    table.write_text(
        "".join(json.dumps({"sample_id": n, "x": n + 0.5, "name": f"n{n}"}) + "\n" for n in range(4))
    )
    asked = ["jpg", "label", "cls", fields.Float("num"), "txt", "x", "name"]
    (batch,), _ = told(lambda: list(load(root, asked, labels=table, on_error="zero")))
    assert array(batch.mask).tolist() == [True, True, False, True]
    assert array(batch["label"]).tolist() == [7] * 4
    assert array(batch["x"]).tolist() == [0.5, 1.5, 2.5, 3.5]
    assert batch["name"] == ["n0", "n1", "n2", "n3"]
    assert array(batch["cls"]).tolist() == [7, 7, 0, 7]
    assert array(batch["num"]).tolist() == [1.5, 1.5, 0, 1.5]
    assert batch["txt"] == ["t", "t", None, "t"]


def test_arrays_of_no_numbers_are_called_what_they_are(tmp_path: Path) -> None:
    record = np.zeros(2, [("a", "<f4"), ("b", "S3")])
    for value, shown in [
        (np.array([b"abc"]), "'|S3'"),
        (np.ones(2, complex), "'<c16'"),
        (record, "[('a', '<f4'), ('b', 'S3')]"),
        (np.array(["2020"], "M8[D]"), "'<M8[D]'"),
    ]:
        root = arrays(tmp_path / str(len(list(tmp_path.iterdir()))), [value] * 4)
        message = (
            rf'field "npy": is an array of type {re.escape(shown).replace("S3", ".?S3")}, must be of booleans'
        )
        with pytest.raises(foreload.SampleError, match=message):
            list(load(root, ["jpg", "npy"]))


def test_a_batch_is_found_through_as_a_dict_is(tmp_path: Path) -> None:
    root = shards.make(tmp_path, 4, 1)
    batch = next(iter(load(root, ["txt", "jpg"])))
    assert [name for name, _ in batch.items()] == batch.keys() == list(dict(batch)) == ["txt", "jpg"]
    assert batch.values()[0] == batch.get("txt") == dict(batch.items())["txt"]
    assert (batch.get("json"), batch.get("json", 3)) == (None, 3)
    assert 3 not in batch
    assert None not in batch
    assert "txt" in batch


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((-1, 0), "sample_id: is -1, must be a whole number from 0"),
        (("0", 0), 'sample_id: is "0", must be a whole number'),
        ((99, 0), "sample_id: is 99, but the dataset has 4"),
        ((0, -1), "epoch: is -1, must be"),
        ((0, 2**64), "epoch: is 18446744073709551616, must be"),
        ((0, 0.5), "epoch: is 0.5, must be"),
    ],
)
def test_a_view_that_cannot_be_names_what_is_wrong(
    tmp_path: Path, arguments: tuple[Any, ...], named: str
) -> None:
    loader = load(shards.make(tmp_path, 4, 1), None)
    with pytest.raises(foreload.ConfigError, match=f"^config: {named}"):
        loader.view(*arguments)
    with pytest.raises(foreload.ConfigError, match=r"^config: view: is 1, but each image has 1$"):
        loader.view(0, 0, view=1)
    with pytest.raises(foreload.ConfigError, match=r"^config: occurrence: is -2, must be"):
        loader.view(0, 0, occurrence=-2)
