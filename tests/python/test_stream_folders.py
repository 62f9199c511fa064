"""`foreload.streams.Folder`: a directory that grows during training, and changes of directories meanwhile."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from conftest import paths
from foreload import ConfigError, Rehearsal, fields, streams
from test_streams import balanced, load
from waiting import until

WATCHES = ("inotify", "poll")


def publish(source: Path, target: Path) -> None:
    """Rename a file to its final name when it is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden = target.with_name(f".{target.name}")
    shutil.copyfile(source, hidden)
    hidden.rename(target)


def watching(root: Path, **settings: Any) -> foreload.StreamLoader:
    """Return a loader that takes single samples in the order of their arrival."""
    options = {key: settings.pop(key) for key in [*settings] if key in FOLDER}
    usual = {"fields": ["image", fields.Text("__key__")], "batch_size": 1, "image_size": 16}
    return load(streams.Folder(root, **{"poll": 0.05, **options}), **{**usual, **settings})


FOLDER = {"members", "done", "classes", "after", "move_to", "watch", "poll", "name"}


def keys(loader: foreload.StreamLoader, count: int) -> list[str]:
    return [key for batch in itertools.islice(loader, count) for key in batch["__key__"]]


@pytest.mark.parametrize("watch", WATCHES)
def test_files_come_as_they_appear(dataset: Path, tmp_path: Path, watch: str) -> None:
    files = paths(dataset)
    for number in range(3):
        publish(files[number], tmp_path / f"{number:03}.jpg")
    loader = watching(tmp_path, watch=watch)
    assert keys(loader, 3) == ["000.jpg", "001.jpg", "002.jpg"], "what is there comes by name"

    def feed() -> None:
        for number in range(3, 40):
            # Directories are created and removed, and some are deep.
            publish(files[number], tmp_path / ("deep/" * (number % 3)) / f"{number:03}.jpg")
            time.sleep(0.004)

    feeder = threading.Thread(target=feed)
    feeder.start()
    seen = keys(loader, 37)
    feeder.join()
    assert sorted(key.split("/")[-1] for key in seen) == [f"{number:03}.jpg" for number in range(3, 40)]
    assert len(set(seen)) == 37
    stats = balanced(loader)
    assert (stats["delivered"], stats["failed"]) == (40, 0)
    assert stats["latency_p99_seconds"] < 60


@pytest.mark.parametrize("watch", WATCHES)
def test_a_file_is_used_once_whatever_happens_to_it(dataset: Path, tmp_path: Path, watch: str) -> None:
    files = paths(dataset)
    loader = watching(tmp_path, watch=watch)
    publish(files[0], tmp_path / "a.jpg")
    assert keys(loader, 1) == ["a.jpg"]
    publish(files[1], tmp_path / "a.jpg")
    os.utime(tmp_path / "a.jpg")
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden.jpg").write_bytes(b"")
    (tmp_path / "half.jpg.tmp").write_bytes(b"")
    (tmp_path / "sub.jpg").mkdir()
    publish(files[2], tmp_path / "b.jpg")
    assert keys(loader, 1) == ["b.jpg"]
    publish(files[2], tmp_path / "sub.jpg" / "c.JPG")
    assert keys(loader, 1) == ["sub.jpg/c.JPG"]
    assert balanced(loader)["received"] == 3


def test_a_file_that_is_written_in_place_comes_when_it_is_closed(dataset: Path, tmp_path: Path) -> None:
    loader = watching(tmp_path, watch="inotify")
    publish(paths(dataset)[0], tmp_path / "first.jpg")
    assert keys(loader, 1) == ["first.jpg"]
    data = paths(dataset)[1].read_bytes()

    def write() -> None:
        with (tmp_path / "slow.jpg").open("wb") as file:
            for at in range(0, len(data), len(data) // 5):
                file.write(data[at : at + len(data) // 5])
                file.flush()
                time.sleep(0.03)

    writer = threading.Thread(target=write)
    writer.start()
    assert keys(loader, 1) == ["slow.jpg"]
    writer.join()
    os.link(tmp_path / "first.jpg", tmp_path / "linked.jpg")
    assert keys(loader, 1) == ["linked.jpg"]
    assert balanced(loader)["failed"] == 0


@pytest.mark.parametrize("watch", WATCHES)
def test_samples_of_several_files_come_when_all_are_there(dataset: Path, tmp_path: Path, watch: str) -> None:
    files = paths(dataset)
    loader = watching(
        tmp_path,
        watch=watch,
        members=["jpg", "cls", "left.txt"],
        fields=["jpg", "label", fields.Text("left.txt"), "__key__"],
    )
    for number in range(4):
        (tmp_path / f"s{number}.cls").write_text(str(number))
        publish(files[number], tmp_path / f"s{number}.jpg")
    for number in (2, 0):
        (tmp_path / f".{number}").write_text(f"text {number}")
        (tmp_path / f".{number}").rename(tmp_path / f"s{number}.left.txt")
        (batch,) = itertools.islice(loader, 1)
        assert (batch["__key__"], batch["left.txt"]) == ([f"s{number}"], [f"text {number}"])
        assert np.from_dlpack(batch.labels).tolist() == [number]


@pytest.mark.parametrize("watch", WATCHES)
def test_a_marker_says_that_a_sample_is_complete(dataset: Path, tmp_path: Path, watch: str) -> None:
    loader = watching(tmp_path, watch=watch, done=".done", on_error="skip")
    (tmp_path / "x.jpg").write_bytes(paths(dataset)[0].read_bytes()[:100])
    publish(paths(dataset)[1], tmp_path / "w.jpg")
    (tmp_path / "w.done").touch()
    assert keys(loader, 1) == ["w"], "x has no marker"
    (tmp_path / "x.jpg").write_bytes(paths(dataset)[0].read_bytes())
    (tmp_path / "x.done").touch()
    assert keys(loader, 1) == ["x"]
    (tmp_path / "nothing.done").touch()
    publish(paths(dataset)[1], tmp_path / "y.jpg")
    (tmp_path / "y.done").touch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert keys(loader, 1) == ["y"]
        iter(loader)
    assert "none of its files" in str([each.message for each in caught])
    assert balanced(loader)["failed"] == 1


def test_directories_may_be_classes(dataset: Path, tmp_path: Path) -> None:
    files = paths(dataset)
    for number, name in enumerate(["cat", "dog", "cat", "cow"]):
        publish(files[number], tmp_path / name / f"{number}.jpg")
    settings = {"fields": ["image", "label", "__key__"], "batch_size": 3}
    loader = watching(tmp_path, classes=["dog", "cat"], on_error="skip", **settings)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (batch,) = itertools.islice(loader, 1)
        iter(loader)
    assert '"cow" is not one of the classes' in " ".join(str(each.message) for each in caught)
    labels = np.from_dlpack(batch.labels).tolist()
    found = {key.split("/")[0]: label for key, label in zip(batch["__key__"], labels, strict=True)}
    assert found == {"cat": 1, "dog": 0}


@pytest.mark.parametrize("after", ["keep", "delete", "move"])
def test_what_is_acknowledged_may_go_and_a_training_goes_on(
    dataset: Path, tmp_path: Path, after: str
) -> None:
    files, root, moved = paths(dataset), tmp_path / "in", tmp_path / "moved"
    for number in range(30):
        publish(files[number], root / "d" / f"{number:03}.jpg")
    rules = {"after": after, "move_to": moved if after == "move" else None}
    loader = watching(root, **rules)
    seen = keys(loader, 10)
    state = loader.state_dict()
    more = keys(loader, 5)
    left = len(list(root.rglob("*.jpg")))
    assert left == 30, "nothing goes before it is acknowledged"
    loader.acknowledge(state)
    left = {f"d/{path.name}" for path in root.rglob("*.jpg")}
    gone = set() if after == "keep" else set(seen)
    assert left == {f"d/{number:03}.jpg" for number in range(30)} - gone
    assert {f"d/{path.name}" for path in moved.rglob("*.jpg")} == (set(seen) if after == "move" else set())
    assert len(loader.state_dict()["sources"][0]["position"]["settled"]) == (15 if after == "keep" else 5)
    del loader
    # The run ends here, and resumes from the state; samples that arrived in between come, too.
    for number in range(30, 35):
        publish(files[number], root / f"{number:03}.jpg")
    resumed = watching(root, **rules)
    resumed.load_state_dict(state)
    later = keys(resumed, 25)
    assert sorted(seen + later) == sorted(
        [*(f"d/{number:03}.jpg" for number in range(30)), *(f"{number:03}.jpg" for number in range(30, 35))]
    )
    assert set(more) <= set(later)
    assert balanced(resumed)["delivered"] == 35


@pytest.mark.parametrize("watch", WATCHES)
def test_what_vanishes_or_is_too_large_is_counted(dataset: Path, tmp_path: Path, watch: str) -> None:
    loader = watching(tmp_path, watch=watch, on_error="skip", max_bytes="50KB", batch_size=3)
    (tmp_path / "large.jpg").write_bytes(bytes(60_000))
    (tmp_path / "empty.jpg").write_bytes(b"")
    os.symlink(tmp_path / "nowhere", tmp_path / "broken.jpg")
    for name in ("zy.jpg", "zz.jpg"):
        publish(paths(dataset)[0], tmp_path / name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seen = keys(loader, 1)
        iter(loader)
    # One of the files that were read is no image; another one takes its place.
    assert set(seen) == {"zy.jpg", "zz.jpg"}
    messages = " ".join(str(each.message) for each in caught)
    assert "large.jpg has 60000 bytes, but max_bytes is 50000" in messages or "broken.jpg" in messages
    stats = balanced(loader)
    assert (stats["received"], stats["failed"], stats["delivered"]) == (5, 3, 2)


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(foreload.Error, match=r"nowhere"):
        next(iter(watching(tmp_path / "nowhere")))
    with pytest.raises(ConfigError, match=r"watch"):
        watching(tmp_path, watch="sometimes")
    with pytest.raises(ConfigError, match=r"which is inside"):
        watching(tmp_path, after="move", move_to=tmp_path / "below")


def test_a_journal_replays_a_directory(dataset: Path, tmp_path: Path) -> None:
    root = tmp_path / "in"
    order = np.random.default_rng(1).permutation(60)

    def feed() -> None:
        for number in order:
            publish(paths(dataset)[number], root / f"{number:03}.jpg")
            time.sleep(0.002)

    root.mkdir()
    settings = {"batch_size": 4, "rehearsal": Rehearsal(20, share=0.25)}
    feeder = threading.Thread(target=feed)
    feeder.start()

    def content(loader: foreload.StreamLoader) -> Iterator[tuple[Any, ...]]:
        for batch in itertools.islice(loader, 19):
            yield tuple(batch["__key__"]), np.from_dlpack(batch["image"]).tobytes()

    first = list(content(watching(root, journal=tmp_path / "journal", **settings)))
    feeder.join()
    assert list(content(watching(root, replay=tmp_path / "journal", threads=1, **settings))) == first
    # A file that was removed is named.
    (root / f"{order[0]:03}.jpg").unlink()
    with pytest.raises(foreload.UnavailableError, match=rf"{order[0]:03}.jpg.* cannot be read again"):
        list(content(watching(root, replay=tmp_path / "journal", **settings)))


@pytest.mark.parametrize("watch", WATCHES)
def test_a_directory_that_is_removed_is_an_error(dataset: Path, tmp_path: Path, watch: str) -> None:
    root = tmp_path / "in"
    publish(paths(dataset)[0], root / "000.jpg")
    batches = iter(watching(root, watch=watch))
    assert next(batches)["__key__"] == ["000.jpg"]
    shutil.rmtree(root)
    with pytest.raises(foreload.Error, match=r"in: No such file or directory"):
        next(batches)


def test_a_directory_that_is_made_again_is_looked_into(dataset: Path, tmp_path: Path) -> None:
    root = tmp_path / "in"
    publish(paths(dataset)[0], root / "000.jpg")
    batches = iter(watching(root, watch="inotify"))
    next(batches)
    publish(paths(dataset)[1], tmp_path / "new" / "001.jpg")
    # A new file replaces it at once.
    (tmp_path / "new" / "000.jpg").hardlink_to(root / "000.jpg")
    exchange(tmp_path / "new", root)
    shutil.rmtree(tmp_path / "new")
    assert next(batches)["__key__"] == ["001.jpg"]


def exchange(first: Path, second: Path) -> None:
    """Exchange the names of two files with renameat2(2)."""
    at_here, exchanged = -100, 2
    renamed = ctypes.CDLL(None).renameat2(at_here, bytes(first), at_here, bytes(second), exchanged)
    assert renamed == 0


def test_thousands_of_files_at_once_are_all_found(dataset: Path, tmp_path: Path) -> None:
    """If there are more events than fit into the kernel's queue, the directory is listed instead."""
    publish(paths(dataset)[0], tmp_path / "seed.jpg")
    image = paths(dataset)[0].read_bytes()
    loader = watching(tmp_path, watch="inotify", batch_size=50)
    batches = iter(loader)

    def write(first: int) -> None:
        directory = tmp_path / f"d{first}"
        directory.mkdir()
        for number in range(first, first + 500):
            (directory / f"t{number}.tmp").write_bytes(image)
            (directory / f"t{number}.tmp").rename(directory / f"{number:05}.jpg")

    workers = [threading.Thread(target=write, args=(first,)) for first in range(0, 3000, 500)]
    for worker in workers:
        worker.start()
    found: set[str] = set()
    take = lambda: found.update(next(batches)["__key__"]) or len(found)  # noqa: E731
    until("all files come", take, lambda count: count >= 3000, seconds=120)
    for worker in workers:
        worker.join()
    assert len(found) == 3000
