"""Loaders that share their batches get the same as alone, even if others are slow, stopped, killed or hostile."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import foreload
import kills
import numpy as np
import pytest
import shards
from consumers import Consumer, kill_producers, producers, shas
from foreload import fields
from foreload import transforms as T
from shared_consumer import digest
from waiting import settled

IN_PROCESS = ("mix", "image_size_from", "transforms")
"""Settings that a process of its own cannot be given as JSON."""
STEPS = 15
"""The steps of an epoch of the dataset with batches of four."""


def small(dataset: Path, **settings: Any) -> foreload.ImageLoader:
    """Return a loader of batches of four small images."""
    size = {} if "transforms" in settings else {"image_size": 32}
    return foreload.ImageLoader(dataset, **({"batch_size": 4, "device": "cpu"} | size | settings))


def alone(dataset: Path, epochs: int = 1, first: int = 0, **settings: Any) -> list[str]:
    """Return the digests of the batches of epochs from a loader that does not share."""
    loader = small(dataset, **settings)
    loader.set_epoch(first)
    return [digest(batch) for _ in range(first, epochs) for batch in loader]


def test_all_get_what_each_would_get_alone(dataset: Path, runtime: Path) -> None:
    together = [Consumer(runtime, dataset, 3, settings={"shared_consumers": 3}) for _ in range(3)]
    taken = [consumer.end() for consumer in together]
    expected = alone(dataset, 3)
    for batches in taken:
        assert shas(batches) == expected
        assert batches[-1]["stats"]["batches"] == len(expected)
        assert batches[-1]["stats"]["left_behind"] == batches[-1]["stats"]["producers_lost"] == 0
        assert batches[-1]["heard"] == []
    assert len({batch["stats"]["producer_pid"] for batches in taken for batch in batches}) == 1
    assert {batches[0]["stats"]["consumers"] for batches in taken} == {3}


@pytest.mark.parametrize(
    "settings",
    [
        {"dtype": "float16", "memory_format": "nhwc", "last_batch": "partial", "batch_size": 7},
        {"train": False, "dtype": "uint8", "last_batch": "pad", "batch_size": 7},
        {"fields": ["image", "label"], "seed": 5},
        {"weights": "balanced", "repeats": 2, "batch_size": 8},
        {"indices": [5, 3, 1, 8, 2, 40, 41, 42], "image_size": (24, 40)},
        {"image_size_from": {1: 48}},
        {"decode": "exact"},
        {"mix": [T.MixUp(alpha=0.2, num_classes=3)]},
        {"transforms": T.Views(2, [T.RandomResizedCrop(16), T.RandomErasing(1.0)])},
        {"transforms": [T.Pad(9, padding_mode="reflect"), T.RandomCrop(40)]},
    ],
    ids=str,
)
def test_whatever_is_in_the_batches(dataset: Path, runtime: Path, settings: dict[str, Any]) -> None:
    words = {key: value for key, value in settings.items() if key not in IN_PROCESS}
    expected = alone(dataset, 2, **settings)
    assert alone(dataset, 2, shared="words", **settings) == expected
    if words == settings:
        assert shas(Consumer(runtime, dataset, 2, settings=words).end()) == expected


def test_values_of_any_length_and_failures_come_along(own_dataset: Path, runtime: Path) -> None:
    samples = sorted(own_dataset.glob("*/*.jpg"))
    samples[7].write_bytes(b"no image")
    data = samples[9].read_bytes()
    samples[9].write_bytes(data[:-1500] + bytes(3) + data[-1497:])
    original = [foreload.transforms.Resize(40)]
    for settings in (
        {"transforms": original, "on_error": "zero"},
        {"on_error": "skip"},
        {"on_error": "raise"},
    ):
        settings = settings | {"batch_size": 4, "device": "cpu", "seed": 3, "damaged": "conceal"}
        outcomes = []
        for shared in (False, True):
            loader = foreload.ImageLoader(own_dataset, shared=shared, **settings)
            got: list[str] = []
            try:
                with warnings.catch_warnings(record=True) as heard:
                    warnings.simplefilter("always")
                    got.extend(digest(batch) for batch in loader)
                outcome = [str(warning.message) for warning in heard]
            except foreload.SampleError as error:
                outcome = [str(error)]
            # With "raise", the order of the threads decides whether the damaged image was decoded before the error.
            concealed = [] if settings["on_error"] == "raise" else loader.concealed
            outcomes.append((got, outcome, loader.errors, concealed))
            del loader
        assert outcomes[0] == outcomes[1], settings
        assert outcomes[0][1], "something was said"
        assert outcomes[0][3] or settings["on_error"] != "zero"


def test_samples_of_several_members(tmp_path: Path, runtime: Path) -> None:
    """Members of a sample are next to each other in the first shard and apart in the second."""
    rng = np.random.default_rng(2)
    names = [f"{number:03}" for number in range(24)]
    images = [{"jpg": shards.jpeg(rng, 70, 60), "left.jpg": shards.jpeg(rng, 70, 60)} for _ in names]
    others = [
        {"seg.png": shards.mask(rng.integers(0, 9, (60, 70)).astype(np.uint8)), "txt": name.encode()}
        for name in names
    ]
    together = [(name, images[at] | others[at]) for at, name in enumerate(names[:12])]
    apart = [*zip(names[12:], images[12:], strict=True), *zip(names[12:], others[12:], strict=True)]
    (tmp_path / "tars").mkdir()
    shards.write(tmp_path / "tars" / "0.tar", together)
    shards.write(tmp_path / "tars" / "1.tar", apart)
    settings = {"fields": ["jpg", "left.jpg", fields.Mask("seg.png"), "txt"]}
    assert alone(tmp_path / "tars", 2, shared=True, **settings) == alone(tmp_path / "tars", 2, **settings)


def test_packed_images(dataset: Path, tmp_path: Path, runtime: Path) -> None:
    command = [sys.executable, "-m", "foreload", "pack", str(dataset), str(tmp_path / "packed")]
    subprocess.run(command, check=True, capture_output=True)
    assert alone(tmp_path / "packed", 2, shared=True) == alone(dataset, 2)


def test_memory_of_a_consumer_that_comes_again_and_again_is_freed(dataset: Path, runtime: Path) -> None:
    stays = iter(small(dataset, shared=True, epoch_size=2000))
    next(stays)
    buffers: list[int] = []
    for _ in range(8):
        loader = small(dataset, shared=True, epoch_size=2000)
        loader.load_state_dict(stays.state_dict())
        comes = iter(loader)
        for _ in range(20):
            assert digest(next(comes)) == digest(next(stays))
        assert comes.stats()["shared"]["producer_pid"] == stays.stats()["shared"]["producer_pid"]
        del comes, loader
        maps = Path("/proc/self/maps").read_text().splitlines()
        buffers.append(sum("memfd:foreload batch" in line for line in maps))
    assert buffers[-1] <= buffers[3] + 2, f"memory of batches that no consumer has is kept: {buffers}"


def test_what_one_writes_reaches_nobody(dataset: Path, runtime: Path) -> None:
    writer = Consumer(runtime, dataset, 4, writes=True, settings={"shared_consumers": 2})
    reader = Consumer(runtime, dataset, 4, settings={"shared_consumers": 2})
    expected = alone(dataset, 4)
    assert shas(reader.end()) == expected
    assert shas(writer.end()) == expected, "what it wrote is gone when the memory comes again"


def test_a_stopped_consumer_loses_nothing_and_holds_nobody_up(dataset: Path, runtime: Path) -> None:
    settings = {"shared_consumers": 3, "shared_window": 2}
    stopped, *others = [Consumer(runtime, dataset, 3, settings=settings, pause=0.005) for _ in range(3)]
    stopped.next()
    stopped.signal(signal.SIGSTOP)
    expected = alone(dataset, 3)
    for other in others:
        assert shas(other.end()) == expected
    stopped.signal(signal.SIGCONT)
    batches = stopped.end()
    assert shas(batches) == expected
    assert batches[-1]["stats"]["producers"] > 1, "it continued with its own producer"


def test_in_lockstep_the_others_wait(dataset: Path, runtime: Path) -> None:
    settings = {"shared_consumers": 2, "shared_window": 2, "shared_policy": "wait"}
    slow = Consumer(runtime, dataset, settings=settings, lockstep=True)
    fast = Consumer(runtime, dataset, settings=settings)
    slow.next()
    assert settled("the fast one waits", lambda: len(fast.batches()), 1) <= 6
    for _ in range(STEPS - 1):
        slow.go_on()
        slow.next()
    slow.go_on()
    assert shas(slow.end()) == shas(fast.end()) == alone(dataset)


def test_in_lockstep_nobody_waits_for_an_iteration_that_was_broken_off(dataset: Path, runtime: Path) -> None:
    settings = {"shared": True, "shared_window": 2, "shared_policy": "wait"}
    loader = foreload.ImageLoader(dataset, batch_size=4, image_size=32, device="cpu", **settings)
    kept = next(iter(loader))
    before = digest(kept)
    assert shas(Consumer(runtime, dataset, settings=settings).end()) == alone(dataset)
    assert digest(kept) == before == alone(dataset)[0]
    assert [digest(batch) for batch in loader] == alone(dataset, 2, 1), "it continues with the next epoch"


def test_what_holds_a_loader_up_is_said_while_it_waits(dataset: Path, runtime: Path) -> None:
    loader = foreload.ImageLoader(dataset, batch_size=4, image_size=32, device="cpu", shared=True)
    batches = iter(loader)
    taken = [digest(next(batches))]
    (stopped,) = producers(runtime)
    os.kill(stopped, signal.SIGSTOP)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match="does not answer"):
                taken.extend(digest(batch) for batch in batches)
    finally:
        os.kill(stopped, signal.SIGKILL)
    taken += [digest(batch) for batch in batches]
    assert taken == alone(dataset), "the warning took no batch's place"


def test_a_killed_producer_is_replaced(dataset: Path, runtime: Path) -> None:
    together = [Consumer(runtime, dataset, 4, settings={"shared_consumers": 2}, pause=0.02) for _ in range(2)]
    killed = 0
    while killed < 3:
        together[0].next()
        # The previous producer may not have its successor yet.
        killed += kill_producers(runtime)
    expected = alone(dataset, 4)
    for consumer in together:
        batches = consumer.end()
        assert shas(batches) == expected
        assert batches[-1]["stats"]["producers_lost"] >= 1
    assert len(producers(runtime)) <= 1, "both continue with the same one"


def test_a_stopped_producer_is_replaced(dataset: Path, runtime: Path) -> None:
    consumer = Consumer(runtime, dataset, 2, pause=0.02)
    consumer.next()
    stopped = producers(runtime)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert shas(consumer.end()) == alone(dataset, 2)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def opened(pid: int) -> set[int]:
    """Return the descriptors of a process."""
    return {int(file.name) for file in Path(f"/proc/{pid}/fd").iterdir()}


@pytest.mark.parametrize("even_less", [False, True], ids=["nothing more", "less than is open"])
def test_a_producer_that_can_open_nothing_more_sleeps_and_newcomers_have_another(
    dataset: Path, runtime: Path, even_less: bool
) -> None:
    first = Consumer(runtime, dataset, lockstep=True)
    first.next()
    (full,) = producers(runtime)
    before = resource.prlimit(full, resource.RLIMIT_NOFILE)
    # Each batch that is made ahead has some descriptors.
    taken = settled("the producer opens nothing", lambda: opened(full), 0.5)
    first_free = next(number for number in itertools.count() if number not in taken)
    resource.prlimit(full, resource.RLIMIT_NOFILE, (0 if even_less else first_free, before[1]))
    assert shas(Consumer(runtime, dataset).end()) == alone(dataset)
    used = cpu_seconds(full)
    time.sleep(1)
    assert cpu_seconds(full) - used < 0.5, "it asks for connections without a pause"
    resource.prlimit(full, resource.RLIMIT_NOFILE, before)
    for _ in range(STEPS - 1):
        first.go_on()
        first.next()
    first.go_on()
    batches = first.end()
    assert shas(batches) == alone(dataset)
    assert batches[-1]["stats"]["producers_lost"] == 0


def test_consumers_stand_in_different_epochs_and_leave_at_any_step(dataset: Path, runtime: Path) -> None:
    settings = {"shared": "trials"}
    first = Consumer(runtime, dataset, 2, settings=settings, lockstep=True)
    first.next()
    later = Consumer(runtime, dataset, 8, settings=settings, first_epoch=6)
    assert shas(later.end()) == alone(dataset, 8, 6)
    left = first.kill()
    again = Consumer(runtime, dataset, 2, settings=settings, state=left[-1]["state"])
    assert shas(left) + shas(again.end()) == alone(dataset, 2)


def test_a_forked_child_keeps_what_its_parent_held(dataset: Path, runtime: Path) -> None:
    program = """
import os, sys, foreload, numpy as np
loader = foreload.ImageLoader(sys.argv[1], batch_size=4, image_size=32, device="cpu", shared=True)
batches = iter(loader)
batch = next(batches)
held = np.from_dlpack(batch.images)
before = held.copy()
start, begin = os.pipe()
child = os.fork()
if child == 0:
    os.read(start, 1)
    os._exit(0 if (held == before).all() else 9)
del batch, held
rest = sum(1 for _ in batches)
for _ in loader:
    pass
os.write(begin, b"x")
print(rest, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(dataset)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == [str(STEPS - 1), "0"], done.stderr


def test_other_batches_are_not_shared(dataset: Path, runtime: Path) -> None:
    one = small(dataset, shared=True)
    iterators = [iter(one)]
    next(iterators[0])
    for other in (
        {"seed": 1},
        {"shared": "name"},
        {"batch_size": 5},
        {"rank": 1, "world_size": 2},
        {"image_size": 40},
        {"transforms": [T.CenterCrop(20)]},
        {"transforms": [T.CenterCrop(21)]},
    ):
        iterators.append(iter(small(dataset, **({"shared": True} | other))))
        unshared = small(dataset, **(other | {"shared": False}))
        assert digest(next(iterators[-1])) == digest(next(iter(unshared)))
    pids = [batches.stats()["shared"]["producer_pid"] for batches in iterators]
    assert len(set(pids)) == len(pids)
    same = iter(small(Path(f"{dataset}/../{dataset.name}"), shared=True, threads=1, memory="900MB"))
    next(same)
    assert same.stats()["shared"]["producer_pid"] == pids[0], "the same in other words"


def test_strangers_reach_nothing(dataset: Path, runtime: Path) -> None:
    consumer = Consumer(runtime, dataset, 2, pause=0.01)
    consumer.next()
    (place,) = (runtime / "foreload/shared").glob("*.sock")
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.parent.stat().st_mode & 0o777 == 0o700
    hello = {
        "Hello": {
            "protocol": 6,
            "key": place.name.split(".")[0],
            "at": {"epoch": 0, "step": 1},
            "process": 1,
            "age": 0,
        }
    }
    for words in (
        [b"\xff\x00garbage"],
        [b"{}"],
        [json.dumps({"Ask": {"number": 1, "at": {"epoch": 0, "step": 0}, "age": 0}}).encode()],
        [json.dumps(hello | {}).replace(place.name.split(".")[0], "0" * 32).encode()],
        [json.dumps(hello).encode(), json.dumps(hello).encode()],
        [
            json.dumps(hello).encode(),
            json.dumps({"GiveBack": {"buffer": 2**64 - 1, "inherited": True}}).encode(),
        ],
        [
            json.dumps(hello).encode(),
            json.dumps(
                {"Ask": {"number": 1, "at": {"epoch": 2**64 - 1, "step": 2**64 - 1}, "age": 2**64 - 1}}
            ).encode(),
        ],
        # This client never reads its messages.
        [json.dumps(hello).encode(), *[b'"Ping"'] * 3000],
    ):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
            stranger.connect(f"/proc/self/fd/{os.open(place.parent, os.O_RDONLY)}/{place.name}")
            stranger.settimeout(5)
            try:
                for word in words:
                    stranger.send(word)
                    if word == json.dumps(hello).encode() and word is words[0]:
                        assert b"Welcome" in stranger.recv(65536)
            except OSError:
                continue
    assert shas(consumer.end()) == alone(dataset, 2)


def test_lent_memory_cannot_be_written_to_by_others(dataset: Path, runtime: Path) -> None:
    consumer = Consumer(runtime, dataset, settings={}, lockstep=True)
    consumer.next()
    (producer,) = producers(runtime)
    memory = [
        file for file in Path(f"/proc/{producer}/fd").iterdir() if "foreload batch" in os.readlink(file)
    ]
    assert memory
    for file in memory:
        opened = os.open(file, os.O_RDWR)
        with pytest.raises(PermissionError):
            os.pwrite(opened, b"x", 0)
        os.close(opened)
    consumer.kill()


def test_without_a_place_to_meet_each_makes_its_own(dataset: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORELOAD_RUNTIME_DIR", str(tmp_path / "missing"))
        loader = foreload.ImageLoader(dataset, batch_size=4, image_size=32, device="cpu", shared=True)
        with pytest.warns(
            foreload.Warning, match="cannot share batches and makes its own.*FORELOAD_RUNTIME_DIR"
        ):
            assert [digest(batch) for batch in loader] == alone(dataset)


def test_what_cannot_be_shared_is_refused(dataset: Path) -> None:
    for settings, said in (
        ({"cpu_decode": "never"}, "decodes on the CPU"),
        ({"peers": "auto", "cache": foreload.Ram("1GB")}, "peers"),
        ({"shared": 3}, "must be True, False or a name"),
        ({"shared_window": 0}, "shared_window"),
        ({"shared_policy": "never"}, "leave, wait"),
    ):
        with pytest.raises(foreload.ConfigError, match=said):
            foreload.ImageLoader(dataset, **({"shared": True} | settings))


def test_the_command_serves_nothing_that_is_not_to_be_shared(dataset: Path) -> None:
    words = ["--batch-size", "4", "--image-size", "32", "--shared=false"]
    served = subprocess.run(
        [sys.executable, "-m", "foreload", "serve", str(dataset), *words], capture_output=True, text=True
    )
    assert served.returncode == 2
    assert "shared: is off" in served.stderr


def test_the_command_serves_as_long_as_it_runs(dataset: Path, runtime: Path) -> None:
    words = ["--batch-size", "4", "--image-size", "32", "--shared=kept"]
    command = [sys.executable, "-m", "foreload", "serve", dataset, *words]
    server = kills.begin(*command, stdout=subprocess.PIPE, text=True)
    assert 'shared="kept"' in server.stdout.readline()
    for _ in range(2):
        batches = Consumer(runtime, dataset, settings={"shared": "kept"}).end()
        assert shas(batches) == alone(dataset)
        assert {batch["stats"]["producer_pid"] for batch in batches} == {server.pid}
        assert producers(runtime) == []
