"""A stream that several ranks divide: each sample comes once, and all ranks make the same number of steps. Ranks are
processes.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from conftest import paths
from foreload import Rehearsal, fields, streams
from job import Failure, Process
from test_stream_folders import publish
from test_streams import Seekable, balanced, load, samples
from waiting import settled, until

SLURM = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0"}
"""Variables that distinguish jobs in one directory."""
KEYED = {"fields": ["jpg", "label", fields.Text("__key__")]}


def ranks_of(world_size: int, home: Path, run: Callable[..., Any], *arguments: Any) -> list[Process]:
    """Start the ranks of a job."""
    meeting = {"directory": home / "meeting", "timeout": 120}
    (home / "meeting").mkdir(exist_ok=True)
    places = [{"rank": rank, "world_size": world_size, "meeting": meeting} for rank in range(world_size)]
    return [Process(run, place, *arguments, variables=SLURM) for place in places]


def together(*job: Any) -> list[Any]:
    """Run the ranks of a job, as in `ranks_of`; return their results. None may fail."""
    results = [rank.result(180) for rank in ranks_of(*job)]
    assert not any(isinstance(result, Failure) for result in results), results
    return results


def new_keys(batches: Iterator[foreload.Batch]) -> Iterator[list[str]]:
    """Yield the keys of each batch's samples that come for the first time."""
    for batch in batches:
        new = np.from_dlpack(batch.occurrences) == 0
        yield [key for key, is_new in zip(batch["__key__"], new, strict=True) if is_new]


def read_folder(place: dict[str, Any], root: Path, steps: int) -> tuple[list[str], dict[str, Any]]:
    settings = {"fields": ["image", "__key__"], "batch_size": 2, "when_dry": "short", "dry_after": 0.2}
    loader = load(streams.Folder(root), **settings, **place)
    seen: list[str] = []
    for batch in itertools.islice(loader, steps):
        seen += batch["__key__"]
    return seen, balanced(loader)


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_directory_is_divided_by_its_names(dataset: Path, tmp_path: Path, world_size: int) -> None:
    root = tmp_path / "in"
    for number, path in enumerate(paths(dataset)):
        publish(path, root / f"{number:03}.jpg")
    steps = 60 // world_size // 5
    results = together(world_size, tmp_path, read_folder, root, steps)
    seen = [key for keys, _ in results for key in keys]
    assert len(set(seen)) == len(seen) >= 2 * steps * world_size - world_size
    assert sum(stats["received"] for _, stats in results) == 60


COUNTS = (100, 73, 20)


def read_to_the_end(place: dict[str, Any], dataset: Path, when_dry: str) -> tuple[list[str], list[int]]:
    rank = place["rank"]
    source = streams.Iterator(samples(dataset, 1000 * rank + COUNTS[rank], 1000 * rank), name="s")
    rehearsal = Rehearsal(30, share=0.2)
    loader = load(source, when_dry=when_dry, dry_after=0.01, rehearsal=rehearsal, **KEYED, **place)
    seen, sizes = [], []
    for batch in loader:
        (new,) = new_keys(iter([batch]))
        seen += new
        sizes.append(len(batch))
    balanced(loader)
    return seen, sizes


@pytest.mark.parametrize("when_dry", ["wait", "short", "rehearse"])
def test_ranks_end_together_however_much_each_was_dealt(dataset: Path, tmp_path: Path, when_dry: str) -> None:
    results = together(3, tmp_path, read_to_the_end, dataset, when_dry)
    assert len({len(sizes) for _, sizes in results}) == 1, "all ranks take equally many steps"
    everything = Counter(key for seen, _ in results for key in seen)
    expected = [f"k{1000 * rank + number}" for rank, count in enumerate(COUNTS) for number in range(count)]
    assert everything == Counter(expected)
    if when_dry == "rehearse":
        assert min(results[2][1]) == 10, "a rank that has ended rehearses"
    else:
        assert results[2][1][-1] == 0, "a rank that has ended takes empty batches"


def read_until_dry(place: dict[str, Any], dataset: Path, home: Path) -> int:
    def given() -> Iterator[Any]:
        for number, item in enumerate(samples(dataset, 50)):
            if place["rank"] == 1 and number == 20:
                until("the test has the rank go on", (home / "go on").exists)
            yield item

    steps = 0
    for _ in load(given(), **KEYED, **place):
        steps += 1
        (home / f"steps-{place['rank']}-{steps}").touch()
    return steps


def test_a_rank_that_is_dry_holds_up_the_others(dataset: Path, tmp_path: Path) -> None:
    ranks = ranks_of(2, tmp_path, read_until_dry, dataset, tmp_path)
    steps = lambda: sorted(path.name for path in tmp_path.glob("steps-*"))  # noqa: E731
    expected = ["steps-0-1", "steps-0-2", "steps-1-1", "steps-1-2"]
    until("both ranks take two steps", steps, lambda taken: set(expected) <= set(taken))
    assert settled("no rank takes a step", steps, 0.5) == expected
    (tmp_path / "go on").touch()
    assert [rank.result() for rank in ranks] == [5, 5]


def read_by_turns(place: dict[str, Any], dataset: Path, home: Path) -> list[int]:
    """Take a batch after all other ranks have taken the one before, like ranks that add up their gradients."""
    rank, world_size = place["rank"], place["world_size"]
    source = streams.Iterator(samples(dataset, 1000 * rank + COUNTS[rank], 1000 * rank), name="s")
    batches = iter(load(source, rehearsal=Rehearsal(30, share=0.5), threads=1, **KEYED, **place))
    sizes: list[int] = []
    for step in itertools.count():
        batch = next(batches, None)
        (home / f"turn-{step}-{rank}").touch()
        for other in range(world_size):
            until(f"rank {other} takes step {step}", (home / f"turn-{step}-{other}").exists)
        if batch is None:
            # A new iteration has no more batches either, and does not contact other ranks.
            return [*sizes, *[len(batch) for batch in batches]]
        sizes.append(len(batch))


def test_no_rank_waits_for_one_that_waits_for_it(dataset: Path, tmp_path: Path) -> None:
    sizes = together(3, tmp_path, read_by_turns, dataset, tmp_path)
    assert len({len(of_rank) for of_rank in sizes}) == 1


def break_and_go_on(place: dict[str, Any], dataset: Path) -> list[list[str]]:
    rank = place["rank"]
    source = streams.Iterator(samples(dataset, 1000 * rank + COUNTS[rank], 1000 * rank), name="s")
    loader = load(source, **KEYED, **place)
    some = list(itertools.islice(new_keys(iter(loader)), 2 + rank % 2))
    # The other ranks have planned further than they took.
    time.sleep(0.2 * rank)
    return some + list(new_keys(iter(loader)))


def test_ranks_that_begin_anew_stay_together(dataset: Path, tmp_path: Path) -> None:
    results = together(3, tmp_path, break_and_go_on, dataset)
    assert len({len(steps) for steps in results}) == 1
    for rank, steps in enumerate(results):
        seen = sorted(key for keys in steps for key in keys)
        assert seen == sorted(f"k{1000 * rank + number}" for number in range(COUNTS[rank]))


def make_with_another_seed(place: dict[str, Any], dataset: Path) -> None:
    load(samples(dataset, 50), seed=place["rank"], **place)


def test_ranks_with_other_settings_are_told(dataset: Path, tmp_path: Path) -> None:
    for rank in ranks_of(2, tmp_path, make_with_another_seed, dataset):
        message = rank.result(180)
        assert isinstance(message, Failure)
        assert "ranks 0 and 1 have different settings" in message


class Part(Seekable):
    """Every other sample."""

    def __init__(self, dataset: Path, count: int, rank: int) -> None:
        super().__init__(dataset, count)
        self.rank = rank

    def __iter__(self) -> Iterator[Any]:
        return (item for item in super().__iter__() if int(item[0][1:]) % 2 == self.rank)


def one_rank(place: dict[str, Any], dataset: Path, home: Path) -> foreload.StreamLoader:
    kept = Rehearsal(20, share=0.2, directory=home / "kept", directory_size="8MB")
    source = Part(dataset, 200, place["rank"])
    return load(source, rehearsal=kept, journal=home / "journal", **KEYED, **place)


def begin(place: dict[str, Any], dataset: Path, home: Path) -> tuple[list[str], Any]:
    loader = one_rank(place, dataset, home)
    seen = [key for keys in itertools.islice(new_keys(iter(loader)), 4) for key in keys]
    return seen, loader.state_dict()


def go_on(place: dict[str, Any], dataset: Path, home: Path, states: list[Any]) -> list[str]:
    loader = one_rank(place, dataset, home)
    with pytest.raises(foreload.ConfigError, match=r"world_size: is rank"):
        loader.load_state_dict(states[1 - place["rank"]])
    loader.load_state_dict(states[place["rank"]])
    return [key for keys in new_keys(iter(loader)) for key in keys]


def test_each_rank_goes_on_with_its_own_state(dataset: Path, tmp_path: Path) -> None:
    begun = together(2, tmp_path, begin, dataset, tmp_path)
    names = {path.name for path in tmp_path.iterdir()} - {"meeting"}
    assert names == {"kept.0", "kept.1", "journal.0", "journal.1"}
    rest = together(2, tmp_path, go_on, dataset, tmp_path, [state for _, state in begun])
    for rank in range(2):
        assert sorted(begun[rank][0] + rest[rank]) == sorted(f"k{number}" for number in range(rank, 200, 2))
