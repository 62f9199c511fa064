"""Tar shards that `foreload pack --to tar` wrote, as Python's tarfile and the real webdataset read them."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures"
IMAGES = {"jpg", "png", "webp"}
DATASETS = ["parquet/datasets", "parquet/nulls", "arrow/saved", "mds/all"]
"""Tables of all kinds of values. Each has a file with the values that its own library reads."""


@pytest.fixture(scope="module", params=DATASETS)
def tars(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, dict[str, Any]]:
    """A table, the tar shards that were made from it, and its expected content."""
    folder = FIXTURES / request.param
    into = tmp_path_factory.mktemp("tars") / "made"
    command = [sys.executable, "-m", "foreload", "pack", str(folder / "files"), str(into)]
    subprocess.run([*command, "--to", "tar", "--shard-size", "1500"], check=True, capture_output=True)
    return folder / "files", into, json.loads((folder / "expected.json").read_text())


def by_tarfile(into: Path) -> Iterator[dict[str, Any]]:
    """Read samples by Python's own library."""
    for path in sorted(into.glob("*.tar")):
        samples: dict[str, dict[str, Any]] = {}
        with tarfile.open(path) as archive:
            for member in archive:
                key, _, ending = member.name.partition(".")
                assert (member.uid, member.mtime, member.isreg()) == (0, 0, True)
                samples.setdefault(key, {})[ending] = archive.extractfile(member).read()
        yield from samples.values()


def by_webdataset(into: Path) -> Iterator[dict[str, Any]]:
    """Read samples by webdataset."""
    webdataset = pytest.importorskip(
        "webdataset", reason="webdataset is not installed; make test-frameworks has it"
    )
    shards = sorted(str(path) for path in into.glob("*.tar"))
    for sample in webdataset.WebDataset(shards, shardshuffle=False):
        yield {ending: value for ending, value in sample.items() if not ending.startswith("__")}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("read", [by_tarfile, by_webdataset])
def test_others_read_what_the_table_holds(tars: tuple[Path, Path, dict[str, Any]], read: Any) -> None:
    _, into, expected = tars
    (reading,) = expected["readings"]
    found = list(read(into))
    assert len(found) == len(reading["samples"])
    compared = 0
    for sample, wanted in zip(found, reading["samples"], strict=True):
        numbers = json.loads(sample.get("json", b"{}"))
        for name, value in wanted.items():
            kind = expected["kinds"].get(name)
            if name == "image" and value is None:
                assert not IMAGES & sample.keys()
            elif name == "image":
                (image,) = (sample[ending] for ending in IMAGES & sample.keys())
                assert hashlib.sha256(image).hexdigest() == value["sha256"]
            elif name == "label":
                assert int(sample["cls"]) == numbers["label"] == value
            elif kind == "text":
                text = sample.get(f"{name}.txt")
                assert (None if text is None else text.decode()) == value
            elif kind in ("integer", "float", "truth") and not isinstance(value, dict):
                assert numbers.get(name) == value
            else:
                continue
            compared += 1
    assert compared >= 4 * len(found)


def test_foreload_reads_the_same_images_and_labels(tars: tuple[Path, Path, dict[str, Any]]) -> None:
    source, into, expected = tars
    samples = expected["readings"][0]["samples"]
    with_image = [number for number, sample in enumerate(samples) if sample["image"] is not None]

    def read(path: Path, **settings: Any) -> list[np.ndarray]:
        loader = foreload.ImageLoader(
            path, batch_size=64, image_size=16, train=False, device="cpu", **settings
        )
        (batch,) = loader
        return [np.from_dlpack(tensor) for tensor in (batch.images, batch.labels)]

    one = read(source, indices=with_image)
    if len(with_image) == len(samples):
        other = read(into)
    else:
        with pytest.warns(foreload.Warning, match="samples without an image"):
            other = read(into)
    assert all(map(np.array_equal, one, other))
