"""Changes of datasets, indexes and caches: each function changes a world and returns the names of the changed files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from world import CLASSES, World, jpeg, record, shard, tar_of


def in_place(path: Path, data: bytes) -> None:
    """Write in place, like an editor that keeps the file."""
    path.write_bytes(data)


def replaced(path: Path, data: bytes) -> None:
    """Replace the file, as most programs do."""
    new = path.with_name(path.name + ".tmp~")
    new.write_bytes(data)
    os.replace(new, path)


def with_old_time(write: Callable[[Path, bytes], None]) -> Callable[[Path, bytes], None]:
    """Return `write`, but with the modification time set back."""

    def written(path: Path, data: bytes) -> None:
        before = path.stat()
        write(path, data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    return written


def at_time(write: Callable[[Path, bytes], None], seconds: float) -> Callable[[Path, bytes], None]:
    """Return `write`, but by a host whose clock differs by `seconds`."""

    def written(path: Path, data: bytes) -> None:
        then = path.stat().st_mtime_ns
        write(path, data)
        os.utime(path, ns=(then, then + int(seconds * 1e9)))

    return written


def other(path: Path) -> bytes:
    """Return other contents of the same size that are a valid file of this kind."""
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
    """A file is removed."""
    path = world.files()[2]
    path.unlink()
    return [path.name, path.parent.name]


def add(world: World) -> list[str]:
    """A file is added."""
    path = world.files()[0]
    new = path.with_name("zz" + path.name)
    new.write_bytes(other(path))
    return [new.name, new.parent.name]


def rename(world: World) -> list[str]:
    """A file is renamed."""
    path = world.files()[-1]
    path.rename(path.with_name("a" + path.name))
    return [path.name, path.parent.name]


def swap(world: World) -> list[str]:
    """Two files of the same size exchange their names."""
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
    """A symbolic link to another file of the same size replaces a file."""
    one, two = world.files()[0], world.files()[1]
    target = world.base / "elsewhere"
    target.write_bytes(other(two))
    two.unlink()
    two.symlink_to(target)
    return [one.name, two.name, two.parent.name]


def touch(world: World) -> list[str]:
    """All files get other times and permissions; nothing else changes."""
    for path in world.files():
        os.utime(path)
        path.chmod(0o600)
    return []


def stray(world: World) -> list[str]:
    """A temporary file of a network file system appears and disappears in every directory."""
    for folder in {path.parent for path in world.files()}:
        (folder / ".nfs1").touch()
        (folder / ".nfs1").unlink()
    return []


def copied(world: World) -> list[str]:
    """A copy of the dataset with the same times replaces it."""
    os.rename(world.root, world.base / "former")
    shutil.copytree(world.base / "former", world.root)
    return []


def replaced_whole(world: World) -> list[str]:
    """Another dataset with the same names, sizes and times replaces it."""
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
    """A class is renamed, which changes the numbers of all other classes."""
    os.rename(world.root / "ant", world.root / "zebra")
    return ["ant", "zebra", "data"]


def swap_classes(world: World) -> list[str]:
    """Two classes exchange their names."""
    os.rename(world.root / "ant", world.root / "x")
    os.rename(world.root / "bee", world.root / "ant")
    os.rename(world.root / "x", world.root / "bee")
    return ["ant", "bee", "data"]


def remove_class(world: World) -> list[str]:
    """A class is removed."""
    shutil.rmtree(world.root / "bee")
    return ["bee", "data"]


def add_class(world: World) -> list[str]:
    """A class is added."""
    shutil.copytree(world.root / "bee", world.root / "antelope")
    return ["antelope", "data"]


def reorder(world: World) -> list[str]:
    """The samples of a shard are in another order."""
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
    """The index is truncated."""
    for path in (world.base / "index").glob("*.index"):
        os.truncate(path, path.stat().st_size // 2)
    return []


def damaged_cache(world: World) -> list[str]:
    """Bytes of the cache are flipped."""
    for path in (world.base / "cache").rglob("*.seg"):
        data = bytearray(path.read_bytes())
        for at in range(100, len(data), 4000):
            data[at] ^= 255
        path.write_bytes(data)
    return []


def swapped_cache(world: World) -> list[str]:
    """Segments of the cache are removed or renamed."""
    for number, path in enumerate(sorted((world.base / "cache").rglob("*.seg"))):
        path.rename(path.with_name(f"{number + 900:08}.seg"))
    return []


def no_cache(world: World) -> list[str]:
    """The cache is removed."""
    shutil.rmtree(world.base / "cache", ignore_errors=True)
    return []
