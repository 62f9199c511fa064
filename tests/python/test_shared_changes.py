"""Files change while a producer runs: a loader that starts (again) later gets the contents of that time."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import foreload
import kills
import numpy as np
import pytest
from conftest import paths
from consumers import Consumer, shas
from shared_consumer import digest
from test_shared import alone

EVALUATION = {"train": False, "batch_size": 16, "shared": "kept"}
"""An epoch of four batches, all of which the producer stores."""


def overwrite(dataset: Path, within: Callable[[Path, bytes], None]) -> None:
    """Write the image of the next file into every file, padded to the old size if it is shorter."""
    files = paths(dataset)
    contents = [file.read_bytes() for file in files]
    for number, file in enumerate(files):
        fitting = (contents[(number + more) % len(files)] for more in range(1, len(files)))
        content = next((one for one in fitting if len(one) <= len(contents[number])), None)
        if content is not None:
            within(file, content.ljust(len(contents[number]), b"\0"))


def in_place(file: Path, content: bytes) -> None:
    """Write to the file itself."""
    with file.open("r+b") as opened:
        opened.write(content)


def renamed(file: Path, content: bytes) -> None:
    """Replace the file by another one."""
    other = file.with_suffix(".new")
    other.write_bytes(content)
    other.rename(file)


def serve(dataset: Path, *words: str) -> int:
    """Serve batches of a dataset until the test ends, and return the process id."""
    flags = ["--train=false", "--batch-size=16", "--image-size=32", "--shared=kept", *words]
    command = [sys.executable, "-m", "foreload", "serve", dataset, *flags]
    server = kills.begin(*command, stdout=subprocess.PIPE, text=True)
    assert "serves batches" in server.stdout.readline()
    return server.pid


@pytest.mark.parametrize("within", [in_place, renamed])
@pytest.mark.parametrize("cached", [False, True], ids=["no cache", "cache"])
def test_who_comes_later_gets_what_files_hold_by_then(
    own_dataset: Path, runtime: Path, within: Callable[[Path, bytes], None], cached: bool
) -> None:
    # The cache belongs to the producer only: the consumers' settings of the machine do not affect it.
    words = ["--cache-ram=10MB"] if cached else []
    before = alone(own_dataset, train=False, batch_size=16)
    server = serve(own_dataset, *words)
    for _ in range(2):
        batches = Consumer(runtime, own_dataset, settings=EVALUATION).end()
        assert shas(batches) == before
        assert {batch["stats"]["producer_pid"] for batch in batches} == {server}
    overwrite(own_dataset, within)
    after = alone(own_dataset, train=False, batch_size=16)
    assert all(new != old for new, old in zip(after, before, strict=True))
    batches = Consumer(runtime, own_dataset, settings=EVALUATION).end()
    assert shas(batches) == after
    assert {batch["stats"]["producer_pid"] for batch in batches} == {server}


def test_others_that_stay_where_they_are_keep_nobody_away(own_dataset: Path, runtime: Path) -> None:
    server = serve(own_dataset)
    expected = alone(own_dataset, train=False, batch_size=16)
    waiting = []
    for _ in range(4):
        consumer = Consumer(runtime, own_dataset, settings=EVALUATION, lockstep=True)
        got = [consumer.next()]
        while len(got) < len(expected):
            consumer.go_on()
            got.append(consumer.next())
        assert shas(got) == expected
        assert {batch["stats"]["producer_pid"] for batch in got} == {server}
        waiting.append(consumer)
    for consumer in waiting:
        consumer.go_on()
        consumer.end()


def test_who_begins_again_gets_what_files_hold_by_then(own_dataset: Path, runtime: Path) -> None:
    serve(own_dataset)
    loader = foreload.ImageLoader(own_dataset, device="cpu", image_size=32, **EVALUATION)
    before = [digest(batch) for batch in loader]
    overwrite(own_dataset, in_place)
    # Data that was read up to a second ago may have been read for other consumers that have already started.
    time.sleep(1.1)
    loader.set_epoch(0)
    after = [digest(batch) for batch in loader]
    assert after == alone(own_dataset, train=False, batch_size=16) != before
    del loader


def test_who_comes_to_other_shards_has_another_producer(
    own_dataset: Path, runtime: Path, tmp_path: Path
) -> None:
    (tmp_path / "shards").mkdir()
    shard = tmp_path / "shards/0.tar"

    def pack() -> None:
        with tarfile.open(shard.with_suffix(".new"), "w") as tar:
            for number, file in enumerate(paths(own_dataset)):
                tar.add(file, f"{number:03}.jpg")
                (tmp_path / "cls").write_text("0")
                tar.add(tmp_path / "cls", f"{number:03}.cls")
        shard.with_suffix(".new").rename(shard)

    pack()
    server = serve(shard.parent)
    batches = Consumer(runtime, shard.parent, settings=EVALUATION).end()
    assert {batch["stats"]["producer_pid"] for batch in batches} == {server}
    before = shas(batches)
    overwrite(own_dataset, in_place)
    pack()
    batches = Consumer(runtime, shard.parent, settings=EVALUATION).end()
    assert shas(batches) == alone(shard.parent, train=False, batch_size=16) != before
    assert server not in {batch["stats"]["producer_pid"] for batch in batches}


RELATIVE = """
import os, sys, foreload
from shared_consumer import digest
os.chdir(sys.argv[1])
loader = foreload.ImageLoader(sys.argv[2], batch_size=4, image_size=32, device="cpu", shared=True)
os.chdir("/")
for batch in loader:
    print(digest(batch))
"""


def test_a_path_is_looked_up_where_the_loader_was_made(dataset: Path, runtime: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RELATIVE, str(dataset.parent), dataset.name],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == alone(dataset)


@pytest.mark.parametrize("kind", [str, Path])
def test_labels_are_those_of_the_table_when_the_loader_was_made(
    dataset: Path, runtime: Path, tmp_path: Path, kind: type
) -> None:
    table = tmp_path / "values.csv"

    def load(value: int) -> foreload.ImageLoader:
        lines = [f"{file.relative_to(dataset)},{value}" for file in paths(dataset)]
        table.write_text("\n".join(["file_name,value", *lines]))
        settings = {"labels": kind(table), "fields": ["image", "value"], "shared": "labels"}
        return foreload.ImageLoader(dataset, batch_size=4, image_size=16, **settings)

    earlier = load(1)
    assert set(np.asarray(next(iter(earlier))["value"]).tolist()) == {1}
    # The producer of the earlier loader still runs and has the earlier table.
    assert set(np.asarray(next(iter(load(2)))["value"]).tolist()) == {2}
