"""A trainer, a producer and the broker between them. Each is killed at random times.

If run as a program, this file is the producer or the trainer.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import kills
import numpy as np
import pytest
from conftest import ONLY_ALL, THOROUGH, paths
from foreload import Rehearsal, fields
from test_stream_sources import Server, add, new_keys, reading, redis

__all__ = ["redis"]  # A fixture is found by its name.

QUOTA = 16_000_000


def produce(home: Path, dataset: Path) -> None:
    """Add entries from the last one on, until there are enough."""
    server = Server(home)
    while not (home / "enough").exists():
        last = last_entry(server)
        try:
            add(server, dataset, range(last, last + 1))
        except AssertionError as error:
            # The server had stored the entry, but was killed before it could confirm that.
            if "equal or smaller" not in str(error):
                raise
        time.sleep(0.002)


def last_entry(server: Server) -> int:
    """Return the number of the last entry."""
    found = re.search(rb"\r\n1-(\d+)\r\n", server.call("XREVRANGE", "images", "+", "-", "COUNT", 1))
    return int(found[1]) if found else 0


def train(home: Path, dataset: Path, group: str) -> None:
    """Resume from the last state, and record the new samples of each step, until the last entry was used."""
    saved, server = home / "state", Server(home)
    kept = Rehearsal(60, share=0.2, directory=home / "kept", directory_size=str(QUOTA), memory="20KB")
    consumer = {"group": group, "consumer": "one"} if group else {}
    settings = {"fields": [fields.Bytes("jpg"), "label", "__key__"], "when_dry": "short", "dry_after": 0.05}
    loader = reading(server, rehearsal=kept, **settings, **consumer)
    if saved.exists():
        loader.load_state_dict(json.loads(saved.read_text()))
    files = [path.read_bytes() for path in paths(dataset)]
    first = loader.state_dict()["step"]
    with (home / f"used-{time.time_ns()}").open("w") as used:
        used.write(f"{first}\n")
        for step, batch in enumerate(loader, first):
            labels = np.from_dlpack(batch.labels)
            for key, image, label in zip(batch["__key__"], batch["jpg"], labels, strict=True):
                number = int(key[2:]) - 1
                assert (bytes(image), int(label)) == (files[number % 60], number % 5), key
            used.write(json.dumps([step, new_keys(iter([batch]), 1)]) + "\n")
            is_over = (home / "last").exists() and delivered(loader) >= int((home / "last").read_text())
            if step % 4 == 3 or is_over:
                state = loader.state_dict()
                used.flush()
                (home / "state.tmp").write_text(json.dumps(state))
                (home / "state.tmp").replace(saved)
                loader.acknowledge(state)
            if is_over:
                break
    (home / "account").write_text(json.dumps(loader.stats()["stream"]))


def delivered(loader: Any) -> int:
    return loader.stats()["stream"]["delivered"]


def trained_on(home: Path) -> Iterator[str]:
    """Yield the keys of all samples that were new in a step that no later run has undone. @@t 92 It was killed before
    it saved anything.
    """
    steps: dict[int, list[str]] = {}
    for run in sorted(home.glob("used-*")):
        if not (text := run.read_text()):
            continue  # It was killed before it had saved anything.
        first, *lines = text.splitlines()
        steps = {step: keys for step, keys in steps.items() if step < int(first)}
        # The last line may be incomplete.
        steps.update(json.loads(line) for line in lines if line.endswith("]]"))
    for keys in steps.values():
        yield from keys


def begin(role: str, home: Path, *arguments: object) -> subprocess.Popen[bytes]:
    with (home / f"{role}.errors").open("ab") as errors:
        return kills.begin(sys.executable, __file__, role, home, *arguments, stderr=errors)


@ONLY_ALL
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("group", ["", "train"])
def test_each_entry_is_trained_on_once_whoever_is_killed(
    dataset: Path, tmp_path: Path, redis: Server, group: str
) -> None:
    words = {"produce": (dataset,), "train": (dataset, group)}
    running = {role: begin(role, tmp_path, *more) for role, more in words.items()}

    def kill(victim: str) -> int:
        for role, program in running.items():
            assert program.poll() is None, (tmp_path / f"{role}.errors").read_text()
        taken = sum(path.stat().st_blocks * 512 for path in (tmp_path / "kept").glob("*") if path.exists())
        assert taken <= QUOTA
        if victim == "server":
            redis.kill()
            redis.start()
        else:
            kills.end(running[victim])
            running[victim] = begin(victim, tmp_path, *words[victim])
        return 1

    victims = {role: partial(kill, role) for role in (*words, "server")}
    kills.again_and_again(random.Random(kills.seed()), 160 if THOROUGH else 8, (0.1, 1.5), victims)
    (tmp_path / "enough").touch()
    assert running["produce"].wait(60) == 0
    last = last_entry(redis)
    (tmp_path / "last").write_text(str(last + 8))
    add(redis, dataset, range(last, last + 8))
    assert running["train"].wait(300) == 0, (tmp_path / "train.errors").read_text()
    print("entries:", last + 8)
    assert Counter(trained_on(tmp_path)) == Counter(f"1-{number + 1}" for number in range(last + 8))
    account = json.loads((tmp_path / "account").read_text())
    counted = {
        name: account[name] for name in ("received", "delivered", "missing", "lost", "failed", "dropped")
    }
    expected = {"received": last + 8, "delivered": last + 8}
    assert counted == {"missing": 0, "lost": 0, "failed": 0, "dropped": 0, **expected}


if __name__ == "__main__":
    role, place, *rest = sys.argv[1:]
    {"produce": produce, "train": train}[role](Path(place), *[Path(rest[0]), *rest[1:]])
