"""Damaged manifests are refused, or read as Python's own csv and json read them."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from conftest import ONLY_ALL
from damaged_fixtures import damaged_text, manifest_rows
from foreload import fields
from foreload import transforms as T
from PIL import Image

SERVER = Path(__file__).resolve().parents[2] / "target" / "debug" / "range-server"
"""The web server of the tests, which `make stand-in` builds."""
FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "manifest"
COUNT = 600


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Images, masks and arrays in separate directories, as in segmentation datasets."""
    for name in ("images", "masks", "depth"):
        (tmp_path / name).mkdir()
    for number in range(6):
        Image.new("RGB", (16, 12), (10 * number,) * 3).save(tmp_path / "images" / f"{number}.png")
        mask = np.full((12, 16), number, np.uint8)
        mask[number] = 9
        Image.fromarray(mask).save(tmp_path / "masks" / f"{number}.png")
        np.save(tmp_path / "depth" / f"{number}.npy", np.full(number + 1, number, np.float32))
    return tmp_path


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_columns_name_files_along_with_the_images(kind: str, pairs: Path) -> None:
    """The paths are relative to the manifest, like those of images; masks follow the images' crops."""
    rows = [
        {"image": f"images/{n}.png", "mask": f"./masks/{n}.png", "depth": f"{pairs}/depth/{n}.npy"}
        for n in reversed(range(6))
    ]
    rows[2]["depth"] = ""
    manifest = pairs / f"train.{kind}"
    if kind == "csv":
        lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    else:
        lines = [json.dumps({key: of or None for key, of in row.items()}) for row in rows]
    manifest.write_text("\n".join(lines) + "\n")
    settings: dict[str, Any] = {
        "batch_size": 4,
        "last_batch": "partial",
        "device": "cpu",
        "seed": 5,
        "threads": 2,
    }
    asked = ["image", fields.Mask("mask"), fields.Bytes("depth", optional=True)]
    loader = foreload.ImageLoader(
        manifest, fields=asked, transforms=[T.RandomHorizontalFlip(1.0), T.ToDtype("uint8")], **settings
    )
    seen = set()
    for batch in loader:
        for at, sample in enumerate(np.from_dlpack(batch.sample_ids).tolist()):
            number = 5 - sample
            seen.add(sample)
            with Image.open(pairs / "masks" / f"{number}.png") as mask:
                wanted = np.asarray(mask)[:, ::-1]
            np.testing.assert_array_equal(np.from_dlpack(batch["mask"][at]), wanted)
            assert np.from_dlpack(batch["image"][at]).max() == 10 * number
            if sample == 2:
                assert batch["depth"][at] is None
            else:
                assert batch["depth"][at] == (pairs / f"depth/{number}.npy").read_bytes()
    assert seen == set(range(6))
    plain = foreload.ImageLoader(manifest, image_size=8, **settings)
    assert (plain.fingerprint, plain.samples) == (loader.fingerprint, 6)
    # Selected only by name, such a column is a string like any other.
    (first, _) = foreload.ImageLoader(
        manifest, fields=["image", "mask"], image_size=8, shuffle=False, **settings
    )
    assert list(first["mask"]) == [row["mask"] for row in rows[:4]]
    files = foreload.ImageLoader(manifest, fields=[fields.Bytes("mask")], shuffle=False, **settings)
    assert [file for batch in files for file in batch["mask"]] == [
        (pairs / row["mask"]).read_bytes() for row in rows
    ]


@pytest.fixture
def address(pairs: Path) -> Iterator[str]:
    """The URL at which a web server serves the directory of `pairs`; the server's last line is the URL."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([SERVER, pairs], **pipes) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield server.stdout.readline().split()[-1].rstrip("/")
        server.stdin.close()


@pytest.mark.parametrize("source", ["paths", "URLs", "URLs in a manifest of a server"])
def test_columns_name_files_of_every_kind(source: str, pairs: Path, address: str) -> None:
    lines = ["image,other,depth,about,boxes"]
    root = "" if source == "paths" else f"{address}/"
    for number in range(6):
        Image.new("RGB", (16, 12), (0, 0, 40 * number)).save(pairs / "images" / f"other {number}.png")
        (pairs / f"{number}.json").write_text(json.dumps({"number": number}))
        np.save(pairs / f"boxes{number}.npy", np.array([[number, 1, 12, 8]], np.float32))
        other = f"other%20{number}" if root else f"other {number}"
        files = (
            f"images/{number}.png",
            f"images/{other}.png",
            f"depth/{number}.npy",
            f"{number}.json",
            f"boxes{number}.npy",
        )
        lines.append(",".join(root + file for file in files))
    (pairs / "all.csv").write_text("\n".join(lines) + "\n")
    asked = [
        "image",
        fields.Image("other", follows="image"),
        fields.Array("depth", ragged=True),
        fields.Json("about"),
        fields.Boxes("boxes"),
    ]
    path = f"{address}/all.csv" if source.endswith("server") else pairs / "all.csv"
    recipe = [T.RandomHorizontalFlip(1.0), T.ToDtype("uint8")]
    loader = foreload.ImageLoader(
        path, fields=asked, transforms=recipe, batch_size=3, seed=1, device="cpu", cache=None
    )
    numbers = []
    for batch in loader:
        for at, number in enumerate(np.from_dlpack(batch.sample_ids).tolist()):
            numbers.append(number)
            assert (np.from_dlpack(batch["image"][at]) == 10 * number).all()
            np.testing.assert_array_equal(
                np.from_dlpack(batch["other"][at]).max(axis=(-1, -2)), [0, 0, 40 * number]
            )
            assert batch["about"][at] == {"number": number}
            for name, wanted in {"depth": [number] * (number + 1), "boxes": [[4, 1, 16 - number, 8]]}.items():
                values, offsets = (np.from_dlpack(of) for of in batch[name])
                assert values[offsets[at] : offsets[at + 1]].tolist() == wanted
    assert sorted(numbers) == list(range(6))


def test_a_column_that_names_no_files_is_refused(pairs: Path) -> None:
    def refused(cell: str, message: str, error: type[foreload.Error] = foreload.DatasetError) -> None:
        manifest = pairs / f"{len(list(pairs.iterdir()))}.csv"
        manifest.write_text(f"image,mask,n\nimages/0.png,masks/0.png,1\nimages/1.png,{cell},2\n")
        with pytest.raises(error, match=message):
            list(
                foreload.ImageLoader(
                    manifest, fields=["image", fields.Mask("mask")], image_size=8, train=False
                )
            )

    refused(
        "masks/9.png",
        r'sample 1: its column "mask" names .*masks/9\.png, which is not an existing file: correct the paths',
    )
    refused("ftp://a/b.png", 'sample 1: its column "mask" names ftp://a/b.png, which has an unsupported URL')
    refused(
        "http://localhost/a.png?X-Amz-Signature=1", 'sample 1: its column "mask" names a URL with a secret'
    )
    refused("", "the sample has no such member: if it may be missing", foreload.Error)
    with pytest.raises(foreload.ConfigError, match='has "n", a column of numbers, with another kind'):
        foreload.ImageLoader(next(pairs.glob("*.csv")), fields=["image", fields.Mask("n")], image_size=8)


# A column with a damaged name is reported.
@ONLY_ALL
@pytest.mark.filterwarnings("ignore::foreload.Warning")
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_damaged_manifest_is_refused_or_read_as_python_reads_it(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "files"
    shutil.copytree(FIXTURES / kind / "files", root)
    manifest = root / f"metadata.{kind}"
    whole = manifest.read_bytes()
    read = 0
    for seed in range(COUNT):
        print(f"seed {seed}")
        data = damaged_text(whole, random.Random(seed))
        manifest.write_bytes(data)
        refused = None
        try:
            loader = foreload.ImageLoader(
                manifest,
                batch_size=9,
                shuffle=False,
                train=False,
                last_batch="partial",
                rebuild_index=True,
                fields=[fields.Bytes("image"), fields.Text("caption", optional=True)],
            )
            batches = list(loader)
        except foreload.Error as error:
            refused = error
        if refused:
            assert not isinstance(refused, foreload.InternalError), refused
            assert str(manifest) in str(refused) or str(refused).startswith("config: fields"), refused
            continue
        rows = list(manifest_rows(kind, data))
        captions = [caption for batch in batches for caption in batch["caption"]]
        present = [flag for batch in batches for flag in np.from_dlpack(batch.present("caption")).tolist()]
        files = [file for batch in batches for file in batch["image"]]
        assert [caption if here else None for caption, here in zip(captions, present, strict=True)] == [
            row.get("caption") or None for row in rows
        ]
        assert files == [(root / row["file_name"]).read_bytes() for row in rows]
        read += 1
    assert COUNT / 20 < read < COUNT
