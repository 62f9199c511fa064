"""Rehearsal buffers in a directory: states that name its contents, withdrawal, and changes between runs."""

from __future__ import annotations

import gc
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import foreload
import kills
import numpy as np
import pytest
from conftest import THOROUGH, make_dataset, paths
from foreload import ConfigError, Rehearsal, StreamLoader, UnavailableError, fields, streams
from test_streams import Seekable, balanced, content, samples, with_keys


def rehearsal(directory: Path, capacity: int | str = 60, **settings: Any) -> Rehearsal:
    usual = {"share": 0.5, "directory": directory, "directory_size": "8MB", "memory": "20KB"}
    return Rehearsal(capacity, **{**usual, **settings})


def test_batches_do_not_depend_on_where_samples_are_kept(dataset: Path, tmp_path: Path) -> None:
    """In memory, in a directory, in both; with one thread and with three."""

    def run(**settings: Any) -> list[tuple[Any, ...]]:
        return [content(batch) for batch in with_keys(Seekable(dataset, 400), **settings)]

    in_memory = run(rehearsal=Rehearsal(60, share=0.5))
    for name, memory, threads in [("all", "1GB", 1), ("some", "100KB", 3), ("none", "0", 2)]:
        kept = rehearsal(tmp_path / name, memory=memory)
        assert run(rehearsal=kept, threads=threads) == in_memory, name
    loader = with_keys(Seekable(dataset, 400), rehearsal=rehearsal(tmp_path / "read", memory="0"))
    for _ in loader:
        pass
    assert "rehearsed samples: " in loader.io


def test_a_training_goes_on_with_the_buffer_that_it_had(dataset: Path, tmp_path: Path) -> None:
    """After a state, the samples are the same whether the run continues or another run resumes; so is the journal. @@t
    61 Samples after the state are taken back.
    """
    settings = {"rehearsal": rehearsal(tmp_path / "kept", by="class"), "journal": tmp_path / "journal"}
    whole = with_keys(Seekable(dataset, 500), rehearsal=rehearsal(tmp_path / "whole", by="class"))
    expected = [content(batch) for batch in whole]
    loader = with_keys(Seekable(dataset, 500), **settings)
    batches = iter(loader)
    made = [content(next(batches)) for _ in range(31)]
    state = loader.state_dict()
    assert state["snapshot"] is not None
    assert state["sources"][0]["position"] == {"after": "k159", "settled": [], "divisions": []}
    assert len(str(state)) < 2000, "large data is in the directory"
    for _ in range(5):
        next(batches)  # What is not in the state is taken back.
    del batches, loader
    gc.collect()
    resumed = with_keys(Seekable(dataset, 500), **settings)
    resumed.load_state_dict(state)
    began = time.monotonic()
    made += [content(next(batches := iter(resumed)))]
    assert time.monotonic() - began < 30
    made += [content(batch) for batch in batches]
    assert made == expected
    assert balanced(resumed)["delivered"] == 500
    replayed = with_keys(
        Seekable(dataset, 500),
        replay=tmp_path / "journal",
        rehearsal=rehearsal(tmp_path / "again", by="class"),
    )
    assert [content(batch) for batch in replayed] == expected


def test_states_wait_for_their_acknowledgement(dataset: Path, tmp_path: Path) -> None:
    source = Seekable(dataset, 2000)
    loader = with_keys(source, rehearsal=rehearsal(tmp_path / "kept"))
    batches = iter(loader)
    states = []
    for _ in range(2):
        next(batches)
        states.append(loader.state_dict())
    with pytest.raises(UnavailableError, match=r"2 saved states .* keep_states .* loader.acknowledge"):
        loader.state_dict()
    loader.acknowledge(states[1])
    assert source.acknowledged == ["k14"]
    files = {path.name for path in (tmp_path / "kept").rglob("*") if path.is_file()}
    next(batches)
    states.append(loader.state_dict())
    for _ in range(60):
        next(batches)
    del batches, loader
    gc.collect()
    assert len(files) >= 2
    # A run can resume from an acknowledged state; older states cannot be used.
    resumed = with_keys(Seekable(dataset, 2000), rehearsal=rehearsal(tmp_path / "kept"))
    resumed.load_state_dict(states[0])
    with pytest.raises(UnavailableError, match=r"snapshot 0 .* does not exist"):
        next(iter(resumed))
    del resumed
    gc.collect()
    resumed = with_keys(Seekable(dataset, 2000), rehearsal=rehearsal(tmp_path / "kept"))
    resumed.load_state_dict(states[1])
    assert len(next(iter(resumed))) == 10


def test_a_directory_with_states_is_not_overwritten(dataset: Path, tmp_path: Path) -> None:
    loader = with_keys(Seekable(dataset, 200), rehearsal=rehearsal(tmp_path / "kept"))
    next(iter(loader))
    loader.state_dict()
    other = with_keys(Seekable(dataset, 200), rehearsal=rehearsal(tmp_path / "kept"))
    with pytest.raises(UnavailableError, match=r"another process|in use|has the directory|already"):
        next(iter(other))
    del loader, other
    gc.collect()
    fresh = with_keys(Seekable(dataset, 200), rehearsal=rehearsal(tmp_path / "kept"))
    with pytest.raises(ConfigError, match=r"contains states of an earlier run: load one"):
        next(iter(fresh))


def test_withdrawn_samples_are_in_no_file(tmp_path: Path) -> None:
    """Every image has a unique mark after its end, which decoders ignore."""
    files = [path.read_bytes() for path in paths(make_dataset(tmp_path / "images"))]

    class Marked(Seekable):
        def __iter__(self) -> Iterator[Any]:
            for number in range(self.start, self.count):
                mark = b"<<mark of %06d>>" % number
                yield f"k{number}", {"jpg": files[number % 60], "cls": 0, "mark": mark}

    def marked() -> set[str]:
        found = set()
        for path in (tmp_path / "kept").rglob("*"):
            if path.is_file():
                for part in path.read_bytes().split(b"<<mark of ")[1:]:
                    found.add(f"k{int(part[:6])}")
        return found

    settings = {"rehearsal": rehearsal(tmp_path / "kept", 80, memory="0")}
    loader = with_keys(Marked(tmp_path, 300), **settings)
    batches = iter(loader)
    for _ in range(30):
        next(batches)
    older = loader.state_dict()
    there = marked()
    assert len(there) >= 80
    gone = set(sorted(there)[::2])
    withdrawn = loader.withdraw(gone)
    assert 30 <= withdrawn <= len(gone)
    assert marked() & gone == set(), "no file below the directory has their bytes"
    assert len(marked()) >= 30
    planned = [set(next(batches)["__key__"]) for _ in range(12)]
    later = [set(batch["__key__"]) for batch in batches]
    assert planned
    assert not set().union(*later) & gone
    balanced(loader)
    del batches, loader
    gc.collect()
    # A state that names them resumes without them, and reports that.
    resumed = with_keys(Marked(tmp_path, 300), **settings)
    resumed.load_state_dict(older)
    with pytest.warns(foreload.Warning, match=r"\d+ of the \d+ samples in the state's rehearsal buffer"):
        batches = iter(resumed)
    rehearsed: Counter[str] = Counter()
    for batch in batches:
        old = np.from_dlpack(batch.occurrences) > 0
        rehearsed.update(key for key, is_old in zip(batch["__key__"], old, strict=True) if is_old)
    assert rehearsed
    assert not set(rehearsed) & (gone - {f"k{number}" for number in range(150, 300)})


def test_damage_is_found_and_costs_its_sample(dataset: Path, tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    settings = {"rehearsal": rehearsal(directory, 100, memory="0"), "on_error": "skip"}
    loader = with_keys(Seekable(dataset, 400), **settings)
    batches = iter(loader)
    for _ in range(30):
        next(batches)
    state = loader.state_dict()
    del batches, loader
    gc.collect()
    (largest,) = sorted(directory.rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)[
        -1:
    ]
    damaged = bytearray(largest.read_bytes())
    for at in range(2000, len(damaged) // 2, 1500):
        damaged[at] ^= 0x55
    largest.write_bytes(damaged)
    resumed = with_keys(Seekable(dataset, 400), **settings)
    resumed.load_state_dict(state)
    expected = dict(samples(dataset, 400))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in resumed:
            labels = np.from_dlpack(batch.labels).tolist()
            for key, label in zip(batch["__key__"], labels, strict=True):
                assert expected[key]["cls"] == label
    assert any("is damaged: its checksum differs" in str(each.message) for each in caught)
    balanced(resumed)


def test_the_directory_keeps_its_size(dataset: Path, tmp_path: Path) -> None:
    directory, quota = tmp_path / "kept", 2 << 20
    largest = 0
    loader = with_keys(
        Seekable(dataset, 3000),
        rehearsal=Rehearsal(
            "500KB", share=0.3, by="recency", half_life=200, directory=directory, directory_size=quota
        ),
    )
    for number, _ in enumerate(loader):
        if number % 20 == 0:
            blocks = [path.stat().st_blocks for path in directory.rglob("*") if path.is_file()]
            largest = max(largest, 512 * sum(blocks))
        if number % 100 == 50:
            loader.acknowledge(loader.state_dict())
    assert 500_000 < largest <= quota
    assert balanced(loader)["kept_bytes"] <= 500_000


def test_a_buffer_in_memory_alone_says_that_no_state_has_it(dataset: Path) -> None:
    loader = with_keys(Seekable(dataset, 200), rehearsal=Rehearsal(50))
    next(iter(loader))
    with pytest.warns(foreload.Warning, match=r"only in memory.*directory=PATH"):
        state = loader.state_dict()
    assert state["snapshot"] is None


KILLED = """
import os, shutil, sys, time
from pathlib import Path
sys.path[:0] = [{tests!r}]
import json
from foreload import Rehearsal
from test_streams import Seekable, with_keys
dataset, home = Path(sys.argv[1]), Path(sys.argv[2])
saved = home / "state"
if not saved.exists():  # Nothing was saved, so the run starts from the beginning.
    shutil.rmtree(home / "kept", ignore_errors=True)
    (home / "journal").unlink(missing_ok=True)
kept = Rehearsal(60, share=0.5, directory=home / "kept", directory_size="8MB", memory="20KB")
loader = with_keys(Seekable(dataset, 600), rehearsal=kept, journal=home / "journal")
if saved.exists():
    loader.load_state_dict(json.loads(saved.read_text()))
used = open(home / f"used-{{time.time_ns()}}", "w")
print("made", flush=True)
for number, batch in enumerate(loader):
    used.write(" ".join(batch["__key__"]) + "\\n")
    if number % 4 == 3:
        state = loader.state_dict()
        used.flush()
        (home / "state.tmp").write_text(json.dumps(state))
        os.replace(home / "state.tmp", saved)
        loader.acknowledge(state)
used.flush()
state = loader.state_dict()
(home / "done").write_text(json.dumps(state["account"]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="SIGKILL")
def test_a_run_that_is_killed_again_and_again_is_the_run_that_is_not(dataset: Path, tmp_path: Path) -> None:
    """The journal of the killed run equals the journal of the other run, byte for byte."""
    rounds = 60 if THOROUGH else 6
    rng = random.Random(kills.seed())
    plain = with_keys(
        Seekable(dataset, 600), rehearsal=rehearsal(tmp_path / "plain"), journal=tmp_path / "journal"
    )
    for _ in plain:
        pass
    home = tmp_path / "home"
    home.mkdir()
    command = [sys.executable, "-c", KILLED.format(tests=str(Path(__file__).parent)), dataset, home]
    killed = 0
    while killed < rounds and not (home / "done").exists():
        with (tmp_path / "errors").open("w") as errors:
            process = kills.begin(*command, stdout=subprocess.PIPE, stderr=errors)
        said = process.stdout.readline()
        kills.end_within(rng, (0.02, 0.6), process)
        whole = said == b"made\n" and process.returncode in (0, -signal.SIGKILL)
        assert whole, (tmp_path / "errors").read_text()
        killed += process.returncode != 0
    if not (home / "done").exists():
        subprocess.run(command, check=True, timeout=120)
    print("kills:", killed)
    assert (home / "journal").read_bytes() == (tmp_path / "journal").read_bytes()
    shutil.rmtree(home)


def test_kinds_of_loaders_are_not_mixed_up(dataset: Path) -> None:
    state = foreload.ImageLoader(dataset, batch_size=10).state_dict()
    loader = StreamLoader(
        streams.Iterator(samples(dataset, 30), name="s"),
        batch_size=10,
        fields=["jpg", fields.Text("__key__")],
    )
    with pytest.raises(ConfigError, match=r"is not a state from StreamLoader.state_dict"):
        loader.load_state_dict(state)
    other = with_keys(Seekable(dataset, 30)).state_dict()
    with pytest.raises(ConfigError, match=r"seed: is 0, but the state was saved with 3"):
        loader.load_state_dict(other)
