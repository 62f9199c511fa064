"""Random trees like datasets in practice: samples and labels equal those of a simple reference, or Foreload reports why
not.

Tree N is made from the seed N. `FORELOAD_SURVEY_SEED=N` tries only that one, `FORELOAD_SURVEY_TREES` sets their number.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import io
import os
import random
import shutil
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import foreload
import numpy as np
import pytest
from conftest import seeds
from PIL import Image

TREES = int(os.environ.get("FORELOAD_SURVEY_TREES", "1000"))
ONE = os.environ.get("FORELOAD_SURVEY_SEED")
SHOWN = 3
"""The most trees that a failure shows."""

PARQUET = Path(__file__).parents[1] / "fixtures/parquet/snappy/files/part-0.parquet"
FORMATS = {".jpg": "jpeg", ".jpeg": "jpeg", ".jpe": "jpeg", ".jfif": "jpeg", ".png": "png", ".webp": "webp"}
FOREIGN = (".gif", ".bmp", ".tiff", ".avif", ".heic")
SPLITS = ["train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval", "evaluation"]
SYSTEM = ["@eaDir", "#recycle", "$RECYCLE.BIN", "System Volume Information", "lost+found", "__MACOSX"]
CLASSES = ["cat", "dog", "a b", "ünï", "-dash", "Zebra", "#1", "@home", "cat~", "_x", "1", "10", "2"]
HIDDEN = [".ipynb_checkpoints", ".cache", ".git"]
UNFINISHED = [".a.tar", "a.tar~", "a.tar.bak", "b.tar.tmp", "c.tar.part", "x.tfrecord.gstmp", ".a.tar.AbC123"]

Samples = collections.Counter[tuple[int, int | None]]
"""Samples, as the numbers of their images and their labels."""


def suffix(name: str) -> str:
    """Return the ending of a name, also of one that begins with a dash."""
    return os.path.splitext(name)[1].lower()


# The reference: the right result.


@dataclasses.dataclass
class Part:
    """A possible dataset: its samples, and its files or those that represent it."""

    samples: Samples
    files: set[str]
    classes: list[str] | None = None
    may_be_refused: bool = False


@dataclasses.dataclass
class Right:
    """The right result for a root: one part is read and warnings name the others, or an error names all parts."""

    parts: list[Part]
    told: list[set[str]]
    """Sets of names. If the root is read, a warning must contain at least one name of each set."""
    refused: list[str] | None = None
    """The names that an error must contain; None if there may be no error."""


def is_left_out(name: str) -> bool:
    return name.startswith(".") or name in (*SYSTEM, "Thumbs.db")


def visible(directory: Path, above: tuple[Path, ...]) -> list[Path]:
    """Return the entries of a directory without skipped names, broken links and links to directories above."""
    paths = [path for path in sorted(directory.iterdir()) if path.exists() and not is_left_out(path.name)]
    return [path for path in paths if not (path.is_dir() and path.resolve() in above)]


def files(directory: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    """Yield all files below a directory, with links followed and without skipped names."""
    above = (*above, directory.resolve())
    for path in visible(directory, above):
        if path.is_dir():
            yield from files(path, above)
        elif path.name not in UNFINISHED:
            yield path


def unfinished(directory: Path, above: tuple[Path, ...]) -> Iterator[str]:
    above = (*above, directory.resolve())
    yield from (name for name in UNFINISHED if (directory / name).exists())
    for path in visible(directory, above):
        if path.is_dir():
            yield from unfinished(path, above)


def images(paths: list[Path], label: int | None) -> Samples:
    return Samples((number_of(path), label) for path in paths if suffix(path.name) in FORMATS)


def shards(paths: list[Path], *, below: bool) -> list[Part]:
    """Return the parts made of shards: shards of a layout in the root, or in directories."""
    found = []
    for ending in (".tar", ".parquet"):
        if own := [path for path in paths if suffix(path.name) == ending]:
            of_shard = [tar_samples(path) if ending == ".tar" else parquet_samples() for path in own]
            samples = sum(of_shard, Samples())
            found.append(Part(samples, {path.name for path in own}, may_be_refused=below))
    return found


def reference(root: Path, split: str | None) -> Right:
    if split:
        return reference(root / split, None)
    above = (root.resolve(),)
    directories = [path for path in visible(root, above) if path.is_dir()]
    in_root = [path for path in visible(root, above) if path.is_file() and path.name not in UNFINISHED]
    everything = {path: list(files(path, above)) for path in directories}
    of_splits = [
        path
        for path in directories
        if path.name in SPLITS and any(file.parent != path and images([file], 0) for file in everything[path])
    ]
    if of_splits:
        return Right([], [], [path.name for path in of_splits])
    classes = [images(everything[path], number) for number, path in enumerate(directories)]
    below = [file for path in directories for file in everything[path]]
    of_classes = Part(
        sum(classes, Samples()),
        {path.name for path in below if suffix(path.name) in FORMATS} | {path.name for path in directories},
        [path.name for path in directories],
    )
    loose = Part(images(in_root, None), {path.name for path in in_root if suffix(path.name) in FORMATS})
    loose.may_be_refused = True
    parts = [of_classes, *shards(in_root, below=False), *shards(below, below=True)]
    parts = [part for part in parts if part.samples]
    # One warning covers all images in the root next to other samples, whatever their format.
    told = [{path.name for path in in_root if suffix(path.name) in (*FORMATS, *FOREIGN)}] if parts else []
    for ending in FOREIGN:
        told.append(
            {path.name for path in (below if parts else in_root + below) if suffix(path.name) == ending}
        )
    told.append(set(unfinished(root, ())))
    return Right(parts or [loose] * bool(loose.samples), [names for names in told if names])


# Foreload's result for a tree, and whether it is right.


@dataclasses.dataclass
class Got:
    """The samples that Foreload read, or its error."""

    samples: Samples
    classes: list[str]
    told: str
    error: foreload.Error | None = None


def read(root: Path, split: str | None) -> Got:
    samples: Samples = Samples()
    classes: list[str] = []
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", foreload.Warning)
        try:
            loader = foreload.ImageLoader(
                root,
                split=split,
                batch_size=64,
                image_size=8,
                train=False,
                dtype="uint8",
                device="cpu",
                threads=1,
                last_batch="partial",
            )
            classes = loader.classes
            for batch in loader:
                pixels = np.from_dlpack(batch.images)
                valid = len(np.from_dlpack(batch.sample_ids))
                labels = np.from_dlpack(batch.labels).tolist() if hasattr(batch, "labels") else [None] * valid
                samples.update(zip(map(number_in, pixels), labels, strict=True))
        except foreload.Error as raised:
            error = raised
    return Got(samples, classes, "\n".join(str(one.message) for one in caught), error)


def wrong(right: Right, got: Got) -> str | None:
    """Return the error in Foreload's result for a root."""
    if got.error is not None:
        if not isinstance(got.error, (foreload.DatasetError, foreload.ConfigError)):
            return "an error while it is read"
        if right.refused is not None:
            missing = [name for name in right.refused if name not in str(got.error)]
            return f"the error does not name {missing}" if missing else None
        may = not right.parts or len(right.parts) > 1 or right.parts[0].may_be_refused
        return None if may else "an error for a dataset that is clear"
    if right.refused is not None or not right.parts:
        return "it is read, and must be refused"
    own = [
        part for part in right.parts if part.samples == got.samples and part.classes in (None, got.classes)
    ]
    if not own:
        return "other samples or labels"
    others = [part.files for part in right.parts if part is not own[0]]
    silent = [names for names in (*others, *right.told) if not any(name in got.told for name in names)]
    return f"no warning names any of {silent}" if silent else None


# The trees.


class Tree:
    """A root with random content."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.rng, self.images, self.shards = root, random.Random(seed), 0, 0
        self.clean = seed % 5 == 0
        root.mkdir()

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < probability

    def image(self, directory: Path, name: str | None = None) -> Path:
        """Put an image with a unique number into a directory."""
        self.images += 1
        ending = self.rng.choice([*FORMATS])
        name = name or self.rng.choice(["", "-", "é ", "img."]) + f"{self.images:03}" + self.rng.choice(
            [ending, ending.upper()]
        )
        (directory / name).write_bytes(encoded(self.images, FORMATS.get(suffix(name), "jpeg")))
        return directory / name

    def shard(self, directory: Path) -> None:
        """Put a tar, or the Parquet file, into a directory."""
        self.shards += 1
        if self.chance(0.3):
            shutil.copy(PARQUET, directory / f"s{self.shards}.parquet")
            return
        rows = []
        for row in range(self.rng.randint(1, 3)):
            self.images += 1
            rows.append((f"{row:03}", encoded(self.images, "jpeg"), self.rng.randrange(3)))
        write_tar(directory / f"s{self.shards}.tar", rows)

    def classes(self, directory: Path) -> None:
        """Make class directories, some of which have directories of their own."""
        for name in self.rng.sample(CLASSES, self.rng.randint(1, 4)):
            (directory / name).mkdir()
            for _ in range(self.rng.randint(1, 3)):
                self.image(directory / name)
            if self.chance(0.2):
                (directory / name / "more").mkdir()
                self.image(directory / name / "more")

    def mess(self) -> None:
        """Put files that belong to no dataset, or to another one, into some directories."""
        directories = [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]
        for _ in range(self.rng.randint(1, 4)):
            directory = self.rng.choice([self.root, *directories])
            self.rng.choice(MESSES)(self, directory)

    def hidden(self, directory: Path) -> None:
        """Make a directory that is skipped."""
        inner = directory / self.rng.choice(HIDDEN + SYSTEM)
        inner.mkdir(exist_ok=True)
        self.image(inner)
        if self.chance(0.3):
            (inner / "cat").mkdir(exist_ok=True)
            self.image(inner / "cat")
        if self.chance(0.3):
            self.shard(inner)

    def hidden_file(self, directory: Path) -> None:
        """Put a file that operating systems make."""
        (directory / self.rng.choice([".DS_Store", "._x.jpg", "Thumbs.db", ".x.png"])).write_bytes(
            b"\0\5\26\7"
        )

    def unfinished(self, directory: Path) -> None:
        """Put a backup of a shard, or the leftover of an interrupted copy."""
        (directory / self.rng.choice(UNFINISHED)).write_bytes(b"half")

    def foreign(self, directory: Path) -> None:
        """Put an image in an unsupported format."""
        ending = self.rng.choice(FOREIGN)
        (directory / f"f{self.images}{self.rng.choice([ending, ending.upper()])}").write_bytes(b"GIF89a")

    def loose(self, _directory: Path) -> None:
        """Put an image into the root."""
        self.image(self.root)

    def note(self, directory: Path) -> None:
        """Put a file that is neither image nor shard."""
        (directory / self.rng.choice(["notes.txt", "LICENSE", "list.md"])).write_text("seen by nobody")

    def link(self, directory: Path) -> None:
        """Put a link to an image, and perhaps one to a directory or to nothing."""
        everything = sorted(self.root.rglob("*"))
        directories = [path for path in everything if path.is_dir() and not path.is_symlink()]
        images = [path for path in everything if path.is_file() and suffix(path.name) in FORMATS]
        images = [path for path in images if not is_left_out(path.name)]
        name = f"l{len(everything)}"
        targets = [
            "missing",
            str(self.root),
            *map(str, self.rng.sample(directories, min(1, len(directories)))),
        ]
        if images:
            image = self.rng.choice(images)
            (directory / f"{name}{image.suffix}").symlink_to(image)
        if self.chance(0.5):
            (directory / name).symlink_to(self.rng.choice(targets))


MESSES = [
    Tree.hidden,
    Tree.hidden,
    Tree.hidden_file,
    Tree.unfinished,
    Tree.foreign,
    Tree.loose,
    Tree.note,
    Tree.link,
    Tree.shard,
]


def make(root: Path, seed: int) -> Tree:
    """Make the tree of this seed."""
    tree = Tree(root, seed)
    kind = tree.rng.choice(["classes", "classes", "classes", "splits", "shards"])
    if kind == "classes":
        tree.classes(root)
    elif kind == "splits":
        for name in ["train", *tree.rng.sample(SPLITS[1:], tree.rng.randint(1, 2))]:
            (root / name).mkdir()
            tree.classes(root / name)
        if not tree.clean and tree.chance(0.2):
            tree.classes(root)
    else:
        tree.shard(root)
    if not tree.clean:
        tree.mess()
    return tree


def encoded(number: int, kind: str) -> bytes:
    """Return an image of one colour, from which any decoder can recover the number."""
    file = io.BytesIO()
    colour = tuple(16 + 32 * (number >> shift & 7) for shift in (0, 3, 6))
    how = (
        {"lossless": True} if kind == "webp" else {"quality": 100, "subsampling": 0} if kind == "jpeg" else {}
    )
    Image.new("RGB", (8, 8), colour).save(file, kind, **how)
    return file.getvalue()


def number_in(pixels: np.ndarray) -> int:
    """Return the number of an image with channels first."""
    return sum(int(level) // 32 << shift for level, shift in zip(pixels[:, 4, 4], (0, 3, 6), strict=True))


def number_of(file: Path | io.BytesIO) -> int:
    with Image.open(file) as image:
        return number_in(np.asarray(image.convert("RGB")).transpose(2, 0, 1))


def write_tar(path: Path, rows: list[tuple[str, bytes, int]]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, image, label in rows:
            for ending, content in (("jpg", image), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{path.stem}{name}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def tar_samples(path: Path) -> Samples:
    """Return the samples of a tar as Python's tarfile reads them."""
    with tarfile.open(path) as tar:
        contents = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    stems = {name[:-4] for name in contents}
    pairs = [(io.BytesIO(contents[f"{stem}.jpg"]), int(contents[f"{stem}.cls"])) for stem in stems]
    return Samples((number_of(image), label) for image, label in pairs)


@functools.cache
def parquet_samples() -> Samples:
    """Return the samples of the Parquet file, read alone: the tests of its layout compare them with pyarrow's."""
    return read(PARQUET.parent, None).samples


def listing(root: Path) -> str:
    """Return the paths of a tree, with the targets of links."""
    lines = []
    for path in sorted(root.rglob("*")):
        leads = f" -> {os.readlink(path)}" if path.is_symlink() else "/" if path.is_dir() else ""
        lines.append(f"  {path.relative_to(root)}{leads}")
    return "\n".join(lines)


@pytest.mark.timeout(60 + TREES)
def test_no_tree_is_read_otherwise_in_silence(tmp_path: Path) -> None:
    failures, counts = [], collections.Counter[str]()
    for seed in [int(ONE)] if ONE else seeds(TREES):
        root = tmp_path / f"tree{seed}"
        make(root, seed)
        train = root / "train"
        for split in (None, "train") if train.is_dir() else (None,):
            right, got = reference(root, split), read(root, split)
            counts["refused" if got.error else "told" if got.told else "read"] += 1
            if what := wrong(right, got):
                shown = "\n".join(f"  {field}" for field in (right, got))
                failures.append(
                    f"FORELOAD_SURVEY_SEED={seed}, split={split}: {what}\n{listing(root)}\nright, and got:\n{shown}"
                )
        shutil.rmtree(root)
    print(dict(counts))
    assert not failures, f"{len(failures)} of {counts.total()}:\n" + "\n\n".join(failures[:SHOWN])
    # A survey without a tree that is read, one with warnings, and one that is refused would prove nothing.
    assert ONE or len(counts) == 3
