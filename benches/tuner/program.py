"""Runs `foreload bench` in a situation, in one way, and says what it did once the tuner had time to settle."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

from environments import Unavailable, last_lines
from situations import OBJECT_STORE_DELAY, Situation

LONGER = 4
"""How often a run is made twice as long at most, because it ended before it had settled."""


@dataclass(frozen=True)
class Way:
    """A way to run: flags, and the values that the tuner begins with."""

    flags: tuple[str, ...] = ()
    start: str = ""


NOT_TUNED = Way(("--tune=false",))


def fixed(threads: int, depth: int) -> Way:
    """Return the way with these settings, which stay."""
    return Way((*NOT_TUNED.flags, "--threads", str(threads), "--queue-depth", str(depth)))


class Bench:
    """The program and its data."""

    def __init__(self, chosen: argparse.Namespace, scratch: Path) -> None:
        """Remember what was chosen."""
        self.chosen = chosen
        self.scratch = scratch

    def start(
        self, situation: Situation, way: Way, data: str, rank: int, epochs: int, more: tuple[str, ...]
    ) -> subprocess.Popen:
        """Start one rank."""
        ranks = ["--rank", str(rank), "--world-size", str(situation.ranks)]
        ranks += ["--local-world-size", str(situation.ranks)] if situation.ranks > 1 else []
        command = [str(self.chosen.foreload), "bench", data, "--epochs", str(epochs), "--batch-size", "64"]
        command += [*situation.flags, *way.flags, *ranks, *more]
        command += ["--index-dir", str(self.scratch / "index"), "--json"]
        environment = os.environ | {"FORELOAD_TUNER_START": way.start}
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    def run(self, situation: Situation, way: Way, data: str, epochs: int, *more: str) -> list[dict]:
        """Run all ranks; return the reports."""
        started = [self.start(situation, way, data, rank, epochs, more) for rank in range(situation.ranks)]
        try:
            reports = []
            for process in started:
                out, err = process.communicate()
                if process.returncode != 0:
                    raise Unavailable(f"exit code {process.returncode}: {last_lines(err or out)}")
                reports.append(json.loads(out[out.index("{") :]))
            return reports
        finally:
            # Where one fails, the others do not run on beside what is measured next.
            for process in started:
                process.kill()

    def epoch(self, situation: Situation, data: str, *more: str) -> float:
        """Return how many seconds an epoch takes, once the page cache has what it may have."""
        reports = self.run(situation, NOT_TUNED, data, 2, *more)
        return max(one["epochs"][-1]["seconds"] for one in reports)

    def settled(
        self, situation: Situation, way: Way, data: str, times: tuple[float, float], *more: str
    ) -> dict:
        """Run until it has settled and then for as long as was chosen; return what `late` says of it.

        `times` are the seconds of an epoch, and those that it takes to settle.
        """
        epoch, settle = times
        epochs = max(2, round((settle + self.chosen.seconds) / epoch) + 1)
        for _ in range(LONGER):
            if found := late(self.run(situation, way, data, epochs, *more), settle):
                return found
            epochs *= 2
        raise Unavailable(f"{epochs // 2} epochs took less than {settle} seconds")


def late(reports: list[dict], settle: float) -> dict | None:
    """Return rate and CPU of the epochs that began after `settle` seconds, of all ranks together, if there are any."""
    rate, cpu, images, changes = 0.0, 0.0, 0, 0
    # A rank that is left alone at last has the machine for itself.
    together = min(sum(epoch["seconds"] for epoch in one["epochs"]) for one in reports)
    for one in reports:
        passed, after = 0.0, []
        for epoch in one["epochs"]:
            began, passed = passed, passed + epoch["seconds"]
            if began >= settle and passed <= together + 1e-6:
                after.append(epoch)
        if not after:
            return None
        rate += sum(epoch["images"] for epoch in after) / sum(epoch["seconds"] for epoch in after)
        cpu += sum(epoch["cpu_seconds"] for epoch in after)
        images += sum(epoch["images"] for epoch in after)
        changes += one["tuner"]["changes"]
    last = reports[0]["tuner"]
    values = {name: last[name] for name in ("threads", "queue_depth", "prefetch")}
    return {"images_per_s": rate, "cpu_per_1000": 1000 * cpu / images, "changes": changes, "values": values}


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """Keep processors busy with something else."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


class ObjectStore:
    """A server of objects, as slow as one is told to it."""

    def __init__(self, program: Path, data: Path) -> None:
        """Remember what is served, and by what."""
        self.command = [str(program), str(data)]

    def __enter__(self) -> ObjectStore:
        """Start it."""
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url = self.process.stdout.readline().strip()
        return self

    def delay(self, seconds: float) -> None:
        """Let each object come so late from now on."""
        faults = json.dumps([f"stall:always:{seconds}"]).encode()
        with urlopen(Request(f"{self.url}/-/faults", faults, method="PUT")):
            pass

    def __exit__(self, *_: object) -> None:
        """Stop it. What it prints of every object is read, because it does not end before."""
        self.process.communicate()


@contextmanager
def served(chosen: argparse.Namespace, on: bool) -> Iterator[str]:
    """Serve the data as slowly as an object store, where that is asked for; yields where it lies."""
    if not on:
        yield str(chosen.data)
        return
    with ObjectStore(chosen.range_server, chosen.data) as store:
        store.delay(OBJECT_STORE_DELAY)
        yield store.url
