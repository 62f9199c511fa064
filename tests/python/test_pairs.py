"""Parallel directories: samples whose files are in several directories and belong together by their names.

Tree N of the first test is made from the seed N; `FORELOAD_SEED=N` tries only that one.
"""

from __future__ import annotations

import collections
import io
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from conftest import THOROUGH, need, seeds
from foreload import fields
from foreload import transforms as T
from PIL import Image

SEED = os.environ.get("FORELOAD_SEED")
IMAGES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp")
SUFFIXES = ("_gt", "_label", "_labels", "_mask", "_seg", "-mask")
SETTINGS: dict[str, Any] = {"batch_size": 64, "device": "cpu", "threads": 1, "last_batch": "partial"}
PLAIN: dict[str, Any] = {"shuffle": False, "transforms": [T.ToDtype("uint8")], **SETTINGS}


def png(number: int, mode: str = "RGB") -> bytes:
    """Return an image of one value, which says which file it is."""
    buffer = io.BytesIO()
    Image.new(mode, (4, 3), (number,) * 3 if mode == "RGB" else number).save(buffer, "png", compress_level=1)
    return buffer.getvalue()


def reference(root: Path, sources: list[str], optional: bool) -> str | list[list[str | None]]:
    """Return the paths of each sample's files, or a part of the message that refuses the tree."""
    walk = os.walk(root, followlinks=True)
    files = sorted(os.path.relpath(Path(at, name), root) for at, _, names in walk for name in names)
    files = [path for path in files if (root / path).is_file() and "/." not in path]

    def stem(source: str, path: str) -> str | None:
        if "*" not in source:
            return os.path.splitext(path[len(source) + 1 :])[0] if path.startswith(source + "/") else None
        before, after = source.split("*")
        fits = path.startswith(before) and path.endswith(after) and len(path) >= len(before) + len(after)
        return path[len(before) : len(path) - len(after)] if fits else None

    images = {path: stem(sources[0], path) for path in files if path.lower().endswith(IMAGES)}
    images = {path: of for path, of in images.items() if of is not None}
    if len(sources) > 1 and len(set(images.values())) < len(images):
        return "differ only in their extensions"
    found: dict[str, dict[str, str]] = {}
    for source in sorted(sources[1:]):
        named = [(of, path) for path in files if (of := stem(source, path)) is not None]
        own = [(of, path) for of, path in named if of in images.values()]
        ends = () if "*" in source else SUFFIXES
        cut = {of: next((of.removesuffix(end) for end in ends if of.endswith(end)), of) for of, _ in named}
        more = [
            (cut[of], path) for of, path in named if of not in images.values() and cut[of] not in dict(own)
        ]
        own += [(of, path) for of, path in more if of in images.values()]
        found[source] = dict(own)
        if len(found[source]) < len(own):
            return "both belong to"
        lacking = [path for path, of in images.items() if of not in found[source]]
        if lacking and not optional:
            return f"{source} has no file for {len(lacking)} of {len(images)} images, such as {lacking[0]}"
    return [[path, *(found[source].get(of) for source in sources[1:])] for path, of in images.items()]


def make_tree(root: Path, random_: random.Random) -> list[str]:
    """Write directories with missing, extra, renamed, nested and linked files; return the sources of the fields."""
    patterns = random_.random() < 0.3
    sources = (
        ["left/*_left.png", "gt/*_gt_ids.png", "gt/*_gt_text.txt"]
        if patterns
        else ["images", "masks", "a/txt"]
    )
    sources = sources[: random_.randint(1, 3)]
    names = [
        f"{random_.choice(['', '', 'b/', 'b.c/d/'])}{n}{random_.choice(['', '.x', 'ü'])}" for n in range(6)
    ]
    broken = random_.random() < 0.6
    for number, source in enumerate(sources):
        for at, name in enumerate(names):
            endings = [".png"] if patterns else [".png", ".jpg", ".PNG"] if number < 2 else [".txt"]
            path = source.replace("*", name) if patterns else f"{source}/{name}{random_.choice(endings)}"
            what = random_.random() if broken else 1
            if what < 0.06:
                continue
            if what < 0.1:
                path = path.replace(name, name + random_.choice([*SUFFIXES, "_other"]))
            paths = [path, path.replace(name, f"{name}_x")] if what > 0.9 else [path]
            if what < 0.14:
                paths.append(path.replace(name, name + "_mask"))
            elif what < 0.17:
                paths.append(os.path.splitext(path)[0] + ".webp")
            for target in (root / of for of in paths):
                target.parent.mkdir(parents=True, exist_ok=True)
                content = (
                    f"{at}".encode()
                    if target.suffix == ".txt"
                    else png(at + 10 * number, "L" if number else "RGB")
                )
                target.write_bytes(content)
        if random_.random() < 0.2 and broken:
            directory = root / source.split("*")[0].rstrip("/")
            (directory / ".hidden.png").write_bytes(b"x")
            os.symlink("nowhere", directory / f"broken{number}_left.png")
            if not patterns:
                (root / f".store{number}").mkdir()
                stored = root / f".store{number}" / ("7.txt" if number == 2 else "7.png")
                stored.write_bytes(b"7" if number == 2 else png(7 + 10 * number, "L" if number else "RGB"))
                os.symlink(stored.parent, directory / "linked")
    return sources


def read(root: Path, sources: list[str], optional: bool, **settings: Any) -> list[list[Any]]:
    """Return the values by which files are known, sample by sample."""
    kinds = [fields.Image, fields.Mask, fields.Text]
    asked = [
        kind(source, optional=optional and at > 0)
        for at, (kind, source) in enumerate(zip(kinds, sources, strict=False))
    ]
    loader = foreload.ImageLoader(root, fields=asked, **PLAIN, **settings)
    rows: list[list[Any]] = []
    for batch in loader:
        for at in range(len(np.from_dlpack(batch.sample_ids))):
            row = []
            for source in sources:
                there = not optional or source == sources[0] or np.from_dlpack(batch.present(source))[at]
                value = batch[source][at] if there else None
                row.append(
                    value if value is None or isinstance(value, str) else int(np.from_dlpack(value).max())
                )
            rows.append(row)
    return rows


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_random_trees_are_read_as_by_a_walk(tmp_path: Path) -> None:
    """Partners are found by stems; missing and ambiguous ones are refused."""
    seen = collections.Counter[str]()
    for seed in seeds(300) if SEED is None else [int(SEED)]:
        root = tmp_path / f"{seed}"
        sources, optional = make_tree(root, random.Random(seed)), seed % 2 == 0
        expected = reference(root, sources, optional)

        def value(path: str | None) -> Any:
            if path is None or path.endswith(".txt"):
                return path and (root / path).read_text()  # noqa: B023
            with Image.open(root / path) as image:  # noqa: B023
                return int(np.asarray(image).max())

        try:
            if isinstance(expected, str):
                seen[expected if "such as" not in expected else "missing"] += 1
                with pytest.raises(foreload.DatasetError, match=re.escape(expected)):
                    read(root, sources, optional)
            else:
                seen["read"] += 1
                assert read(root, sources, optional) == [[value(path) for path in row] for row in expected]
        except BaseException as error:
            error.add_note(f"FORELOAD_SEED={seed}: {sorted(map(str, root.rglob('*')))}")
            raise
        finally:
            shutil.rmtree(root)
    assert len(seen) == 4 or not (SEED is None and THOROUGH), seen


@pytest.fixture
def streets(tmp_path: Path) -> Path:
    """Images and masks as in Cityscapes: named by patterns, in a directory for each city."""
    random_ = np.random.default_rng(7)
    for number in range(12):
        name = f"{'ulm' if number % 2 else 'bonn'}/{number:02}"
        image = tmp_path / f"left/train/{name}_left.jpg"
        mask = tmp_path / f"gt/train/{name}_gt_ids.png"
        for path in (image, mask):
            path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random_.integers(0, 256, (24, 32, 3), np.uint8)).save(image, quality=90)
        Image.fromarray(random_.integers(0, 19, (24, 32), np.uint8)).save(mask)
        mask.with_name(mask.name.replace("ids", "color")).write_bytes(b"x")
    return tmp_path


LEFT, GT = "left/train/*_left.jpg", "gt/train/*_gt_ids.png"
ASKED = [fields.Image(LEFT, name="image"), fields.Mask(GT, name="mask")]
CROPS = [T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.ToDtype("uint8")]


def batches(root: Path, asked: list[Any], **settings: Any) -> list[dict[str, np.ndarray]]:
    """Return the images and masks of an epoch."""
    loader = foreload.ImageLoader(
        root, **{"seed": 3, "transforms": CROPS, "fields": asked, "shuffle": False, **SETTINGS, **settings}
    )
    names = [getattr(field, "name", field) for field in asked]
    return [{name: np.from_dlpack(batch[name]).copy() for name in names} for batch in loader]


def same(one: list[dict[str, np.ndarray]], other: list[dict[str, np.ndarray]]) -> None:
    """Compare batches."""
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def listed(root: Path) -> Path:
    """Write a manifest of the same samples."""
    images = sorted(str(path.relative_to(root)) for path in root.glob("left/train/*/*.jpg"))
    rows = [f"{of},{of.replace('left/', 'gt/').replace('_left.jpg', '_gt_ids.png')}" for of in images]
    (root / "train.csv").write_text("\n".join(["image,mask", *rows]) + "\n")
    return root / "train.csv"


def foreload_(*arguments: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run the program."""
    command = [sys.executable, "-m", "foreload", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_patterns_give_the_batches_of_a_manifest(streets: Path) -> None:
    """Masks follow the crops of their images, in every epoch and with torch."""
    manifest = listed(streets)
    wanted = batches(manifest, ["image", fields.Mask("mask")])
    same(batches(streets, ASKED), wanted)
    only = batches(streets, [fields.Mask(GT, name="mask"), fields.Image(LEFT, name="image")])
    same([{name: of[name] for name in ("image", "mask")} for of in only], wanted)
    with need("torch"):
        from foreload.torch import Dataset

        dataset = Dataset(streets, fields=ASKED, shuffle=False, seed=3, transforms=CROPS, **SETTINGS)
        same(
            [{name: np.from_dlpack(batch[name]).copy() for name in ("image", "mask")} for batch in dataset],
            wanted,
        )


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_directories_are_packed_with_all_their_fields(
    streets: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A packed dataset gives the same batches with the same fields; tar shards have a member for each field."""
    wanted, into = batches(streets, ASKED), tmp_path_factory.mktemp("packed")
    packed = foreload_("pack", streets, into / "packed", "--fields", f"{LEFT},{GT}", "--shard-size", "9000")
    assert packed.returncode == 0, packed.stderr
    same(batches(into / "packed", ASKED), wanted)
    shuffled = {"shuffle": True, "batch_size": 4}
    same(batches(into / "packed", ASKED, **shuffled), batches(streets, ASKED, **shuffled))
    tars = foreload_("pack", streets, into / "tars", "--fields", f"{LEFT},{GT}", "--to", "tar")
    assert tars.returncode == 0, tars.stderr
    names = foreload_("index", into / "tars", "--json").stdout
    (member,) = set(re.findall(r'"(gt[a-z_]*\.png)"', names))
    asked = [fields.Image("jpg", name="image"), fields.Mask(member, name="mask")]
    same(batches(into / "tars", asked), wanted)
    (into / "classes/a").mkdir(parents=True)
    (into / "classes/a/a.png").write_bytes(png(1))
    refused = foreload_("pack", into / "classes", into / "more", "--fields", "image")
    assert refused.returncode != 0
    assert "only for parallel directories" in refused.stderr


def test_changes_of_any_directory_are_noticed(streets: Path) -> None:
    """Added, removed and renamed files rebuild the index; other files in the directories do not."""

    def open_(**settings: Any) -> foreload.ImageLoader:
        return foreload.ImageLoader(streets, fields=ASKED, image_size=8, **SETTINGS, **settings)

    mask = streets / "gt/train/ulm/01_gt_ids.png"
    image = streets / "left/train/ulm/01_left.jpg"
    first = open_().fingerprint
    (streets / "gt/train/bonn/notes.txt").write_text("x")
    assert open_(changed="refuse").fingerprint == first
    mask.rename(mask.with_name("01_gt_idz.png"))
    with pytest.raises(
        foreload.DatasetError, match=r"has no file for 1 of 12 images, such as left/train/ulm/01_left.jpg"
    ):
        open_()
    image.rename(image.with_name("01.jpg"))
    with pytest.raises(foreload.DatasetError, match=r"has no file left/train/ulm/01_left\.jpg any more"):
        open_(changed="refuse")
    with pytest.warns(foreload.Warning, match="has changed since it was indexed"):
        assert open_().samples == 11
    for name in ("left/train/kiel/1_left.jpg", "gt/train/kiel/1_gt_ids.png"):
        (streets / name).parent.mkdir()
        shutil.copy(
            (image.with_name("01.jpg") if "left" in name else mask.with_name("01_gt_idz.png")), streets / name
        )
    with pytest.warns(foreload.Warning, match=r"has a new file left/train/kiel/1_left\.jpg"):
        assert open_().samples == 12
    # A mask that is written again is read as it is now: every start looks up its size.
    Image.new("L", (32, 24), 5).save(streets / "gt/train/kiel/1_gt_ids.png")
    assert max(of["mask"].max() for of in batches(streets, ASKED, indices=[6])) == 5


def test_damaged_files_are_named(streets: Path) -> None:
    """A damaged mask fails as a sample, and `foreload index --decode` names it."""
    mask = streets / "gt/train/ulm/03_gt_ids.png"
    mask.write_bytes(mask.read_bytes()[:60])
    with pytest.raises(foreload.SampleError, match="03"):
        batches(streets, ASKED)
    fields_ = f"{LEFT},{GT}"
    report = foreload_("index", streets, "--fields", fields_, "--decode")
    assert report.returncode != 0
    assert "03_gt_ids.png" in report.stdout + report.stderr
    shown = foreload_("index", streets, "--fields", fields_)
    assert "parallel directories" in shown.stdout, shown


def test_directories_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Errors name what is wrong and what to write."""

    def refused(message: str, *asked: Any, **settings: Any) -> None:
        with pytest.raises((foreload.ConfigError, foreload.DatasetError), match=message):
            foreload.ImageLoader(tmp_path, fields=list(asked) or None, image_size=8, **SETTINGS, **settings)

    for name in ("images", "label"):
        (tmp_path / name).mkdir()
        for number in range(3):
            (tmp_path / name / f"{number}.png").write_bytes(png(number, "RGB" if name == "images" else "L"))
    refused(r'open them with fields=\["images", foreload.fields.Mask\("label"\)\]')
    refused(
        'has "maskz", which names no directory of .*; its directories are images, label',
        "images",
        fields.Mask("maskz"),
    )
    refused("more than one", "images/*", fields.Mask("*/*.png"))
    refused("below the root", "images/*", fields.Mask("../label/*"))
    refused("split", "images", fields.Mask("label"), split="train")
    for asked in (["images", fields.Mask("label")], ["images/*.png", fields.Mask("label/*")]):
        (batch,) = batches(tmp_path, asked, transforms=[T.Resize((3, 4)), T.ToDtype("uint8")])
        assert [of.max() for of in batch[getattr(asked[1], "name", "")]] == [0, 1, 2]
    with pytest.raises(foreload.ConfigError, match="directories on a server are not paired by names"):
        foreload.ImageLoader("http://127.0.0.1:9/x/", fields=["images/*", fields.Mask("label/*")], **SETTINGS)
    (tmp_path / "images/extra.txt").write_text("x")
    (tmp_path / "label/9.png").write_bytes(b"x")
    loader = foreload.ImageLoader(tmp_path, fields=["images", fields.Mask("label")], image_size=8, **SETTINGS)
    assert loader.samples == 3
    shutil.rmtree(tmp_path / "label")
    with pytest.raises(foreload.ConfigError, match='has "label"'):
        foreload.ImageLoader(tmp_path, fields=["images", fields.Mask("label")], image_size=8, **SETTINGS)
