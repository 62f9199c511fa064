"""Runs `foreload bench` in a situation, epoch by epoch, by its tuner or with settings that are held."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from environments import Unavailable, last_lines
from situations import OBJECT_STORE_DELAY, Situation

FEWEST = 1000
"""The images that an epoch has at least, so that most of it is neither its beginning nor its end."""


USUAL = "usual"
"""What holds all settings of an epoch as they are where nothing is tuned."""


class Run:
    """`foreload bench` in all its ranks. It runs an epoch whenever it is told to, and sleeps else."""

    def __init__(self, commands: list[list[str]], start: str) -> None:
        """Start a process for each rank, whose tuner begins with the values `start`."""
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

    def epoch(self, held: str = "") -> dict:
        """Run an epoch in all ranks at once, with its settings held at these values if any; return what it took."""
        for process in self.processes:
            process.stdin.write(f"{held}\n")
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


def take_turns(epochs: Mapping[str, Callable[[], Any]], kept: dict[str, list], turn: int) -> None:
    """Run an epoch of each, in this order or, every other time, the other way about; keep what they say."""
    for name in list(epochs)[:: -1 if turn % 2 else 1]:
        kept[name].append(epochs[name]())


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

    @contextmanager
    def started(self, start: str = "") -> Iterator[Run]:
        """Start the program, whose tuner begins with the values `start`, and run its first epoch."""
        with Run([self._command(rank) for rank in range(self.situation.ranks)], start) as run:
            run.epoch()
            yield run

    def _command(self, rank: int) -> list[str]:
        situation = self.situation
        ranks = ["--rank", str(rank), "--world-size", str(situation.ranks)]
        ranks += ["--local-world-size", str(situation.ranks)] if situation.ranks > 1 else []
        command = [str(self.chosen.foreload), "bench", self.data, "--batch-size", "64"]
        command += [*situation.flags, *ranks]
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
            with bench.started() as run:
                share = chosen.seconds / run.epoch(USUAL)["seconds"]
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
