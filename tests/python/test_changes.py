"""Changes of a dataset between and during runs, and how a run reacts.

Every row changes a dataset, its index or its cache in one way. A later run, in a new process, delivers the data that is
on the drive then, or names what changed, and never anything else. Before the change, a second run must be right with at
least nine tenths of its samples from the cache: otherwise the row would prove nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import happenings as happens
import pytest
from conftest import FIFTH, LONG_TOO, THOROUGH
from happenings import WRITES, write_some
from world import SAMPLES, Truth, World

# Plain files and TFRecord behave like images and tar. They are tested with a cache if all tests run, and without one
# only in long runs.
LOOSE = ("images", "files") if LONG_TOO else ("images",)
SHARDS = ("tar", "tfrecord") if LONG_TOO else ("tar",)
WITHOUT_CACHE = (*LOOSE, *SHARDS) if THOROUGH else ("images", "tar")
ALL = LOOSE + SHARDS
RIGHT, NAMED, BROKEN = "right bytes", "noticed and named", "noticed and named until it is mended"

# The changes, their layouts, and the least reaction of a run. If a run names a change, its data must be right, too.
ROWS: dict[str, tuple[tuple[str, ...], str, Callable[[World], list[str]]]] = {
    **{f"contents, {how}": (ALL, RIGHT, write_some(write)) for how, write in WRITES.items()},
    "a file grows": (LOOSE, NAMED, happens.resize(+700)),
    "a shard grows": (SHARDS, BROKEN, happens.resize(+700)),
    "a file grows by a byte": (LOOSE, NAMED, happens.resize(+1)),
    "a file shrinks": (LOOSE, NAMED, happens.resize(-700)),
    "a shard is cut off": (SHARDS, BROKEN, happens.resize(-20_000)),
    "a file is removed": (ALL, NAMED, happens.remove),
    "a file is added": (ALL, NAMED, happens.add),
    "a file is renamed": (ALL, NAMED, happens.rename),
    "two files are swapped": (ALL, RIGHT, happens.swap),
    "a link takes a file's place": (LOOSE, RIGHT, happens.link),
    "times and rights alone": (ALL, RIGHT, happens.touch),
    "a stray file comes and goes": (ALL, RIGHT, happens.stray),
    "a copy takes the place": (ALL, RIGHT, happens.copied),
    "a twin takes the place": (ALL, RIGHT, happens.replaced_whole),
    "a sample is relabelled": (("images", "tar"), NAMED, happens.relabel),
    "a class is renamed": (("images",), NAMED, happens.rename_class),
    "two classes are swapped": (("images",), RIGHT, happens.swap_classes),
    "a class is removed": (LOOSE, NAMED, happens.remove_class),
    "a class is added": (LOOSE, NAMED, happens.add_class),
    "samples are reordered": (("tar",), RIGHT, happens.reorder),
    "a shard has other samples": (SHARDS, NAMED, happens.other_samples),
    "the index is removed": (ALL, RIGHT, happens.no_index),
    "the index is damaged": (ALL, RIGHT, happens.broken_index),
    "the index is cut off": (ALL, RIGHT, happens.short_index),
    "the cache is damaged": (ALL, RIGHT, happens.damaged_cache),
    "the cache's segments are renamed": (ALL, RIGHT, happens.swapped_cache),
    "the cache is removed": (ALL, RIGHT, happens.no_cache),
}


def cases() -> Iterator[Any]:
    """Return each row in each of its layouts, with and without a cache."""
    for name, (layouts, outcome, change) in ROWS.items():
        for layout in layouts:
            for cached in (True, False):
                if cached or ("the cache" not in name and layout in WITHOUT_CACHE):
                    yield pytest.param(
                        layout, cached, outcome, change, id=f"{name}-{layout}{'-cached' if cached else ''}"
                    )


@FIFTH
@pytest.mark.parametrize(("layout", "cached", "outcome", "change"), [*cases()])
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
    if outcome != RIGHT:
        assert run.says(*names), run.report
    else:
        assert len(run.report["samples"]) == SAMPLES, run.report
    if outcome == BROKEN:
        assert world.run(rebuild_index=True).says(*names)
        return
    # After the user follows the message, everything works as before.
    if run.report["error"]:
        run = world.run(rebuild_index=True)
    assert run.report["error"] is None
    assert not run.wrong()
    run = world.run()
    assert run.report["samples"]
    assert not run.wrong()
    if cached:
        assert run.hits >= 0.9 * len(run.report["samples"]), run.report["cache"]


# Changes that happen during a run.
WITHIN: dict[str, Callable[[World], list[str]]] = {
    **{f"contents, {how}": write_some(write) for how, write in WRITES.items()},
    "a file grows": happens.resize(+700),
    "a file shrinks": happens.resize(-700),
    "a file is removed": happens.remove,
    "times and rights alone": happens.touch,
    "a stray file comes and goes": happens.stray,
    "the index is removed": happens.no_index,
    "the index is damaged": happens.broken_index,
    "the index is cut off": happens.short_index,
    "the cache is damaged": happens.damaged_cache,
    "the cache is removed": happens.no_cache,
}


@pytest.mark.parametrize(
    ("layout", "cached"),
    [(layout, cached) for layout in ALL for cached in (True, False) if cached or layout in WITHOUT_CACHE],
)
@FIFTH
@pytest.mark.parametrize("how", WITHIN)
def test_within_a_run(tmp_path: Path, how: str, layout: str, cached: bool) -> None:
    """Between two epochs of a run, each sample is as it was when it was checked, or as it is now, complete; or an
    error.
    """
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
    """Two datasets with equal names, sizes and times each get their own bytes and their own copies."""
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
    write_some(happens.with_old_time(happens.in_place))(world)
    run = world.run(**settings)
    if seen:
        assert not run.wrong()
    else:
        assert all(old[Path(path)] == (digest, label) for path, _, _, digest, label in run.report["samples"])
    assert not world.run().wrong()
