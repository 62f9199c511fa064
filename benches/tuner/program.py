"""Runs `foreload bench` in several ways that take turns, epoch by epoch, in a situation."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.request import Request, urlopen

from environments import Unavailable, last_lines
from situations import OBJECT_STORE_DELAY, Situation

FEWEST = 1000
"""The images that an epoch has at least, so that most of it is neither its beginning nor its end."""


@dataclass(frozen=True)
class Way:
    """A way to run: flags, and the values that the tuner begins with."""

    flags: tuple[str, ...] = ()
    start: str = ""
    is_tuned: bool = True


NOT_TUNED = Way(("--tune=false",), is_tuned=False)


def fixed(threads: int, depth: int) -> Way:
    """Return the way with these settings, which stay."""
    flags = (*NOT_TUNED.flags, "--threads", str(threads), "--queue-depth", str(depth))
    return replace(NOT_TUNED, flags=flags)


class Run:
    """One way of `foreload bench`, in all its ranks. It runs an epoch whenever it is its turn, and sleeps else."""

    def __init__(self, commands: list[list[str]], start: str) -> None:
        """Start a process for each rank."""
        environment = os.environ | {"FORELOAD_TUNER_START": start}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.processes = [
            subprocess.Popen(command, text=True, env=environment, **pipes) for command in commands
        ]

    def __enter__(self) -> Run:
        """Nothing more is to be done."""
        return self

    def __exit__(self, *_: object) -> None:
        """Have no process left, whatever happened."""
        for process in self.processes:
            with process:
                process.kill()

    def epoch(self) -> dict:
        """Run an epoch in all ranks at once; return what it took."""
        for process in self.processes:
            process.stdin.write("\n")
            process.stdin.flush()
        ranks = [line_of(process) for process in self.processes]
        images = sum(one["images"] for one in ranks)
        return {
            "images_per_s": sum(one["images_per_s"] for one in ranks),
            "cpu_per_1000": 1000 * sum(one["cpu_seconds"] for one in ranks) / images,
            "seconds": max(one["seconds"] for one in ranks),
        }

    def end(self) -> dict:
        """End; return the values that the tuner has come to, and the number of its changes."""
        for process in self.processes:
            process.stdin.close()
        tuners = [line_of(process)["tuner"] for process in self.processes]
        values = {name: tuners[0][name] for name in ("threads", "queue_depth", "prefetch")}
        changes = sum(one["changes"] for one in tuners)
        return {"values": values, "changes": changes, "decisions": tuners[0]["decisions"]}


class TakesEpochs(Protocol):
    """What runs an epoch and says something of it."""

    def epoch(self) -> Any:
        """Run the next one."""


def take_turns(runs: Mapping[str, TakesEpochs], kept: dict[str, list], turn: int) -> None:
    """Have each run its epoch, in this order or, every other time, the other way about; keep what they say."""
    for name in list(runs)[:: -1 if turn % 2 else 1]:
        kept[name].append(runs[name].epoch())


def line_of(process: subprocess.Popen) -> dict:
    """Return what a process says next."""
    if line := process.stdout.readline():
        return json.loads(line)
    raise Unavailable(f"exit code {process.wait()}: {last_lines(process.stderr.read())}")


class Bench:
    """The program and its data, in a situation."""

    def __init__(self, chosen: argparse.Namespace, scratch: Path, situation: Situation, data: str) -> None:
        """Remember them."""
        self.chosen = chosen
        self.scratch = scratch
        self.situation = situation
        self.data = data

    def start(self, way: Way) -> Run:
        """Start a way."""
        return Run([self._command(way, rank) for rank in range(self.situation.ranks)], way.start)

    @contextmanager
    def started(self, ways: dict[str, Way]) -> Iterator[dict[str, Run]]:
        """Start several ways, and run an epoch of each."""
        with ExitStack() as running:
            runs = {name: running.enter_context(self.start(way)) for name, way in ways.items()}
            for run in runs.values():
                run.epoch()
            yield runs

    def _command(self, way: Way, rank: int) -> list[str]:
        situation = self.situation
        ranks = ["--rank", str(rank), "--world-size", str(situation.ranks)]
        ranks += ["--local-world-size", str(situation.ranks)] if situation.ranks > 1 else []
        command = [str(self.chosen.foreload), "bench", self.data, "--batch-size", "64"]
        command += [*situation.flags, *way.flags, *ranks]
        command += ["--index-dir", str(self.scratch / "index"), "--json", "--turns", "--epochs", "1000000"]
        return command


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
def served(chosen: argparse.Namespace, on: bool, data: Path) -> Iterator[str]:
    """Serve the data as slowly as an object store, where that is asked for; yields where it lies."""
    if not on:
        yield str(data)
        return
    with ObjectStore(chosen.range_server, data) as store:
        store.delay(OBJECT_STORE_DELAY)
        yield store.url


@contextmanager
def ready(chosen: argparse.Namespace, scratch: Path, situation: Situation) -> Iterator[Bench]:
    """Yield the program in a situation, with so many images that an epoch is about as long as it was chosen to be."""
    with hogs(situation.hogs):
        with served(chosen, situation.server, chosen.data) as data:
            bench = Bench(chosen, scratch, situation, data)
            with bench.started({"whole": NOT_TUNED}) as runs:
                share = chosen.seconds / runs["whole"].epoch()["seconds"]
        with tempfile.TemporaryDirectory(dir=scratch) as place:
            few = some_of(chosen.data, Path(place), share)
            with served(chosen, situation.server, few) as data:
                yield Bench(chosen, scratch, situation, data)


def some_of(data: Path, place: Path, share: float) -> Path:
    """Return a directory at `place` with a share of the images, or all of them if that is not less."""
    images = sorted(data.glob("*/*"))
    count = max(FEWEST, round(share * len(images)))
    if count >= len(images):
        return data
    for number in range(count):
        image = images[number * len(images) // count]
        (place / image.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy2(image, place / image.parent.name / image.name)
    return place
