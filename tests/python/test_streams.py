"""`foreload.StreamLoader`: samples that arrive during training, from Python iterators."""

from __future__ import annotations

import itertools
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from conftest import paths
from foreload import ConfigError, Rehearsal, StreamLoader, fields, streams
from waiting import settled, until

Sample = dict[str, Any]


def samples(dataset: Path, count: int | None = None, start: int = 0) -> Iterator[tuple[str, Sample]]:
    """Yield the files of the dataset repeatedly, each time with another key."""
    files = [path.read_bytes() for path in paths(dataset)]
    numbers = itertools.count(start) if count is None else range(start, count)
    for number in numbers:
        yield f"k{number}", {"jpg": files[number % len(files)], "cls": number % 7, "txt": f"text {number}"}


class Seekable:
    """An iterator that can resume after a restart."""

    def __init__(self, dataset: Path, count: int) -> None:
        self.dataset, self.count, self.start = dataset, count, 0
        self.sought: list[str | None] = []
        self.acknowledged: list[str | None] = []

    def seek(self, key: str | None) -> None:
        """Resume after a sample."""
        self.sought.append(key)
        self.start = 0 if key is None else int(key[1:]) + 1

    def acknowledge(self, key: str | None) -> None:
        """Record up to which key samples may be forgotten."""
        self.acknowledged.append(key)

    def __iter__(self) -> Iterator[tuple[str, Sample]]:
        return samples(self.dataset, self.count, self.start)


def load(source: Any, **settings: Any) -> StreamLoader:
    """Return a loader of small images on the CPU."""
    is_source = isinstance(source, streams.Source) or (
        source and isinstance(source, list) and isinstance(source[0], streams.Source)
    )
    if not is_source:
        source = streams.Iterator(source, name="s")
    usual = {"batch_size": 10, "image_size": 24, "seed": 3, "device": "cpu"}
    return StreamLoader(source, **{**usual, **settings})


def with_keys(source: Any, **settings: Any) -> StreamLoader:
    return load(source, fields=["jpg", fields.Text("__key__"), "label"], **settings)


def balanced(loader: StreamLoader) -> dict[str, Any]:
    """Return the sample counters, after a check that they add up."""
    stats = loader.stats()["stream"]
    places = ("delivered", "queued", "spilled", "dropped", "failed", "withdrawn", "lost")
    assert stats["received"] == sum(stats[place] for place in places), stats
    return stats


def content(batch: foreload.Batch) -> tuple[Any, ...]:
    arrays = (batch["jpg"], batch.labels, batch.sample_ids, batch.occurrences)
    return (*(np.from_dlpack(array).tobytes() for array in arrays), tuple(batch["__key__"]))


def test_every_sample_comes_once_and_the_share_of_rehearsed_ones_is_exact(dataset: Path) -> None:
    loader = with_keys(samples(dataset, 300), batch_size=12, rehearsal=Rehearsal(40, share=0.25))
    used: Counter[str] = Counter()
    for step, batch in enumerate(loader):
        keys, occurrences = batch["__key__"], np.from_dlpack(batch.occurrences)
        assert len(set(keys)) == len(keys), "nothing is in a batch twice"
        for key, occurrence in zip(keys, occurrences.tolist(), strict=True):
            assert occurrence == used[key], "each use is counted, and so augmented differently"
        used.update(keys)
        labels = np.from_dlpack(batch.labels).tolist()
        assert labels == [int(key[1:]) % 7 for key in keys]
        new = int((occurrences == 0).sum())
        assert new == (12 if step == 0 else 9) or sum(used.values()) > 390
    assert set(used) == {f"k{number}" for number in range(300)}
    stats = balanced(loader)
    assert (stats["delivered"], stats["queued"], stats["kept"]) == (300, 0, 40)
    assert stats["rehearsed"] == sum(used.values()) - 300


def test_pixels_are_those_of_an_image_loader(dataset: Path) -> None:
    settings = {"image_size": 32, "train": False, "dtype": "uint8", "batch_size": 7}
    of_dataset = np.concatenate(
        [np.from_dlpack(batch.images).copy() for batch in foreload.ImageLoader(dataset, **settings)]
    )
    of_stream = np.concatenate(
        [
            np.from_dlpack(batch["jpg"]).copy()
            for batch in load(samples(dataset, 60), fields=["jpg"], **settings)
        ]
    )
    # The order within a batch is the stream's own. @@t 227 Samples after the checkpoint come again.
    assert sorted(image.tobytes() for image in of_dataset) == sorted(image.tobytes() for image in of_stream)


def test_crops_depend_on_the_sample_and_not_on_its_neighbours(dataset: Path) -> None:
    def images(**settings: Any) -> dict[str, bytes]:
        found = {}
        for batch in with_keys(samples(dataset, 60), **settings):
            pixels = np.from_dlpack(batch["jpg"])
            found |= {key: pixels[place].tobytes() for place, key in enumerate(batch["__key__"])}
        return found

    assert images() == images(batch_size=3, threads=3) != images(seed=4)


def test_members_are_fields_as_everywhere(dataset: Path) -> None:
    jpeg = paths(dataset)[0].read_bytes()
    array = np.arange(5, dtype=np.int64)
    given = [
        {"jpg": jpeg, "json": {"label": 4, "where": "here"}, "txt": "häh", "bin": bytearray(b"\0\1")},
        {"JPG": jpeg, "label": array[2], "json": {}, "txt": "", "bin": memoryview(b"")},
    ]
    loader = load(
        given, batch_size=2, fields=["image", "label", "json", "txt", fields.Bytes("bin"), "__key__"]
    )
    (batch,) = loader
    order = [int(key) for key in batch["__key__"]]
    assert sorted(order) == [0, 1]
    assert [batch["json"][place] for place in order] == [given[0]["json"], {}]
    assert [batch["txt"][place] for place in order] == ["häh", ""]
    assert [batch["bin"][place] for place in order] == [b"\0\1", b""]
    assert [np.from_dlpack(batch.labels).tolist()[place] for place in order] == [4, 2]


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"jpg": b"", "cls": "cat"}, "class number"),
        ({"jpg": b""}, 'no class.*fields=.* without "label"'),
        ([1], "not a dict"),
        ({"jpg": b"", "cls": 1, "CLS": 2}, "two members"),
        ({"jpg": bytes(3000), "cls": 1}, "3001 bytes.*max_bytes"),
        ({"jpg": b"", "cls": 1, "x": object()}, '"x" cannot be written'),
    ],
)
def test_a_sample_that_cannot_be_one_is_an_error_with_its_key(sample: Any, message: str) -> None:
    with pytest.raises(foreload.DecodeError, match=f'(?s)sample "k1" of stream "s".*{message}'):
        next(iter(load(iter([("k1", sample)]), max_bytes=3000)))


def test_samples_without_keys_are_numbered(dataset: Path) -> None:
    given = [
        (None, sample) if number % 2 else sample for number, (_, sample) in enumerate(samples(dataset, 12))
    ]
    keys = [key for batch in with_keys(iter(given), batch_size=5) for key in batch["__key__"]]
    assert len(set(keys)) == len(keys) == 12


def test_such_samples_are_left_out_if_errors_are(dataset: Path) -> None:
    def mixed() -> Iterator[Any]:
        for number, (key, sample) in enumerate(samples(dataset, 30)):
            yield key, sample | ({} if number % 3 else {"cls": "cat"})

    loader = with_keys(mixed(), on_error="skip", batch_size=5)
    with pytest.warns(foreload.Warning, match=r"others like it are skipped"):
        keys = [key for batch in loader for key in batch["__key__"]]
    assert keys
    assert sorted(keys) == sorted(f"k{number}" for number in range(30) if number % 3)
    assert balanced(loader)["failed"] == 10


def test_what_is_dropped_is_counted_and_the_rest_comes(dataset: Path) -> None:
    for policy in ("drop_oldest", "drop_random"):
        gate = threading.Event()

        def given(gate: threading.Event = gate) -> Iterator[Any]:
            yield from samples(dataset, 500)
            gate.set()

        loader = with_keys(given(), policy=policy, queue_size="1KB")
        batches = iter(loader)
        seen = list(next(batches)["__key__"])
        assert gate.wait(60), "sources are not held up"
        seen += [key for batch in batches for key in batch["__key__"]]
        stats = balanced(loader)
        assert len(seen) == len(set(seen)) == stats["delivered"]
        assert stats["received"] == 500
        assert stats["dropped"] == 500 - len(seen) > 300
        last = [f"k{number}" for number in range(480, 500)]
        assert policy == "drop_random" or set(last) <= set(seen)


def test_a_source_is_held_up_when_nobody_takes_its_samples(dataset: Path) -> None:
    given: list[str] = []

    def watched() -> Iterator[Any]:
        for key, sample in samples(dataset):
            given.append(key)
            yield key, sample

    batches = iter(loader := with_keys(watched(), queue_size="1KB"))
    next(batches)
    assert settled("the source is held up", lambda: len(given), 0.3) < 400
    next(batches)
    assert balanced(loader)["dropped"] == 0


def test_a_training_goes_on_where_its_state_was_saved(dataset: Path) -> None:
    first = Seekable(dataset, 200)
    loader = with_keys(first)
    batches = iter(loader)
    seen = [key for _ in range(7) for key in next(batches)["__key__"]]
    state = loader.state_dict()
    loader.acknowledge(state)
    assert first.acknowledged == ["k69"]
    assert first.sought == [None]
    next(batches)  # What comes after the checkpoint comes again.
    second = Seekable(dataset, 200)
    resumed = with_keys(second)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    seen += [key for batch in resumed for key in batch["__key__"]]
    assert second.sought == ["k69"]
    assert sorted(seen) == sorted(f"k{number}" for number in range(200))
    stats = balanced(resumed)
    assert (stats["delivered"], stats["lost"], resumed.state_dict()["step"]) == (200, 0, 20)


def test_what_a_source_cannot_give_again_is_lost_and_counted(dataset: Path) -> None:
    loader = with_keys(samples(dataset, 200))
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = until("all arrive", loader.state_dict, lambda state: state["account"]["received"] == 200)
    resumed = with_keys(samples(dataset, 250, 200))
    resumed.load_state_dict(state)
    with pytest.warns(foreload.Warning, match=r"170 samples were received.* lost"):
        seen = [key for batch in resumed for key in batch["__key__"]]
    assert sorted(seen) == sorted(f"k{number}" for number in range(200, 250))
    stats = balanced(resumed)
    assert (stats["received"], stats["delivered"], stats["lost"]) == (250, 80, 170)


def test_an_iteration_goes_on_behind_the_last_batch(dataset: Path) -> None:
    loader = with_keys(samples(dataset, 200), rehearsal=Rehearsal(30, share=0.3))
    seen: Counter[str] = Counter()
    taken = 0
    while taken < 200:
        for batch in itertools.islice(loader, 3):
            new = np.from_dlpack(batch.occurrences) == 0
            seen.update(key for key, is_new in zip(batch["__key__"], new, strict=True) if is_new)
            taken += int(new.sum())
    assert seen == Counter({f"k{number}": 1 for number in range(200)})
    assert balanced(loader)["delivered"] == 200


def test_withdrawn_samples_never_come_again(dataset: Path) -> None:
    loader = with_keys(samples(dataset, 400), rehearsal=Rehearsal(100, share=0.5), queue_size="1KB")
    batches = iter(loader)
    for _ in range(20):
        batch = next(batches)
    # Some were used, some wait, and some have not arrived.
    gone = {f"k{number}" for number in range(0, 400, 3)}
    begun = [set(batch["__key__"])]
    assert loader.withdraw(gone) > 10
    later = [set(batch["__key__"]) for batch in batches]
    # Batches that were planned before may contain them; no later batch does.
    assert not set().union(*later[12:]) & gone
    assert begun
    stats = balanced(loader)
    assert stats["withdrawn"] > 50
    assert stats["received"] == 400


def test_a_damaged_image_costs_its_sample_and_not_the_stream(dataset: Path) -> None:
    def given() -> Iterator[Any]:
        for number, (key, sample) in enumerate(samples(dataset, 200)):
            yield key, sample | ({"jpg": sample["jpg"][:300]} if number in (33, 77) else {})

    for on_error in ("skip", "zero"):
        loader = with_keys(given(), on_error=on_error, rehearsal=Rehearsal(1000, share=0.2))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            batches = [(batch["__key__"], np.from_dlpack(batch.mask).tolist()) for batch in loader]
        assert any(
            "takes? (its|their) place" in str(each.message) or "place" in str(each.message) for each in caught
        )
        stats = balanced(loader)
        assert (stats["failed"], stats["delivered"]) == (2, 198)
        if on_error == "skip":
            assert not {"k33", "k77"} & {key for keys, _ in batches for key in keys}
            assert all(len(keys) == 10 for keys, _ in batches[:-1]), "batches stay full"
        else:
            blank = [(key, valid) for pair in batches for key, valid in zip(*pair, strict=True) if not valid]
            assert len(blank) >= 2
            assert {key for key, _ in blank} == {None}

    loader = with_keys(given())
    raised = 0
    seen: list[str] = []
    while True:
        try:
            for batch in loader:
                seen += batch["__key__"]
            break
        except foreload.SampleError as error:
            raised += "s/k33" in str(error) or "s/k77" in str(error)
    assert raised == 2
    assert len(seen) == len(set(seen)) == 198
    assert balanced(loader)["failed"] == 2


def test_a_dry_stream_does_as_it_is_told(dataset: Path) -> None:
    def given(pause: threading.Event) -> Iterator[Any]:
        for number, item in enumerate(samples(dataset, 60)):
            if number == 35:
                pause.wait(60)
            yield item

    def sizes(when_dry: str, take: int) -> list[tuple[int, int]]:
        pause = threading.Event()
        rehearsal = Rehearsal(100, share=0.5)
        loader = with_keys(given(pause), when_dry=when_dry, dry_after=0.1, rehearsal=rehearsal)
        found = []
        for batch in itertools.islice(loader, take):
            new = int((np.from_dlpack(batch.occurrences) == 0).sum())
            found.append((new, len(batch) - new))
        pause.set()
        balanced(loader)
        return found

    # 10 new ones, then 5 new and 5 earlier ones, and so on: there are 35.
    assert sizes("short", 6) == [(10, 0), *[(5, 5)] * 5]
    assert sizes("rehearse", 9) == [(10, 0), *[(5, 5)] * 5, *[(0, 10)] * 3]


def test_weights_of_the_users_own_decide_what_is_kept(dataset: Path) -> None:
    def score(sample: Sample) -> float:
        assert sample["__stream__"] == "s"
        assert isinstance(sample["jpg"], bytes)
        return 1e6 if sample["cls"] == b"3" else 1.0

    loader = with_keys(samples(dataset, 350), rehearsal=Rehearsal(40, share=0.5, by=score))
    labels = [np.from_dlpack(batch.labels)[np.from_dlpack(batch.occurrences) > 0] for batch in loader]
    late = np.concatenate(labels[-15:])
    assert (late == 3).mean() > 0.9
    with pytest.raises(
        foreload.UnavailableError, match=r'score of sample "k0" raised.*ZeroDivisionError|division'
    ):
        list(load(samples(dataset, 50), rehearsal=Rehearsal(40, by=lambda sample: 1 / 0)))
    with pytest.raises(ConfigError, match=r"score|weight"):
        list(load(samples(dataset, 50), rehearsal=Rehearsal(40, by=lambda sample: -1.0)))


def test_an_iterator_may_wait_and_be_told_something_meanwhile(dataset: Path) -> None:
    """An iterator that yields None gets the acknowledged keys. An iterator without `acknowledge` delays no other."""

    class Quiet(Seekable):
        def __iter__(self) -> Iterator[Any]:
            yield from super().__iter__()
            while not self.acknowledged:
                yield None

    quiet = Quiet(dataset, 30)
    batches = iter(loader := with_keys(quiet))
    for _ in range(3):
        next(batches)
    loader.acknowledge(loader.state_dict())
    assert quiet.acknowledged == ["k29"]
    assert next(batches, None) is None
    told = threading.Event()

    def waiting() -> Iterator[Any]:
        yield from samples(dataset, 30)
        told.wait(50)

    batches = iter(loader := with_keys(waiting()))
    for _ in range(3):
        next(batches)
    began = time.monotonic()
    loader.acknowledge(loader.state_dict())
    assert time.monotonic() - began < 40
    told.set()


def test_an_iterator_that_raises_ends_the_stream_with_its_error(dataset: Path) -> None:
    def broken() -> Iterator[Any]:
        yield from samples(dataset, 25)
        raise ValueError("the camera is on fire")

    batches = iter(load(broken()))
    with pytest.raises(
        foreload.UnavailableError, match='stream "s" raised ValueError: the camera is on fire'
    ):
        list(batches)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy": "drop"}, 'policy: is "drop", must be one of block'),
        ({"when_dry": "rehearse"}, "when_dry: .* needs a rehearsal buffer"),
        ({"rehearsal": Rehearsal(10, share=1.0)}, "rehearsal.share"),
        ({"rehearsal": Rehearsal(10, share=0.01)}, "would rehearse nothing"),
        ({"rehearsal": Rehearsal(0)}, "rehearsal.capacity: is 0"),
        ({"rehearsal": Rehearsal("10 parrots")}, "rehearsal.capacity"),
        ({"rehearsal": Rehearsal(10, by="recency")}, "half_life: is not given"),
        ({"rehearsal": Rehearsal(10, by="luck")}, 'rehearsal.by: is "luck"'),
        ({"samples_per_insert": (3, 2)}, "samples_per_insert"),
        ({"shuffle": True}, "shuffle: applies only to datasets"),
        ({"cache": foreload.Ram("1GB")}, "cache: applies only to datasets"),
        ({"batchsize": 3}, "batchsize: is not a setting"),
        ({"max_bytes": "8GB"}, "max_bytes: .* below 4 GiB"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(iter([]), **settings)


def test_two_streams_are_told_apart(dataset: Path) -> None:
    first = streams.Iterator(samples(dataset, 30), name="a")
    with pytest.raises(ConfigError, match='two sources called "a"'):
        load([first, streams.Iterator(samples(dataset, 30), name="a")])
    second = streams.Iterator(samples(dataset, 45), name="b")
    loader = load([first, second], fields=["jpg", "__key__", fields.Text("__stream__")])
    seen = [pair for batch in loader for pair in zip(batch["__stream__"], batch["__key__"], strict=True)]
    assert Counter(stream for stream, _ in seen) == {"a": 30, "b": 45}
    assert len(set(seen)) == 75
    with pytest.raises(ConfigError, match=r"pairs \(stream, key\)"):
        loader.withdraw(["k1"])
    assert loader.withdraw([("a", "k1")]) == 0


def test_counts_add_up_at_every_instant(dataset: Path) -> None:
    """A thread checks all the time, while samples arrive, fail, are dropped, withdrawn and taken back."""
    stop = threading.Event()
    looked = []

    def given() -> Iterator[Any]:
        for number, (key, sample) in enumerate(samples(dataset, 3000)):
            time.sleep(0.002 if number % 20 == 0 else 0)
            yield key, sample | ({"cls": "cat"} if number % 11 == 0 else {})

    settings = {"policy": "drop_random", "queue_size": "300KB", "on_error": "skip"}
    loader = with_keys(given(), rehearsal=Rehearsal(60, share=0.5), **settings)

    def look() -> None:
        while not stop.is_set():
            looked.append(balanced(loader)["received"])

    watcher = threading.Thread(target=look)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batches = iter(loader)
        next(batches)
        watcher.start()
        for number in itertools.count():
            batch = next(batches, None)
            if batch is None:
                break
            if number % 10 == 3:
                loader.withdraw(batch["__key__"][:2])
            if number % 25 == 7:
                batches = iter(loader)
    stop.set()
    watcher.join()
    assert len(set(looked)) > 10
    stats = balanced(loader)
    assert stats["received"] == 3000
    assert stats["queued"] == 0
    assert stats["failed"] >= 270


def test_memory_is_bounded_however_long_the_stream_is(dataset: Path) -> None:
    def resident() -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError

    loader = load(samples(dataset), rehearsal=Rehearsal(200, share=0.5), queue_size="1MB", image_size=16)
    batches = iter(loader)
    for _ in range(100):
        next(batches)
    before = resident()
    for _ in range(1500):
        next(batches)
    assert resident() - before < 24 << 20
