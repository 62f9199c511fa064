"""Streams from Redis and ZeroMQ in Python. Faults that only Rust can simulate are tested in Rust."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import foreload
import kills
import numpy as np
import pytest
from conftest import paths
from foreload import Rehearsal, streams
from test_streams import balanced, load
from waiting import until

SECRET = "f3c7" * 10


class Server:
    """A Redis server for a test. Its entries survive a kill."""

    def __init__(self, home: Path) -> None:
        self.home, self.path = home, home / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"unix://{self.path}"

    def start(self) -> None:
        """Start it, perhaps again after a kill."""
        command = ["redis-server", "--port", "0", "--unixsocket", str(self.path), "--dir", str(self.home)]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--requirepass", SECRET]
        self._process = kills.begin(*command, stdout=subprocess.DEVNULL)
        until("Redis listens", self.path.exists)

    def kill(self) -> None:
        """Kill it."""
        assert self._process is not None
        kills.end(self._process)
        self.path.unlink(missing_ok=True)

    def call(self, *words: bytes | str | int) -> bytes:
        """Send a command and return the beginning of the response."""
        encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]

        def ask() -> bytes:
            answer = b""
            with (
                contextlib.suppress(ConnectionError, FileNotFoundError),
                socket.socket(socket.AF_UNIX) as connection,
            ):
                connection.connect(str(self.path))
                for command in ([b"AUTH", SECRET.encode()], encoded):
                    parts = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in command)
                    connection.sendall(b"*%d\r\n%s" % (len(command), parts))
                    answer = connection.recv(1 << 16)
                return answer
            return b""

        answer = until("Redis answers", ask, lambda said: said and not said.startswith(b"-LOADING"))
        assert not answer.startswith(b"-"), answer
        return answer


@pytest.fixture
def redis(tmp_path: Path) -> Server:
    if shutil.which("redis-server") is None:
        if os.environ.get("FORELOAD_REQUIRE_REDIS"):
            pytest.fail("redis-server is missing: apt-get install redis-server")
        pytest.skip("redis-server is missing: apt-get install redis-server")
    server = Server(tmp_path)
    server.start()
    return server


def add(server: Server, dataset: Path, numbers: range) -> None:
    for number in numbers:
        image = paths(dataset)[number % 60].read_bytes()
        server.call("XADD", "images", f"1-{number + 1}", "jpg", image, "cls", number % 5)


def reading(server: Server, **settings: Any) -> foreload.StreamLoader:
    options = {key: settings.pop(key) for key in ("group", "consumer", "start") if key in settings}
    source = streams.Redis(server.url, "images", password=SECRET, **options)
    return load(source, **{"fields": ["jpg", "label", "__key__"], "batch_size": 5, **settings})


def keys(batches: Iterator[foreload.Batch], count: int) -> list[str]:
    return [key for batch in itertools.islice(batches, count) for key in batch["__key__"]]


def new_keys(batches: Iterator[foreload.Batch], count: int) -> list[str]:
    """Return the keys of the samples that come for the first time."""
    seen = []
    for batch in itertools.islice(batches, count):
        new = np.from_dlpack(batch.occurrences) == 0
        seen += [key for key, is_new in zip(batch["__key__"], new, strict=True) if is_new]
    return seen


@pytest.mark.parametrize("group", [None, "train"])
def test_entries_of_redis_are_used_once_through_kills_of_both(
    dataset: Path, redis: Server, group: str | None
) -> None:
    add(redis, dataset, range(61))
    rehearsal = Rehearsal(20, share=0.2, directory=redis.home / "kept", directory_size="8MB")
    loader = reading(redis, group=group, rehearsal=rehearsal)
    batches = iter(loader)
    seen = new_keys(batches, 6)
    state = loader.state_dict()
    loader.acknowledge(state)
    assert SECRET not in str(state)
    next(batches)
    redis.kill()
    redis.start()
    add(redis, dataset, range(61, 73))
    del batches, loader
    gc.collect()
    resumed = reading(redis, group=group, rehearsal=rehearsal)
    resumed.load_state_dict(state)
    seen += new_keys(iter(resumed), (73 - len(seen)) // 4)
    assert sorted(seen) == sorted(f"1-{number + 1}" for number in range(73))
    assert balanced(resumed)["missing"] == 0


def test_what_redis_trimmed_is_counted_as_missing(dataset: Path, redis: Server) -> None:
    add(redis, dataset, range(20))
    loader = reading(redis, queue_size="1KB")
    batches = iter(loader)
    seen = list(next(batches)["__key__"])
    # Batches that are made ahead and waiting samples hold some entries; the server has the rest.
    add(redis, dataset, range(20, 320))
    redis.call("XTRIM", "images", "MINID", "1-301")
    done, added = threading.Event(), 320

    def add_more() -> None:
        """Add entries from time to time: the loader looks for missing entries in between, and reports them with the
        next ones.
        """
        nonlocal added
        while not done.wait(0.5):
            add(redis, dataset, range(added, added + 5))
            added += 5

    def accounted() -> int:
        """Return how many of the first 300 entries were seen, or counted as missing."""
        return sum(int(key[2:]) <= 300 for key in seen) + balanced(loader)["missing"]

    def read_on() -> None:
        while accounted() < 300 or not told:
            seen.extend(next(batches)["__key__"])

    adder = threading.Thread(target=add_more)
    adder.start()
    try:
        with pytest.warns(foreload.Warning, match=r"trimmed or deleted before they were read") as told:
            read_on()
    finally:
        done.set()
        adder.join()
    missing = balanced(loader)["missing"]
    assert missing > 0
    assert accounted() == 300
    # This many more fill the last batch. After that, all added entries were seen, except trimmed ones.
    rest = -(added - missing) % 5
    add(redis, dataset, range(added, added + rest))
    while len(seen) + missing < added + rest:
        seen.extend(next(batches)["__key__"])
    assert len(seen) + missing == added + rest
    assert sorted(int(key[2:]) for key in seen)[300 - missing :] == list(range(301, added + rest + 1))
    assert balanced(loader)["missing"] == missing


@pytest.mark.parametrize("restarted", [False, True])
def test_a_stream_that_is_made_anew_is_told_of(dataset: Path, redis: Server, restarted: bool) -> None:
    """Its new entries have later ids, and entries that were not read are lost. @@t 205 The loader checks this if
    nothing arrives for a moment. @@t 236 A number that is never sent.
    """
    add(redis, dataset, range(100))
    loader = reading(redis, queue_size="1KB")
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    redis.call("DEL", "images")
    add(redis, dataset, range(200, 400))

    def read_on() -> foreload.StreamLoader:
        ours, following = reading(redis, queue_size="1KB"), None
        if restarted:
            ours.load_state_dict(state)
            following = iter(ours)
        else:
            ours, following = loader, batches
        while max(int(key[2:]) for key in next(following)["__key__"]) < 390:
            pass
        time.sleep(0.5)  # It is looked for when nothing comes for a moment.
        add(redis, dataset, range(400, 410))
        next(following)
        return ours

    with pytest.warns(foreload.Warning, match=r"the stream was recreated since"):
        assert balanced(read_on())["missing"] == 0


def test_a_wrong_password_is_an_error_that_does_not_show_it(redis: Server) -> None:
    source = streams.Redis(redis.url, "images", password="wrong-and-secret")
    assert "wrong-and-secret" not in repr(source)
    with pytest.raises(foreload.Error) as raised:
        next(iter(load(source)))
    assert "wrong-and-secret" not in str(raised.value)


@pytest.mark.parametrize("kind", ["pull", "sub"])
def test_messages_of_zeromq_are_samples(dataset: Path, kind: str) -> None:
    zmq = pytest.importorskip("zmq", reason="pyzmq is missing")
    files = [path.read_bytes() for path in paths(dataset)]
    context = zmq.Context()
    sender = context.socket(zmq.PUSH if kind == "pull" else zmq.PUB)
    port = sender.bind_to_random_port("tcp://127.0.0.1")
    stop = threading.Event()

    def send() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            if number % 10 == 9:
                continue  # A number that is never sent.
            topic = [b"camera"] if kind == "sub" else []
            parts = [b"jpg", files[number % 60], b"cls", b"%d" % (number % 5), b"__seq__", b"%d" % number]
            sender.send_multipart([*topic, *parts])
            time.sleep(0.002)

    topics = ["cam"] if kind == "sub" else None
    source = streams.ZeroMQ(f"tcp://127.0.0.1:{port}", socket=kind, topics=topics)
    loader = load(source, fields=["jpg", "label", "__key__"], batch_size=10)
    batches = iter(loader)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        seen = []
        # A publisher numbers all messages for all subscribers. Pullers divide them, so gaps do not mean losses.
        lossy = kind == "sub"
        told = pytest.warns(foreload.Warning, match="messages after number .* were lost")
        with told if lossy else contextlib.nullcontext():
            received = list(itertools.islice(batches, 10))
        for batch in received:
            assert np.from_dlpack(batch.labels).tolist() == [int(key) % 5 for key in batch["__key__"]]
            seen += batch["__key__"]
    finally:
        stop.set()
        thread.join()
        sender.close(0)
        context.term()
    assert len(set(seen)) == 100
    stats = balanced(loader)
    assert (stats["missing"] >= 8) == lossy
