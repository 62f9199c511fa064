"""The examples of streams with real servers: a broker of Kafka's client, and an EPICS server on this machine."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import frameworks
import kills
import numpy as np
import pytest
from conftest import paths

pytestmark = pytest.mark.timeout(180)

PARTITIONS = 4
"""The broker's default number of partitions of a topic."""
MESSAGES = 30
"""The messages per partition: 15 batches for all partitions together."""

BROKER = """
import sys
from confluent_kafka import Producer

broker = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1})
(only,) = broker.list_topics(timeout=30).brokers.values()
files = [open(path, "rb").read() for path in sys.argv[3:]]
for number in range(int(sys.argv[1]) * int(sys.argv[2])):
    partition, data = number % int(sys.argv[1]), files[number % len(files)]
    broker.produce("images", value=data, partition=partition, headers={"cls": str(number % 7).encode()})
assert broker.flush(30) == 0
print(f"{only.host}:{only.port}", flush=True)
sys.stdin.read()
"""
"""A broker whose partitions each have this many images. It ends when its input ends."""

DETECTOR = """
import itertools, json, sys, time
import numpy as np
from p4p.nt import NTNDArray
from p4p.server import Server
from p4p.server.thread import SharedPV

frames = SharedPV(nt=NTNDArray(), initial=np.zeros((30, 40), np.uint8))
with Server(providers=[{"foreload:image": frames}], isolate=True) as server:
    print(json.dumps(server.conf()), flush=True)
    for number in itertools.count():
        frames.post(np.full((30, 40), number % 256, np.uint8), timestamp=1000 + number)
        time.sleep(0.01)
"""
"""A detector whose frames are numbered by their seconds, and by their grey level."""


class Running:
    """A program in the environment, which is killed at the end."""

    def __init__(self, *command: object, **variables: str) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = frameworks.environment(**variables)
        self._process = kills.begin(frameworks.interpreter("feeds"), *command, env=environment, **pipes)

    def lines(self) -> Iterator[str]:
        """Yield what it prints."""
        return map(str.strip, self._process.stdout)

    def __enter__(self) -> Running:
        """Return itself, and ensure that the program ends even if it prints nothing."""
        self._timer = threading.Timer(120, self._process.kill)
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        kills.end(self._process)


def trained(running: Running, batches: int) -> list[list[str]]:
    """Return the keys of this many batches."""
    found = [line.split()[2:] for line in itertools.islice(running.lines(), batches)]
    assert len(found) == batches, "the example ended, or said nothing for two minutes"
    return found


@pytest.mark.parametrize("killed_after", [1, 6])
def test_kafka(dataset: Path, tmp_path: Path, killed_after: int) -> None:
    checkpoint = tmp_path / "checkpoint.json"
    with Running("-c", BROKER, PARTITIONS, MESSAGES, *paths(dataset)) as broker:
        command = [frameworks.EXAMPLES / "kafka_stream.py", next(broker.lines()), "images", checkpoint]
        with Running(*command) as first:
            batches = trained(first, killed_after)
            batches += [line.split()[2:] for line in _rest(first)]
        # Samples that are not in the last checkpoint come again.
        saved = json.loads(checkpoint.read_text())["step"] if checkpoint.exists() else 0
        assert killed_after - 1 <= saved <= len(batches)
        with Running(*command) as second:
            batches = batches[:saved] + trained(second, PARTITIONS * MESSAGES // 8 - saved)
    used = Counter(key for batch in batches for key in batch)
    # Each partition has a message with each number.
    assert used == Counter({str(offset): PARTITIONS for offset in range(MESSAGES)})


def _rest(running: Running) -> Iterator[str]:
    """Kill a program, and yield the lines that it had printed until then."""
    running._process.kill()
    return running.lines()


def test_epics() -> None:
    with Running("-c", DETECTOR) as detector:
        where = json.loads(next(detector.lines()))
        example = frameworks.EXAMPLES / "epics_stream.py"
        with Running(example, "foreload:image", **where) as training:
            batches = trained(training, 40)
    used = Counter(key for *keys, _ in batches for key in keys)
    # All samples of the first batch are new; each later batch has four new frames and four earlier ones.
    assert sum(used.values()) == 8 * 40
    assert len(used) == 8 + 4 * 39
    for *keys, mean in batches:
        assert len(set(keys)) == 8
        levels = np.array([(int(key.split(".")[0]) - 1000) % 256 for key in keys])
        # The loader normalises with the mean and deviation of ImageNet; here the mean over the colours is compared.
        expected = (levels.mean() / 255 - np.array([0.485, 0.456, 0.406])) / [0.229, 0.224, 0.225]
        assert float(mean) == pytest.approx(expected.mean(), abs=0.02)
