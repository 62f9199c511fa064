"""What the world does to a dataset between runs and within them, and what a run makes of it.

Every row changes a dataset, its index or its cache in one way. A run after that, in a new process, delivers what is on
the drive then, or says by name what changed; never anything else. Before the change a second run is right with at least
nine tenths of its samples from the cache: else nothing would be shown.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import struct
import tarfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

SAMPLES = 24
CLASSES = ("ant", "bee", "cat")


def jpeg(number: int, size: int = 3000) -> bytes:
    """A JPEG file of exactly `size` bytes: what is behind the image's end is filled up."""
    out = io.BytesIO()
    level = 37 * number % 256
    Image.new("RGB", (16 + number % 8, 16), (level, 255 - level, 99)).save(out, "JPEG")
    bytes_ = out.getvalue()
    filler = hashlib.sha256(str(number).encode()).digest() * (size // 32 + 1)
    return bytes_ + filler[: size - len(bytes_)]


def masked_crc(data: bytes) -> bytes:
    """The checksum of a TFRecord's part."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    """A TFRecord."""
    length = struct.pack("<Q", len(data))
    return length + masked_crc(length) + data + masked_crc(data)


def tar_of(members: list[tuple[str, bytes]]) -> bytes:
    """A tar archive as Python's own library writes it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def shard(first: int, label: int = 0, salt: int = 0, size: int = 3000) -> bytes:
    """Eight images and their classes, from number `first` on."""
    members = []
    for number in range(first, first + 8):
        members.append((f"{number:04}.cls", str((number + label) % 3).encode()))
        members.append((f"{number:04}.jpg", jpeg(number + salt, size)))
    return tar_of(members)


@dataclass
class World:
    """A dataset of one layout, its index and its cache, in one directory."""

    base: Path
    layout: str
    cached: bool

    @property
    def root(self) -> Path:
        """The dataset."""
        return self.base / "data"

    def make(self, root: Path | None = None, salt: int = 0) -> None:
        """Writes the dataset; another `salt` gives other contents of the same sizes."""
        root = root or self.root
        root.mkdir(parents=True)
        if self.layout == "tar":
            for number in range(3):
                (root / f"s{number}.tar").write_bytes(shard(8 * number, salt=salt))
        elif self.layout == "tfrecord":
            for number in range(3):
                records = (record(jpeg(8 * number + i + salt)) for i in range(8))
                (root / f"s{number}.tfrecord").write_bytes(b"".join(records))
        else:
            for number in range(SAMPLES):
                folder = root / CLASSES[3 * number // SAMPLES]
                folder.mkdir(exist_ok=True)
                suffix = "jpg" if self.layout == "images" else "bin"
                (folder / f"{number:04}.{suffix}").write_bytes(jpeg(number + salt))

    def files(self) -> list[Path]:
        """All files of the dataset, in order."""
        return sorted(path for path in self.root.rglob("*") if path.is_file())

    def run(
        self, root: Path | None = None, between: Callable[[], None] | None = None, **settings: Any
    ) -> Run:
        """One epoch in a process of its own; with `between` two, and that done between them in this one."""
        told, tell = os.pipe()
        go, gone = os.pipe()
        with warnings.catch_warnings():
            # Of a fork beside threads: the child calls nothing that they may hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            os.close(told)
            os.close(gone)
            with open(tell, "w") as out, open(go) as wait:
                try:
                    iterate(self, root or self.root, settings, 1 if between is None else 2, out, wait)
                except BaseException:
                    out.write(json.dumps({"defect": traceback.format_exc()}) + "\n")
                out.flush()
                os._exit(0)
        os.close(tell)
        os.close(go)
        reports = []
        with open(told) as lines, open(gone, "w") as start:
            reports.append(json.loads(lines.readline()))
            if between is not None:
                between()
                start.write("go\n")
                start.flush()
                reports.append(json.loads(lines.readline()))
        os.waitpid(child, 0)
        for report in reports:
            assert "defect" not in report, report["defect"]
        return Run(self, reports[-1])


def iterate(world: World, root: Path, settings: dict, epochs: int, out: Any, wait: Any) -> None:
    """What the child does: iterates, and tells what it got."""
    import foreload

    kind = foreload.ImageLoader if world.layout in ("images", "tar") else foreload.FileLoader
    if kind is foreload.ImageLoader:
        settings = {"decoded": False, **settings}
    if world.cached:
        settings = {"cache_dir": world.base / "cache", "cache_size": "64MB", **settings}
    loader = None
    for epoch in range(epochs):
        report: dict[str, Any] = {"samples": [], "error": None, "cache": {}}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                if loader is None:
                    index = world.base / "index"
                    loader = kind(root, batch_size=4, last_batch="partial", index_dir=index, **settings)
                loader.set_epoch(epoch)
                batches = iter(loader)
                for batch in batches:
                    labels = (
                        np.from_dlpack(batch.labels) if kind is foreload.ImageLoader else [0] * len(batch)
                    )
                    for sample, file, label in zip(
                        np.from_dlpack(batch.sample_ids), batch.files, labels, strict=True
                    ):
                        path, offset, length = loader.locate(int(sample))
                        digest = hashlib.sha256(np.from_dlpack(file).tobytes()).hexdigest()
                        report["samples"].append([str(path), offset, length, digest, int(label)])
                report["cache"] = batches.stats().get("cache", {})
            except foreload.Error as error:
                report["error"] = f"{type(error).__name__}: {error}"
        report["warnings"] = [str(warning.message) for warning in said]
        if epoch + 1 == epochs:
            # What was read is kept when the loader ends.
            del loader
        out.write(json.dumps(report) + "\n")
        out.flush()
        if epoch + 1 < epochs:
            wait.readline()


@dataclass
class Run:
    """What a run delivered and said."""

    world: World
    report: dict[str, Any]

    def wrong(self, truth: Callable[[str, int, int], tuple[str, int] | None] | None = None) -> list[str]:
        """The samples that are not what is on the drive now."""
        truth = truth or Truth(self.world)
        wrong = []
        for path, offset, length, digest, label in self.report["samples"]:
            if truth(path, offset, length) != (digest, label):
                wrong.append(f"{path} {offset}+{length} label {label}")
        return wrong

    def says(self, *names: str) -> bool:
        """Whether an error or a warning names one of these."""
        said = [self.report["error"] or "", *self.report["warnings"]]
        return any(name in message for message in said for name in names)

    @property
    def hits(self) -> int:
        """Samples from the cache."""
        return self.report["cache"].get("nvme_hits", 0)


class Truth:
    """What is on the drive: digest of a sample's bytes, and its class, as other programs read them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.shards: dict[str, dict[int, tuple[str, int]]] = {}

    def __call__(self, path: str, offset: int, length: int) -> tuple[str, int] | None:
        """Of one sample; None where no sample is."""
        if self.world.layout == "tar":
            return self.members(path).get(offset)
        data = Path(path).read_bytes()
        if self.world.layout == "tfrecord":
            return hashlib.sha256(data[offset : offset + length]).hexdigest(), 0
        label = 0
        if self.world.layout == "images":
            root = Path(path).parents[1]
            label = sorted(entry.name for entry in root.iterdir() if entry.is_dir()).index(
                Path(path).parent.name
            )
        return hashlib.sha256(data).hexdigest(), label

    def members(self, path: str) -> dict[int, tuple[str, int]]:
        """The images of a shard by their offsets."""
        if path not in self.shards:
            with tarfile.open(path) as archive:
                all_ = {member.name: member for member in archive}
                self.shards[path] = {
                    member.offset_data: (
                        hashlib.sha256(archive.extractfile(member).read()).hexdigest(),
                        int(archive.extractfile(all_[name[:-3] + "cls"]).read()),
                    )
                    for name, member in all_.items()
                    if name.endswith("jpg")
                }
        return self.shards[path]


# How files change.


def in_place(path: Path, data: bytes) -> None:
    """As an editor does that keeps the file."""
    path.write_bytes(data)


def replaced(path: Path, data: bytes) -> None:
    """As most programs do: another file takes the place."""
    new = path.with_name(path.name + ".tmp~")
    new.write_bytes(data)
    os.replace(new, path)


def with_old_time(write: Callable[[Path, bytes], None]) -> Callable[[Path, bytes], None]:
    """The same, with the modification time set back."""

    def written(path: Path, data: bytes) -> None:
        before = path.stat()
        write(path, data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    return written


def at_time(write: Callable[[Path, bytes], None], seconds: float) -> Callable[[Path, bytes], None]:
    """The same by a host whose clock differs by so much."""

    def written(path: Path, data: bytes) -> None:
        then = path.stat().st_mtime_ns
        write(path, data)
        os.utime(path, ns=(then, then + int(seconds * 1e9)))

    return written


def other(path: Path) -> bytes:
    """Other contents of the same size that are as good a file of this kind."""
    if path.suffix == ".tar":
        first = 8 * int(path.stem[1:])
        return shard(first, salt=1000)
    if path.suffix == ".tfrecord":
        first = 8 * int(path.stem[1:])
        return b"".join(record(jpeg(first + i + 1000)) for i in range(8))
    return jpeg(int(path.stem) + 1000, path.stat().st_size)


WRITES = {
    "in place": in_place,
    "in place, time set back": with_old_time(in_place),
    "replaced": replaced,
    "replaced, time set back": with_old_time(replaced),
    "replaced by a host an hour behind": at_time(replaced, -3600),
    "in place by a host a day ahead": at_time(in_place, 86400),
}


def write_some(write: Callable[[Path, bytes], None]) -> Callable[[World], list[str]]:
    """Every third file has other contents of the same size."""

    def change(world: World) -> list[str]:
        changed = world.files()[::3]
        for path in changed:
            write(path, other(path))
        return [path.name for path in changed]

    return change


def resize(bytes_: int) -> Callable[[World], list[str]]:
    """One file grows or shrinks in place."""

    def change(world: World) -> list[str]:
        path = world.files()[1]
        data = path.read_bytes()
        path.write_bytes(data + b"x" * bytes_ if bytes_ > 0 else data[:bytes_])
        return [path.name, path.parent.name]

    return change


def remove(world: World) -> list[str]:
    """A file goes."""
    path = world.files()[2]
    path.unlink()
    return [path.name, path.parent.name]


def add(world: World) -> list[str]:
    """A file comes."""
    path = world.files()[0]
    new = path.with_name("zz" + path.name)
    new.write_bytes(other(path))
    return [new.name, new.parent.name]


def rename(world: World) -> list[str]:
    """A file gets another name."""
    path = world.files()[-1]
    path.rename(path.with_name("a" + path.name))
    return [path.name, path.parent.name]


def swap(world: World) -> list[str]:
    """Two files of the same size get one another's names."""
    one, two = world.files()[0], world.files()[1]
    times = [path.stat().st_mtime_ns for path in (one, two)]
    aside = one.with_name("aside~")
    one.rename(aside)
    two.rename(one)
    aside.rename(two)
    for path, time in zip((one, two), times, strict=True):
        os.utime(path, ns=(time, time))
    return [one.name, two.name, one.parent.name]


def link(world: World) -> list[str]:
    """A symbolic link to another file of the same size takes a file's place."""
    one, two = world.files()[0], world.files()[1]
    target = world.base / "elsewhere"
    target.write_bytes(other(two))
    two.unlink()
    two.symlink_to(target)
    return [one.name, two.name, two.parent.name]


def touch(world: World) -> list[str]:
    """All files get other times and rights; nothing else changes."""
    for path in world.files():
        os.utime(path)
        path.chmod(0o600)
    return []


def stray(world: World) -> list[str]:
    """A file of a network file system comes and goes in every directory."""
    for folder in {path.parent for path in world.files()}:
        (folder / ".nfs1").touch()
        (folder / ".nfs1").unlink()
    return []


def copied(world: World) -> list[str]:
    """The dataset is copied with its times, and the copy takes its place."""
    os.rename(world.root, world.base / "former")
    shutil.copytree(world.base / "former", world.root)
    return []


def replaced_whole(world: World) -> list[str]:
    """Another dataset with the same names, sizes and times takes the place."""
    former = world.base / "former"
    os.rename(world.root, former)
    world.make(salt=500)
    for path in [*sorted(former.rglob("*")), former]:
        then = path.stat()
        os.utime(world.root / path.relative_to(former), ns=(then.st_atime_ns, then.st_mtime_ns))
    return [world.root.name]


def relabel(world: World) -> list[str]:
    """A file moves to another class; a shard of the same size has other classes."""
    if world.layout == "tar":
        path = world.files()[1]
        with_old_time(in_place)(path, shard(8, label=1))
        return [path.name]
    path = world.files()[0]
    path.rename(world.root / CLASSES[2] / path.name)
    return [path.name, *CLASSES]


def rename_class(world: World) -> list[str]:
    """A class gets another name, and so all others other numbers."""
    os.rename(world.root / "ant", world.root / "zebra")
    return ["ant", "zebra", "data"]


def swap_classes(world: World) -> list[str]:
    """Two classes get one another's names."""
    os.rename(world.root / "ant", world.root / "x")
    os.rename(world.root / "bee", world.root / "ant")
    os.rename(world.root / "x", world.root / "bee")
    return ["ant", "bee", "data"]


def remove_class(world: World) -> list[str]:
    """A class goes."""
    shutil.rmtree(world.root / "bee")
    return ["bee", "data"]


def add_class(world: World) -> list[str]:
    """A class comes."""
    shutil.copytree(world.root / "bee", world.root / "antelope")
    return ["antelope", "data"]


def reorder(world: World) -> list[str]:
    """The samples of a shard stand in another order."""
    path = world.files()[0]
    members = []
    for number in reversed(range(8)):
        members += [(f"{number:04}.cls", str(number % 3).encode()), (f"{number:04}.jpg", jpeg(number))]
    with_old_time(in_place)(path, tar_of(members))
    return [path.name]


def other_samples(world: World) -> list[str]:
    """A shard has other samples of other sizes."""
    path = world.files()[0]
    path.write_bytes(
        shard(100, size=2500) if world.layout == "tar" else record(jpeg(5)) + record(jpeg(6, 700))
    )
    return [path.name]


def no_index(world: World) -> list[str]:
    """The index is removed."""
    shutil.rmtree(world.base / "index")
    return []


def broken_index(world: World) -> list[str]:
    """The index is damaged in its columns."""
    for path in (world.base / "index").glob("*.index"):
        data = bytearray(path.read_bytes())
        data[-200:-100] = bytes(100)
        path.write_bytes(data)
    return []


def short_index(world: World) -> list[str]:
    """The index is cut off."""
    for path in (world.base / "index").glob("*.index"):
        os.truncate(path, path.stat().st_size // 2)
    return []


def damaged_cache(world: World) -> list[str]:
    """Bytes of the cache flip."""
    for path in (world.base / "cache").rglob("*.seg"):
        data = bytearray(path.read_bytes())
        for at in range(100, len(data), 4000):
            data[at] ^= 255
        path.write_bytes(data)
    return []


def swapped_cache(world: World) -> list[str]:
    """Segments of the cache go, or get other names."""
    for number, path in enumerate(sorted((world.base / "cache").rglob("*.seg"))):
        path.rename(path.with_name(f"{number + 900:08}.seg"))
    return []


def no_cache(world: World) -> list[str]:
    """The cache is removed."""
    shutil.rmtree(world.base / "cache", ignore_errors=True)
    return []


LOOSE, SHARDS, ALL = ("images", "files"), ("tar", "tfrecord"), ("images", "files", "tar", "tfrecord")
RIGHT, NAMED = "right bytes", "noticed and named"

# What changes, in which layouts, and what a run makes of it at least: where it is named, what it delivers is right too.
ROWS: dict[str, tuple[tuple[str, ...], str, Callable[[World], list[str]]]] = {
    **{f"contents, {how}": (ALL, RIGHT, write_some(write)) for how, write in WRITES.items()},
    "a file grows": (ALL, NAMED, resize(+700)),
    "a file grows by a byte": (LOOSE, NAMED, resize(+1)),
    "a file shrinks": (ALL, NAMED, resize(-700)),
    "a file is removed": (ALL, NAMED, remove),
    "a file is added": (ALL, NAMED, add),
    "a file is renamed": (ALL, NAMED, rename),
    "two files are swapped": (ALL, RIGHT, swap),
    "a link takes a file's place": (LOOSE, RIGHT, link),
    "times and rights alone": (ALL, RIGHT, touch),
    "a stray file comes and goes": (ALL, RIGHT, stray),
    "a copy takes the place": (ALL, RIGHT, copied),
    "a twin takes the place": (ALL, RIGHT, replaced_whole),
    "a sample is relabelled": (("images", "tar"), NAMED, relabel),
    "a class is renamed": (("images",), NAMED, rename_class),
    "two classes are swapped": (("images",), RIGHT, swap_classes),
    "a class is removed": (LOOSE, NAMED, remove_class),
    "a class is added": (LOOSE, NAMED, add_class),
    "samples are reordered": (("tar",), RIGHT, reorder),
    "a shard has other samples": (SHARDS, NAMED, other_samples),
    "the index is removed": (ALL, RIGHT, no_index),
    "the index is damaged": (ALL, RIGHT, broken_index),
    "the index is cut off": (ALL, RIGHT, short_index),
    "the cache is damaged": (ALL, RIGHT, damaged_cache),
    "the cache's segments are renamed": (ALL, RIGHT, swapped_cache),
    "the cache is removed": (ALL, RIGHT, no_cache),
}


def cases() -> Iterator[Any]:
    """Each row in each of its layouts, with and without a cache."""
    for name, (layouts, outcome, change) in ROWS.items():
        for layout in layouts:
            for cached in (True, False):
                if cached or "the cache" not in name:
                    yield pytest.param(
                        layout, cached, outcome, change, id=f"{name}-{layout}{'-cached' if cached else ''}"
                    )


@pytest.mark.parametrize(("layout", "cached", "outcome", "change"), cases())
def test_between_runs(
    tmp_path: Path, layout: str, cached: bool, outcome: str, change: Callable[[World], list[str]]
) -> None:
    world = World(tmp_path, layout, cached)
    world.make()
    for _control in range(2):
        run = world.run()
        assert len(run.report["samples"]) == SAMPLES, run.report
        assert not run.wrong()
        assert not run.report["warnings"], "nothing happened yet"
    if cached:
        assert run.hits >= 0.9 * SAMPLES, run.report["cache"]
    names = change(world)
    run = world.run()
    assert not run.wrong()
    if outcome == NAMED:
        assert run.says(*names), run.report
    else:
        assert len(run.report["samples"]) == SAMPLES, run.report
    # Who is told what to do, does it: then all is as it was.
    if run.report["error"]:
        run = world.run(rebuild_index=True)
    assert run.report["error"] is None
    assert not run.wrong()
    run = world.run()
    assert run.report["samples"]
    assert not run.wrong()
    if cached:
        assert run.hits >= 0.9 * len(run.report["samples"]), run.report["cache"]


# What may happen while a run goes on.
WITHIN: dict[str, Callable[[World], list[str]]] = {
    **{f"contents, {how}": write_some(write) for how, write in WRITES.items()},
    "a file grows": resize(+700),
    "a file shrinks": resize(-700),
    "a file is removed": remove,
    "times and rights alone": touch,
    "a stray file comes and goes": stray,
    "the index is removed": no_index,
    "the index is damaged": broken_index,
    "the index is cut off": short_index,
    "the cache is damaged": damaged_cache,
    "the cache is removed": no_cache,
}


@pytest.mark.parametrize("cached", [True, False], ids=["cached", "plain"])
@pytest.mark.parametrize("layout", ALL)
@pytest.mark.parametrize("how", WITHIN)
def test_within_a_run(tmp_path: Path, how: str, layout: str, cached: bool) -> None:
    """Between two epochs of a run: each sample as it was when it was checked, or as it is, whole; or an error."""
    world = World(tmp_path, layout, cached)
    world.make()
    before = Truth(world)
    known = {}
    for path, offset, length, digest, label in world.run().report["samples"]:
        known[path, offset, length] = (digest, label)
    assert len(known) == SAMPLES
    assert all(before(*place) == sample for place, sample in known.items())
    names: list[str] = []
    run = world.run(between=lambda: names.extend(WITHIN[how](world)))
    after = Truth(world)
    for path, offset, length, digest, label in run.report["samples"]:
        was = known[path, offset, length]
        if was != (digest, label):
            assert after(path, offset, length) == (digest, label), (
                f"{path} {offset}: neither what it was nor what it is"
            )
    assert len(run.report["samples"]) == SAMPLES or run.says(*names), run.report
    if how.startswith(("contents", "the", "times", "a stray")):
        run = world.run()
        assert not run.wrong()
        assert len(run.report["samples"]) == SAMPLES


@pytest.mark.parametrize("layout", ALL)
def test_twins_share_a_cache(tmp_path: Path, layout: str) -> None:
    """Two datasets with equal names, sizes and times: each gets its own bytes, and its own copies."""
    one = World(tmp_path / "one", layout, True)
    one.make()
    two = World(tmp_path / "two", layout, True)
    two.make(salt=500)
    for path in [*sorted(one.root.rglob("*")), one.root]:
        then = path.stat()
        os.utime(two.root / path.relative_to(one.root), ns=(then.st_atime_ns, then.st_mtime_ns))
    os.symlink(one.base / "cache", two.base / "cache")
    for turn in range(3):
        for world in (one, two):
            run = world.run()
            assert not run.wrong()
            assert len(run.report["samples"]) == SAMPLES
            assert run.hits == (SAMPLES if turn else 0), run.report["cache"]


@pytest.mark.parametrize(
    ("settings", "seen"),
    [({"verify": "checksum"}, True), ({"immutable": True}, False)],
    ids=["checksum", "immutable"],
)
def test_what_is_said_of_the_dataset_is_taken_for_true(tmp_path: Path, settings: dict, seen: bool) -> None:
    world = World(tmp_path, "files", True)
    world.make()
    world.run(**settings)
    former = Truth(world)
    old = {path: former(str(path), 0, 0) for path in world.files()}
    write_some(with_old_time(in_place))(world)
    run = world.run(**settings)
    if seen:
        assert not run.wrong()
    else:
        assert all(old[Path(path)] == (digest, label) for path, _, _, digest, label in run.report["samples"])
    assert not world.run().wrong()
