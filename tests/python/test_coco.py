"""COCO annotations, compared with pycocotools.

Dataset N of the first test is made from the seed N; `FORELOAD_SEED=N` tries only that one.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from conftest import seeds
from foreload import ImageLoader, fields
from foreload import transforms as T
from PIL import Image
from pycocotools.coco import COCO

SEED = os.environ.get("FORELOAD_SEED")
PLAIN: dict[str, Any] = {"shuffle": False, "last_batch": "partial", "device": "cpu", "threads": 1}
SAME: dict[str, Any] = {"transforms": [T.ToDtype("uint8")], **PLAIN}
ALWAYS = ("image_id", "height", "width")
ARRAYS = ("labels", "category_ids", "annotation_ids", "iscrowd", "area")
NUMBERS = (*ALWAYS, "num_boxes")
FAULTS = [
    "missing",
    "renamed",
    "up",
    "absolute",
    "image id",
    "id",
    "image",
    "category",
    "negative",
    "NaN",
    "cut",
]
Rows = list[dict[str, Any]]


def array(batch: Any, name: str, at: int) -> np.ndarray:
    """Return the rows of a sample of a field whose rows differ in number."""
    values, offsets = (np.from_dlpack(part) for part in batch[name])
    return values[offsets[at] : offsets[at + 1]]


def read(path: Path, names: list[str], **settings: Any) -> Rows:
    """Return the fields of all samples in order, and the value of all pixels of the image."""
    rows: Rows = []
    for batch in ImageLoader(path, batch_size=3, fields=["image", *names], **{**SAME, **settings}):
        for at in range(len(batch)):
            values: dict[str, Any] = {"pixel": int(np.from_dlpack(batch["image"][at]).max())}
            for name in names:
                if name == "captions":
                    values[name] = batch[name][at]
                elif name in NUMBERS:
                    values[name] = int(np.from_dlpack(batch[name])[at])
                else:
                    values[name] = array(batch, name, at)
            rows.append(values)
    return rows


def coco(path: Path) -> COCO:
    """Open annotations with pycocotools, which prints how long that takes."""
    with contextlib.redirect_stdout(io.StringIO()):
        return COCO(path)


def reference(path: Path, names: list[str], pictures: dict[str, Image.Image]) -> Rows:
    """Return what pycocotools says of all images."""
    of = coco(path)
    categories = sorted(of.cats)
    rows = []
    for image in of.loadImgs(list(of.imgs)):
        annotations = of.loadAnns(of.getAnnIds(imgIds=[image["id"]]))
        objects = [each for each in annotations if "bbox" in each]
        boxes = [each["bbox"] for each in objects]
        corners = [[x, y, x + width, y + height] for x, y, width, height in boxes]
        picture = pictures[image["file_name"]]
        numbers = [each.get("category_id", -1) for each in objects]
        row = {
            "pixel": picture.getpixel((0, 0))[0],
            "image_id": image["id"],
            "height": image["height"],
            "width": image["width"],
            "num_boxes": len(boxes),
            "boxes": np.array(corners, np.float32).reshape(-1, 4).clip(0, picture.size * 2),
            "labels": np.array([categories.index(each) if each in categories else -1 for each in numbers]),
            "category_ids": np.array(numbers),
            "annotation_ids": np.array([each["id"] for each in objects]),
            "iscrowd": np.array([each.get("iscrowd", 0) for each in objects], np.uint8),
            "area": np.array([each.get("area", 0) for each in objects], np.float32),
            "captions": [each["caption"] for each in annotations if "caption" in each],
        }
        rows.append({name: row[name] for name in ("pixel", *names)})
    return rows


def same(ours: Rows, theirs: Rows) -> None:
    assert len(ours) == len(theirs)
    for own, other in zip(ours, theirs, strict=True):
        assert own.keys() == other.keys()
        for name, value in own.items():
            if isinstance(value, np.ndarray):
                assert len(value) == len(other[name]), name
                kinds = {"area": np.float32, "boxes": np.float32, "iscrowd": np.uint8}
                assert value.dtype == kinds.get(name, np.int64), name
                assert np.array_equal(value, other[name]), (name, value, other[name])
            else:
                assert value == other[name], name


def segmentation(random_: random.Random) -> Any:
    """Return a polygon, or run lengths in one of COCO's two forms."""
    return random_.choice(
        [[[0.5, 1, 5, 1, 5, 5]], {"counts": [3, 4, 9], "size": [4, 4]}, {"counts": "a1b\\", "size": [4, 4]}]
    )


def make(root: Path, random_: random.Random, kind: str) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """Write images and annotations; return their path, the document, and the settings that find the images."""
    place = random_.choice(["usual", "beside", "images", "named", "paths"])
    document = root / "annotations" / f"{'captions' if kind == 'captions' else 'instances'}_train2017.json"
    folder = {
        "usual": root / "train2017",
        "beside": root / "annotations",
        "images": root / "images",
        "named": root / "else where",
        "paths": root,
    }[place]
    inside = random_.choice(["", "b/", "b/ü "]) if place != "paths" else "train2017/"
    count = random_.randint(1, 7)
    ids = random_.sample(range(1, 1 << 40), count)
    images = []
    for number, each in enumerate(ids):
        name = f"{inside}{random_.randint(0, 9)}_{number}.png"
        width, height = random_.randint(8, 40), random_.randint(8, 40)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (width, height), (number + 1,) * 3).save(folder / name)
        images.append({"id": each, "file_name": name, "width": width, "height": height, "license": 1})
    (folder / f"{inside}not listed.png").write_bytes(b"no image")
    classes = random_.sample(range(200), random_.randint(1, 5))
    annotations = []
    for number in random_.sample(range(1 << 40), random_.randint(0, 15)):
        image = random_.choice(images[: max(1, count - 1)])
        annotation: dict[str, Any] = {"id": number, "image_id": image["id"]}
        if kind != "captions":
            x, y = random_.uniform(0, image["width"] - 1), random_.uniform(0, image["height"] - 1)
            width = random_.uniform(0, image["width"] - x - 0.1)
            height = random_.choice([0, random_.uniform(0, image["height"] - y - 0.1)])
            digits = random_.choice([None, 2])
            numbers = [x, y, width, height]
            annotation |= {
                "bbox": [number if digits is None else round(number, digits) for number in numbers],
                "category_id": random_.choice(classes),
                "iscrowd": random_.randint(0, 1),
                "area": random_.choice([7, random_.uniform(0, 1e4)]),
            }
            if random_.random() < 0.7:
                annotation["segmentation"] = segmentation(random_)
        if kind != "objects":
            annotation["caption"] = random_.choice(["a cat", 'with "quotes"\n', "ü 🐈", ""])
        annotations.append(annotation)
    parts: dict[str, Any] = {
        "info": {"year": [2017, {"x": None}]},
        "images": images,
        "annotations": annotations,
    }
    if kind != "captions":
        parts["categories"] = [
            {"id": each, "name": f"class {each}", "supercategory": "x"} for each in classes
        ]
    random_.shuffle(images)
    order = list(parts)
    random_.shuffle(order)
    parts = {name: parts[name] for name in order}
    document.parent.mkdir(exist_ok=True)
    document.write_text(
        json.dumps(parts, indent=random_.choice([None, 2]), ensure_ascii=random_.random() < 0.5)
    )
    settings = {"images": folder} if place == "named" or random_.random() < 0.2 else {}
    return document, parts, settings


def break_it(root: Path, document: Path, parts: dict[str, Any], random_: random.Random) -> str:
    """Damage the annotations or an image; return a part of the message."""
    images, annotations = parts["images"], parts["annotations"]
    image = random_.choice(images)
    number = images.index(image)
    box = {
        "id": -1,
        "image_id": image["id"],
        "category_id": parts["categories"][0]["id"],
        "bbox": [1, 1, 2, 2],
    }
    what = random_.choice(FAULTS)
    text = None
    if what == "missing":
        next(root.rglob(Path(image["file_name"]).name)).unlink()
        # If only the first image is looked for, its directory is not found.
        expected = "" if number == 0 else re.escape(f"images[{number}] (id {image['id']}): its column")
        expected += r".*is not an existing file|names .*, which is in none of the usual places"
    elif what == "renamed":
        image["file_name"] += ".gif"
        next(root.rglob(Path(image["file_name"]).stem)).rename(root / "renamed")
        expected = "is not an existing file|in none of the usual places|does not end in"
    elif what in ("up", "absolute"):
        image["file_name"] = "../1.png" if what == "up" else "/1.png"
        expected = rf"images\[{number}\] has the file name .*1.png.*, which is not a path below"
    elif what == "image id":
        images.append(image)
        expected = rf"images\[{len(images) - 1}\] has the id {image['id']}, which images\[{number}\] has, too"
    elif what == "id":
        annotations += [box, box]
        expected = rf"annotations\[{len(annotations) - 1}\]: has the id -1, which another annotation has"
    elif what == "image":
        annotations.append({**box, "image_id": 77 << 50})
        expected = f"the annotation -1 is of the image {77 << 50}, which `images` does not list"
    elif what == "category":
        annotations.append({**box, "category_id": 1234})
        expected = "the annotation -1 has the category 1234, which `categories` does not list"
    elif what in ("negative", "NaN"):
        annotations.append({**box, "bbox": [1, 1, -2 if what == "negative" else float("nan"), 2]})
        expected = rf"annotations\[{len(annotations) - 1}\]: (has the bbox .*negative|expected value)"
    else:
        text = document.read_text()[: -random_.randint(1, 40)]
        expected = "cannot be read as COCO annotations: .*(EOF|expected)"
    document.write_text(text or json.dumps(parts))
    return expected


@pytest.mark.parametrize("seed", [int(SEED)] if SEED else seeds(200))
def test_annotations_are_those_of_pycocotools(seed: int, tmp_path: Path) -> None:
    print(f"FORELOAD_SEED={seed}")
    random_ = random.Random(seed)
    kind = random_.choice(["objects", "objects", "captions", "both"])
    document, parts, settings = make(tmp_path, random_, kind)
    names = list(ALWAYS)
    if kind != "captions" or not parts["annotations"]:
        names += ["num_boxes", "boxes", *ARRAYS]
    if kind != "objects" and parts["annotations"]:
        names += ["captions"]
    pictures = {}
    for image in parts["images"]:
        path = next(tmp_path.rglob(Path(image["file_name"]).name))
        pictures[image["file_name"]] = Image.open(path)
    same(read(document, names, **settings), reference(document, names, pictures))
    whole = document.read_bytes()
    for _ in range(3):
        damaged = bytearray(whole)
        damaged[random_.randrange(len(whole))] = random_.randrange(32, 127)
        document.write_bytes(damaged)
        try:
            ours = read(document, names, rebuild_index=True, **settings)
        except foreload.Error:
            continue
        same(ours, reference(document, names, pictures))
    document.write_bytes(whole)
    if kind != "captions" and random_.random() < 0.5:
        message = break_it(tmp_path, document, parts, random_)
        with pytest.raises(foreload.DatasetError, match=f"(?s){re.escape(document.name)}.*({message})"):
            read(document, names, **settings)


def example(root: Path, numbers: range = range(6)) -> Path:
    """Write annotations with a box for each but the first image, and a caption for each but the last."""
    random_ = np.random.default_rng(5)
    (root / "val").mkdir(parents=True)
    images, annotations = [], []
    for number in numbers:
        picture = random_.integers(0, 255, (40, 60, 3), np.uint8)
        Image.fromarray(picture).save(root / "val" / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "height": 40, "width": 60})
        for each in range(number % 4):
            box = [3 * each, 4.25, 20 + number, 15.5]
            about = {"category_id": 10 * each, "iscrowd": 0, "area": 9.5, "caption": f"{number} {each}"}
            annotations.append({"id": len(annotations), "image_id": number, "bbox": box, **about})
    categories = [{"id": 10 * each, "name": name} for each, name in enumerate(["cat", "dog", "eel"])][::-1]
    document = root / "instances_val.json"
    document.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return document


def test_boxes_follow_crops_and_flips_as_those_of_files(tmp_path: Path) -> None:
    document = example(tmp_path)
    of = coco(document)
    with (tmp_path / "val.csv").open("w") as table:
        table.write("image,boxes\n")
        for number, image in of.imgs.items():
            boxes = np.array([each["bbox"] for each in of.imgToAnns[number]], np.float32).reshape(-1, 4)
            np.save(tmp_path / f"{number}.npy", boxes + np.pad(boxes[:, :2], ((0, 0), (2, 0))))
            table.write(f"val/{image['file_name']},{number}.npy\n")
    crops = [T.RandomIoUCrop(), T.RandomHorizontalFlip(), T.Resize((30, 30)), T.ToDtype("uint8")]
    for settings in ({"format": "xyxy"}, {"format": "xyxy", "shares": True}, {"format": "xywh"}):
        asked = ["image", fields.Boxes("boxes", **settings)]
        corners = ["image", fields.Boxes("boxes", **{**settings, "format": "xyxy"})]
        ours = ImageLoader(document, batch_size=6, fields=asked, transforms=crops, seed=3, **PLAIN)
        theirs = ImageLoader(
            tmp_path / "val.csv", batch_size=6, fields=corners, transforms=crops, seed=3, **PLAIN
        )
        for _ in range(3):
            for one, other in zip(ours, theirs, strict=True):
                images = [np.from_dlpack(batch["image"]) for batch in (one, other)]
                assert np.array_equal(*images)
                boxes, expected = (np.from_dlpack(batch["boxes"][0]) for batch in (one, other))
                if settings["format"] == "xywh":
                    expected = expected - np.pad(expected[:, :2], ((0, 0), (2, 0)))
                assert np.allclose(boxes, expected, atol=1e-4)
                assert np.array_equal(*(np.from_dlpack(batch["boxes"][1]) for batch in (one, other)))


def test_class_names_are_those_of_the_categories_in_the_order_of_ids(tmp_path: Path) -> None:
    document = example(tmp_path / "one")
    asked = ["image", "boxes", "labels"]
    loader = ImageLoader(document, batch_size=6, fields=asked, **SAME)
    assert loader.classes == ["cat", "dog", "eel"]
    batch = next(iter(loader))
    assert [array(batch, "labels", at).tolist() for at in range(6)] == [[], [0], [0, 1], [0, 1, 2], [], [0]]
    some = ImageLoader(document, batch_size=6, fields=asked, where="num_boxes > 0", **SAME)
    assert np.from_dlpack(next(iter(some)).sample_ids).tolist() == [1, 2, 3, 5]
    other = example(tmp_path / "other", range(10, 14))
    both = ImageLoader([document, other], batch_size=10, fields=asked, **SAME)
    assert both.classes == loader.classes
    assert np.from_dlpack(next(iter(both))["boxes"][1])[-1] == 7 + 6
    renamed = json.loads(other.read_text())
    renamed["categories"][0]["name"] = "owl"
    other.write_text(json.dumps(renamed))
    with pytest.raises(
        foreload.DatasetError, match=r'numbers other classes in "labels" than .*one/instances'
    ):
        ImageLoader([document, other], batch_size=10, fields=asked, rebuild_index=True, **SAME)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    document = example(tmp_path)
    whole = json.loads(document.read_text())

    def refused(message: str, *asked: Any, path: Path = document, **settings: Any) -> None:
        with pytest.raises(foreload.ConfigError, match=message):
            ImageLoader(path, batch_size=2, fields=["image", *asked], **{**SAME, **settings})

    whole["annotations"][0] |= {"segmentation": [[1, 1, 5, 1, 5, 5]], "keypoints": [1, 2, 2]}
    del whole["annotations"][1]["area"]
    document.write_text(json.dumps(whole))
    for name in ("segmentation", "keypoints", "area"):
        refused(rf'"{name}".*(of COCO annotations are not read|annotation 1 has no area)', name)
    refused("masks of COCO annotations are not read", fields.Mask("segmentation"))
    refused('"captions" as another kind than it is stored', fields.Text("captions"))
    refused('"boxes" as another kind than it is stored', fields.Array("boxes"))
    refused("images: is for a .json of COCO annotations", path=tmp_path / "val", images=tmp_path)
    refused("images: is .*nowhere, which cannot be opened", images=tmp_path / "nowhere")
    refused("images: is .*0.png, which is not a directory", images=tmp_path / "val" / "0.png")
    refused("must be a table", path=tmp_path / "val", labels=document)
    shutil.copytree(tmp_path / "val", tmp_path / "images")
    with pytest.raises(foreload.DatasetError, match="which is in val/ and in images/: set images="):
        ImageLoader(document, batch_size=2, fields=["image"], rebuild_index=True, **SAME)


def test_changed_annotations_are_read_again(tmp_path: Path) -> None:
    document = example(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = read(document, ["boxes"])
        same(read(document, ["boxes"]), before)
        # The same annotations, written at another time.
        document.write_text(document.read_text())
        same(read(document, ["boxes"]), before)
    whole = json.loads(document.read_text())
    whole["annotations"][0]["bbox"][0] += 1
    document.write_text(json.dumps(whole))
    with pytest.warns(
        foreload.Warning, match='has other values in its column "boxes" than when it was indexed'
    ):
        after = read(document, ["boxes"])
    assert after[1]["boxes"][0][0] == before[1]["boxes"][0][0] + 1
    whole["categories"][0]["name"] = "owl"
    document.write_text(json.dumps(whole))
    with pytest.warns(foreload.Warning, match='has other values in its column "labels"'):
        loader = ImageLoader(document, batch_size=1, fields=["image", "labels"], **SAME)
    assert loader.classes == ["cat", "dog", "owl"]


def test_a_packed_copy_has_the_same_fields(tmp_path: Path) -> None:
    document = example(tmp_path)
    names = [*NUMBERS, "boxes", *ARRAYS, "captions"]

    def pack(into: str, *options: str) -> Path:
        command = [sys.executable, "-m", "foreload", "pack", document, tmp_path / into, *options]
        subprocess.run(command, check=True, capture_output=True)
        return tmp_path / into

    same(read(pack("packed", "--images", str(tmp_path / "val")), names), read(document, names))
    tars = pack("tars", "--to", "tar")
    asked = ["png", fields.Boxes("boxes.npy"), fields.Array("labels.npy", ragged=True), "captions.json"]
    batch = next(iter(ImageLoader(tars, batch_size=6, fields=asked, **SAME)))
    for at, row in enumerate(read(document, ["boxes", "labels", "captions"])):
        assert np.array_equal(array(batch, "boxes.npy", at), row["boxes"])
        assert np.array_equal(array(batch, "labels.npy", at), row["labels"])
        assert batch["captions.json"][at] == row["captions"]
