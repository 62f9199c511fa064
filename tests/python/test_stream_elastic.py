"""A stream that continues with more or fewer ranks. Ranks are processes."""

from __future__ import annotations

import itertools
import json
import os
import random
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import foreload
import kills
import numpy as np
import pytest
from conftest import FIFTH, paths
from foreload import ConfigError, Rehearsal, UnavailableError, fields, streams
from test_stream_ranks import new_keys, ranks_of, together
from test_stream_sources import SECRET, Server, redis
from test_streams import Seekable, balanced, load, samples
from waiting import until

__all__ = ["redis"]  # A fixture is found by its name.

# Many processes are started one after another.
pytestmark = pytest.mark.timeout(300)

COUNT = 240


def content(dataset: Path, number: int) -> bytes:
    """An image that differs from all others in the bytes after its end."""
    return paths(dataset)[number % 60].read_bytes() + b"<number %05d>" % number


def fill(dataset: Path, home: Path, server: Server | None) -> list[str]:
    """Put all samples into the source, and return their keys."""
    if server is None:
        (home / "in").mkdir()
        for number in range(COUNT):
            (home / "in" / f".{number}").write_bytes(content(dataset, number))
            (home / "in" / f".{number}").rename(home / "in" / f"{number:05}.jpg")
        return [f"{number:05}.jpg" for number in range(COUNT)]
    # This server is not killed, so it need not wait for the drive after every entry.
    server.call("CONFIG", "SET", "appendfsync", "no")
    for number in range(COUNT):
        entry = ("jpg", content(dataset, number), "cls", number % 5)
        server.call("XADD", "images", f"1-{number}" if number else "0-1", *entry)
    return ["0-1", *(f"1-{number}" for number in range(1, COUNT))]


def number_of(key: str) -> int:
    return 0 if key == "0-1" else int(key.removesuffix(".jpg").rpartition("-")[2])


def one_rank(place: dict[str, Any], home: Path, kind: str, **settings: Any) -> foreload.StreamLoader:
    """Return a rank's loader of a directory, of Redis in order, or of Redis in a group; the part of `kind` after a dash
    is the rehearsal's `by`.
    """
    kind, _, by = kind.partition("-")
    if kind == "folder":
        source: streams.Source = streams.Folder(home / "in", name="images")
    else:
        group = {"group": "train", "claim_after": 1} if kind == "group" else {}
        source = streams.Redis(f"unix://{home / 'redis.sock'}", "images", password=SECRET, **group)
    room = {"directory": home / "kept", "directory_size": "16MB", "memory": "20KB"}
    likely = {"half_life": 50} if by == "recency" else {}
    kept = Rehearsal(30, share=1 / 3, by=by or "uniform", **room, **likely)
    # In a group, no rank may take all entries at once.
    usual = {
        "fields": [fields.Bytes("jpg"), "__key__"],
        "batch_size": 6,
        "rehearsal": kept,
        "queue_size": "1KB",
    }
    dry = {"when_dry": "rehearse", "dry_after": 0.05}
    return load(source, **{**usual, **dry, **place, **settings})


def meet(place: dict[str, Any], home: Path, what: str) -> None:
    """Wait until all ranks are here."""
    (home / f"{what} {place['rank']}").touch()
    all_ranks = {f"{what} {rank}" for rank in range(place["world_size"])}
    until(f"all ranks have {what}", lambda: set(os.listdir(home)), all_ranks.__le__)


def take(
    place: dict[str, Any],
    home: Path,
    kind: str,
    states: list[Any],
    steps: int,
    dataset: Path,
    acknowledge: bool = True,
) -> dict[str, Any]:
    """Take this many steps from these states on and save a state; acknowledge it if that is asked for."""
    loader = one_rank(place, home, kind)
    new, again = [], []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if states:
            loader.load_state_dict(states)
        for batch in itertools.islice(loader, steps):
            for key, image in zip(batch["__key__"], batch["jpg"], strict=True):
                assert bytes(image) == content(dataset, number_of(key)), key
            (fresh,) = new_keys(iter([batch]))
            new += fresh
            again += [key for key in batch["__key__"] if key not in fresh]
            # Entries of other consumers in a group are free after a second.
            time.sleep(0.05 if kind == "group" else 0)
        state = loader.state_dict()
        meet(place, home, f"saved {state['step']} {len(states)}")
        if acknowledge:
            loader.acknowledge(state)
    said = [str(warning.message) for warning in told if warning.category is foreload.Warning]
    return {"new": new, "again": again, "state": state, "stats": balanced(loader), "told": said}


def directories(home: Path) -> set[str]:
    return {path.name for path in home.glob("kept*")}


PLANS = [(2, 3, 1, 4), (1, 2, 3, 2)]


@FIFTH
@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("kind", ["folder", "redis", "group", "redis-class", "folder-recency"])
def test_each_sample_comes_once_however_many_ranks_go_on(
    request: pytest.FixtureRequest, dataset: Path, tmp_path: Path, kind: str, plan: tuple[int, ...]
) -> None:
    server = None if kind.startswith("folder") else request.getfixturevalue("redis")
    keys = fill(dataset, tmp_path, server)
    states: list[Any] = []
    seen: list[str] = []
    for world_size, steps in zip(plan, (5, 4, 6, 40), strict=True):
        results = together(world_size, tmp_path, take, tmp_path, kind, states, steps, dataset)
        for result in results:
            assert not [said for said in result["told"] if "silent" not in said], result["told"]
        before = set(seen)
        seen += [key for result in results for key in result["new"]]
        for result in results:
            assert set(result["again"]) <= set(seen), "only what came before is rehearsed"
        if before and world_size > 1:
            parts = [before.intersection(result["again"]) for result in results]
            assert all(parts), "each rank rehearses what was seen before the restart"
        states = [result["state"] for result in results]
        expected = {"kept"} if world_size == 1 else {f"kept.{rank}" for rank in range(world_size)}
        assert directories(tmp_path) == expected
        of_all = Counter[str]()
        for result in results:
            of_all.update({name: result["stats"][name] for name in ("received", "delivered", "queued")})
            assert result["stats"]["lost"] == result["stats"]["missing"] == 0
        assert of_all["delivered"] == len(seen)
    assert sorted(seen) == sorted(keys)
    assert of_all["received"] == COUNT


def test_a_run_that_is_killed_goes_on_from_the_same_states_again(dataset: Path, tmp_path: Path) -> None:
    """Until the first state of the new ranks is saved, only the states of the earlier ranks exist."""
    keys = fill(dataset, tmp_path, None)
    rng = random.Random(kills.seed())
    begun = together(3, tmp_path, take, tmp_path, "folder", [], 6, dataset)
    states = [result["state"] for result in begun]
    before = sorted(key for result in begun for key in result["new"])
    for round_ in range(6):
        world_size = rng.choice([1, 2, 4])
        home = tmp_path / f"meeting {round_}"
        home.mkdir()
        kills.end_within(rng, (0.1, 1.5), *ranks_of(world_size, home, save_and_go_on, tmp_path, states))
    for path in tmp_path.glob("saved *"):
        path.unlink()
    ended = together(2, tmp_path, take, tmp_path, "folder", states, 50, dataset)
    assert [result["told"] for result in ended] == [[], []]
    assert directories(tmp_path) == {"kept.0", "kept.1"}
    assert sorted(before + [key for result in ended for key in result["new"]]) == sorted(keys)


def save_and_go_on(place: dict[str, Any], home: Path, states: list[Any]) -> None:
    """Save states without acknowledging them, until there are too many, and continue."""
    loader = one_rank(place, home, "folder")
    loader.load_state_dict(states)
    for step, _ in enumerate(loader):
        if step in (3, 6):
            loader.state_dict()


@pytest.mark.parametrize("between", [2, 4])
def test_directories_go_although_nobody_acknowledged_before_a_kill(
    dataset: Path, tmp_path: Path, between: int
) -> None:
    """A run with other ranks saves states and ends. Then it continues, or the original number of ranks continues
    without its states.
    """
    keys = fill(dataset, tmp_path, None)
    begun = together(3, tmp_path, take, tmp_path, "folder", [], 6, dataset)
    states = [result["state"] for result in begun]
    tried = together(between, tmp_path, take, tmp_path, "folder", states, 2, dataset, False)
    assert len(directories(tmp_path)) == max(3, between)
    if goes_on := between == 2:
        states = [result["state"] for result in tried]
    ended = together(len(states), tmp_path, take, tmp_path, "folder", states, 50, dataset)
    assert directories(tmp_path) == {f"kept.{rank}" for rank in range(len(states))}
    new = [key for result in [*begun, *(tried if goes_on else []), *ended] for key in result["new"]]
    assert sorted(new) == sorted(keys)


def test_what_another_run_saved_is_not_touched(dataset: Path, tmp_path: Path) -> None:
    fill(dataset, tmp_path, None)
    alone = one_rank({}, tmp_path, "folder")
    next(iter(alone))
    state = alone.state_dict()
    del alone
    begun = together(2, tmp_path, take, tmp_path, "folder", [], 3, dataset)
    loader = one_rank({}, tmp_path, "folder")
    loader.load_state_dict([result["state"] for result in begun])
    with pytest.raises(ConfigError, match=r"kept contains states of an earlier run"):
        next(iter(loader))
    del loader
    alone = one_rank({}, tmp_path, "folder")
    alone.load_state_dict(state)
    next(iter(alone))
    assert directories(tmp_path) == {"kept", "kept.0", "kept.1"}


def begin_elsewhere(place: dict[str, Any], home: Path, states: list[Any]) -> str:
    loader = one_rank(place, home, "folder")
    loader.load_state_dict(states[place["rank"]])
    try:
        next(iter(loader))
    except ConfigError as error:
        return str(error)
    return "it began"


def test_ranks_that_begin_at_other_steps_are_told(dataset: Path, tmp_path: Path) -> None:
    fill(dataset, tmp_path, None)
    early = together(2, tmp_path, take, tmp_path, "folder", [], 2, dataset, False)
    states = [result["state"] for result in early]
    late = together(2, tmp_path, take, tmp_path, "folder", states, 2, dataset, False)
    states = [early[0]["state"], late[1]["state"]]
    said = together(2, tmp_path, begin_elsewhere, tmp_path, states)
    assert "is of step 4 for rank 1 and of step 2 for this rank" in said[0]
    assert "is of step 2 for rank 0 and of step 4 for this rank" in said[1]


def without_keys(
    place: dict[str, Any], home: Path, dataset: Path, run: int, states: list[Any]
) -> tuple[list[tuple[str, int]], Any]:
    """Take the samples of an iterator without keys."""
    number = 10 * run + place.get("rank", 0)
    given = ({"jpg": content(dataset, 1000 * number + at), "cls": number % 7} for at in itertools.count())
    kept = Rehearsal(20, share=0.5, directory=home / "kept", directory_size="16MB")
    asked = ["label", fields.Bytes("jpg"), fields.Text("__key__")]
    loader = load(given, fields=asked, rehearsal=kept, batch_size=8, **place)
    if states:
        loader.load_state_dict(states)
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch in itertools.islice(loader, 8):
            labels = np.from_dlpack(batch.labels).tolist()
            for key, image, label in zip(batch["__key__"], batch["jpg"], labels, strict=True):
                mark = int(bytes(image).rpartition(b" ")[2][:-1])
                assert mark // 1000 % 7 == label, "an image has its own label"
                seen.append((key, mark))
    state = loader.state_dict()
    meet({"rank": 0, "world_size": 1, **place}, home, f"run {run}")
    loader.acknowledge(state)
    return seen, state


@pytest.mark.parametrize("plan", [(2, 3), (1, 1, 2), (2, 2, 1, 1, 2, 2)], ids=str)
def test_samples_without_keys_stay_apart(dataset: Path, tmp_path: Path, plan: tuple[int, ...]) -> None:
    """Each rank numbers its own samples, and no number is ambiguous, even if another rank rehearses the sample."""
    states: list[Any] = []
    meaning: dict[str, int] = {}
    for run, world_size in enumerate(plan):
        results = together(world_size, tmp_path, without_keys, tmp_path, dataset, run, states)
        states = [state for _, state in results]
        for seen, _ in results:
            for key, mark in seen:
                assert meaning.setdefault(key, mark) == mark, "a key means one sample"


def begin_or_not(place: dict[str, Any], home: Path, states: list[Any]) -> str:
    loader = one_rank(place, home, "folder")
    loader.load_state_dict(states)
    try:
        next(iter(loader))
    except foreload.Error as error:
        return str(error)
    return "it began"


def test_who_cannot_begin_tells_the_others(dataset: Path, tmp_path: Path) -> None:
    fill(dataset, tmp_path, None)
    begun = together(2, tmp_path, take, tmp_path, "folder", [], 3, dataset)
    other = tmp_path / "other"
    other.mkdir()
    fill(dataset, other, None)
    together(3, other, take, other, "folder", [], 3, dataset)
    (other / "kept.2").rename(tmp_path / "kept.2")
    began = time.monotonic()
    said = together(3, tmp_path, begin_or_not, tmp_path, [result["state"] for result in begun])
    assert time.monotonic() - began < 60, "nobody waits for the time-out of 120 seconds"
    assert "kept.2 contains states of an earlier run" in said[2]
    assert all("rank 2 of the stream failed to start" in of_rank for of_rank in said[:2])


def with_a_journal(place: dict[str, Any], home: Path, states: list[Any], name: str) -> str:
    loader = one_rank(place, home, "folder", journal=home / name)
    if states:
        loader.load_state_dict(states)
    try:
        list(itertools.islice(loader, 3))
    except ConfigError as error:
        return str(error)
    return json.dumps(loader.state_dict())


def test_a_journal_begins_anew(dataset: Path, tmp_path: Path) -> None:
    fill(dataset, tmp_path, None)
    states = [json.loads(state) for state in together(2, tmp_path, with_a_journal, tmp_path, [], "journal")]
    (tmp_path / "journal.2").touch()
    for said in together(3, tmp_path, with_a_journal, tmp_path, states, "journal"):
        assert "a run with another number of ranks needs a new journal" in said
    together(3, tmp_path, with_a_journal, tmp_path, states, "later")
    assert {path.name for path in tmp_path.glob("later*")} == {"later.0", "later.1", "later.2"}


def withdraw_some(place: dict[str, Any], home: Path, states: list[Any], keys: list[str]) -> list[str]:
    """Withdraw samples, and return the files that still have some of their bytes."""
    loader = one_rank(place, home, "folder")
    loader.load_state_dict(states)
    batches = iter(loader)
    next(batches)
    loader.withdraw(keys)
    meet(place, home, "withdrawn")
    marks = [b"<number %05d>" % number_of(key) for key in keys]
    files = [path for path in home.glob("kept*/*") if path.is_file()]
    found = [str(path) for path in files if any(mark in path.read_bytes() for mark in marks)]
    later = [key for batch in itertools.islice(batches, 20) for key in batch["__key__"]]
    assert not set(later[12:]).intersection(keys)
    return found


def test_what_is_withdrawn_leaves_the_directories_of_former_ranks_too(dataset: Path, tmp_path: Path) -> None:
    fill(dataset, tmp_path, None)
    begun = together(4, tmp_path, take, tmp_path, "folder", [], 6, dataset)
    states, seen = [result["state"] for result in begun], [key for result in begun for key in result["new"]]
    assert len(list(tmp_path.glob("kept.*/*.seg"))) >= 4
    assert together(2, tmp_path, withdraw_some, tmp_path, states, seen[::2]) == [[], []]


def test_a_directory_out_of_reach_costs_its_part_of_the_buffer_and_a_warning(
    dataset: Path, tmp_path: Path
) -> None:
    keys = fill(dataset, tmp_path, None)
    begun = together(3, tmp_path, take, tmp_path, "folder", [], 6, dataset)
    (tmp_path / "kept.2").rename(tmp_path / "elsewhere")
    states = [result["state"] for result in begun]
    ended = together(2, tmp_path, take, tmp_path, "folder", states, 50, dataset)
    for result in ended:
        (told,) = result["told"]
        assert "kept.2 has no snapshot 0 of rank 2 of 3" in told
    new = [key for result in [*begun, *ended] for key in result["new"]]
    assert sorted(new) == sorted(keys)


def test_states_have_to_be_those_of_all_ranks_and_of_one_step(dataset: Path, tmp_path: Path) -> None:
    fill(dataset, tmp_path, None)
    first, second = (
        result["state"] for result in together(2, tmp_path, take, tmp_path, "folder", [], 3, dataset)
    )
    loader = one_rank({}, tmp_path, "folder")
    for states, message in [
        ([], "is an empty list"),
        (first, "is the state of rank 0 of 2, but this is rank 0 of 1: .* all 2 former"),
        ([first, first], "is the state of rank 0 of 2, rank 0 of 2, but this is"),
        ([first, {**second, "step": 2}], "is of step 3 for rank 0 of 2 and of step 2 for rank 1 of 2"),
        ([{**first, "identity": {**first["identity"], "seed": 9}}, second], "seed: is 3, but the state"),
    ]:
        with pytest.raises(ConfigError, match=message):
            loader.load_state_dict(states)
    loader.load_state_dict([second, first])
    with pytest.raises(UnavailableError, match="take a batch first"):
        loader.state_dict()
    next(iter(loader))
    assert loader.state_dict()["identity"]["world_size"] == 1
    assert balanced(loader)["delivered"] > 12


def begin_iterator(place: dict[str, Any], dataset: Path, seekable: bool) -> Any:
    source = Seekable(dataset, 200) if seekable else samples(dataset, 200)
    loader = load(source, **place)
    list(itertools.islice(loader, 2))
    until("samples wait", lambda: balanced(loader)["queued"])
    return loader.state_dict()


def test_an_iterator_cannot_be_divided_anew_unless_it_gives_nothing_again(
    dataset: Path, tmp_path: Path
) -> None:
    states = together(2, tmp_path, begin_iterator, dataset, True)
    loader = load(Seekable(dataset, 200))
    loader.load_state_dict(states)
    with pytest.raises(ConfigError, match=r"world_size: the iterator \"s\" resumes with `seek`"):
        next(iter(loader))
    states = together(2, tmp_path, begin_iterator, dataset, False)
    loader = load(samples(dataset, 20))
    loader.load_state_dict(states)
    with pytest.warns(foreload.Warning, match="samples were received before the state was saved"):
        list(loader)
    stats = balanced(loader)
    assert stats["lost"] == sum(state["account"]["queued"] for state in states) > 0


def test_what_comes_while_nobody_reads_is_not_lost_to_a_reader_of_what_is_new(
    dataset: Path, redis: Server
) -> None:
    """A state that was saved before the first sample was used knows where reading began.

    The other source may fill a batch before Redis has answered where its stream ends.
    """

    def reading() -> foreload.StreamLoader:
        new = streams.Redis(redis.url, "images", password=SECRET, start="new", name="new")
        other = streams.Iterator(Seekable(dataset, 1000), name="other")
        return load([new, other], fields=["jpg", "__key__"], batch_size=5)

    redis.call("XADD", "images", "1-1", "jpg", content(dataset, 1))
    loader = reading()
    next(iter(loader))
    state = until(
        "reading begins at the stream's end",
        loader.state_dict,
        lambda state: state["sources"][0]["position"]["after"] == "1-1",
    )
    redis.call("XADD", "images", "1-2", "jpg", content(dataset, 2))
    del loader
    resumed = reading()
    resumed.load_state_dict(state)
    keys = (key for batch in resumed for key in batch["__key__"])
    assert "1-2" in itertools.islice(keys, 900)


def test_batches_may_have_another_size_with_other_ranks(dataset: Path, tmp_path: Path) -> None:
    keys = fill(dataset, tmp_path, None)
    begun = together(2, tmp_path, take, tmp_path, "folder", [], 3, dataset)
    loader = one_rank({}, tmp_path, "folder", batch_size=12)
    loader.load_state_dict([result["state"] for result in begun])
    seen = [key for result in begun for key in result["new"]]
    batches = list(itertools.islice(loader, 30))
    assert len(batches[0]) == 12
    seen += [key for new in new_keys(iter(batches)) for key in new]
    assert sorted(seen) == sorted(keys)
