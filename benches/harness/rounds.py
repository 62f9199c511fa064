"""Rounds: programs that run in turn, round after round, each in its environment, and their measurements.

Rounds alternate (A B C … A B C …), so that a busy machine affects all programs equally. An entrant that cannot be
installed, fails, or delivers something other than requested keeps the reason and takes no part in later rounds.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness import aims, environments, programs, report
from harness.environments import ROOT, Unavailable

COMPARED = ROOT / "benches" / "compare" / "peers"
"""The folder of the loaders that several benchmarks measure."""
FAILURES = (Unavailable, OSError, KeyError, ValueError)
LOOKS = ("shape", "dtype", "mean", "std")
"""The fields of a result that describe its batches."""


@dataclass(frozen=True)
class Entrant:
    """A loader that takes part: a line of the table."""

    title: str
    source: Path
    """Its program, which uses `measure`."""
    environment: str | None = None
    """The environment of its packages; None for Foreload's own interpreter."""
    variant: str = ""
    sharded: bool = False
    """Whether every worker has its own shards or samples, and may drop an incomplete last batch of them."""

    def program(self, data: Path, chosen: argparse.Namespace, *more: object) -> Program:
        """Return the program to run, with `more` options; its environment is made if it is missing."""
        python = interpreter(self.environment, chosen)
        scratch = chosen.envs / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        words = [python, self.source, data, "--variant", self.variant, "--threads", chosen.threads]
        words += ["--warmup", chosen.warmup, "--batch-size", chosen.batch_size, "--scratch", scratch, *more]
        # A benchmark's own modules are in the folder above its programs.
        return Program([str(word) for word in words], programs.python_path(self.source.parents[1]))


@dataclass(frozen=True)
class Program:
    """The command of an entrant."""

    words: list[str]
    variables: dict[str, str]

    def run(self, watch_memory: bool = False) -> tuple[dict, int]:
        """Return its JSON line and, if watched, its peak memory in bytes."""
        output, peak = programs.run(self.words, self.variables, watch_memory=watch_memory)
        return programs.last_object(output), peak


@dataclass
class Standing:
    """The measurements of one entrant."""

    runs: list[dict] = field(default_factory=list)
    failure: str | None = None
    peak_bytes: int | None = None

    def fail(self, name: str, error: BaseException) -> None:
        self.failure = programs.reason(error)
        report.log(f"{name}: {self.failure}")

    def figures(self, looks: tuple[str, ...] = ()) -> dict:
        """Return medians and ranges of the measurements, and the batches' description; only the reason if it failed."""
        if not self.runs or self.failure:
            return {"failure": self.failure}
        return {
            "failure": None,
            "images_per_s": report.spread([run["images"] / run["seconds"] for run in self.runs]),
            "cpu_seconds_per_1000": report.spread([cpu_per_1000(run) for run in self.runs]),
            **{key: self.runs[-1][key] for key in looks if key in self.runs[-1]},
        }


def use_cores(count: int) -> None:
    """Restrict this program and its child processes to the first cores that it may use."""
    cores = sorted(os.sched_getaffinity(0))[:count]
    if len(cores) < count:
        report.log(f"only {len(cores)} cores for {count} threads")
    os.sched_setaffinity(0, cores)


def interpreter(environment: str | None, chosen: argparse.Namespace) -> Path:
    """Return the interpreter of an environment, which is made if it is missing; Foreload's own for None."""
    if environment:
        return environments.ensure(environment, chosen.envs)
    if not os.access(chosen.foreload_python, os.X_OK):
        raise Unavailable(f"{chosen.foreload_python} is missing: run `make setup` first")
    return chosen.foreload_python


def hold(
    entrants: Mapping[str, Callable[[], Program]],
    check: Callable[[str, dict], None],
    rounds: int,
    memory: bool = False,
    title: str = "",
) -> dict[str, Standing]:
    """Run all programs in turn, `rounds` times, and once more to sample their memory, because sampling costs time.

    `check` raises `Unavailable` for a result that differs from the request. An entrant is called once, before the first
    round: it installs what its program needs, or raises `Unavailable`.
    """
    standings = {name: Standing() for name in entrants}
    ready: dict[str, Program] = {}
    for name, make in entrants.items():
        try:
            ready[name] = make()
        except Unavailable as error:
            standings[name].fail(name, error)

    def turn(name: str, number: int) -> None:
        standing = standings[name]
        watch = number > rounds
        result, peak = ready[name].run(watch)
        check(name, result)
        if watch:
            standing.peak_bytes = peak
            report.log(f"{title} memory: {name}: {peak / 1e6:.0f} MB")
        else:
            standing.runs.append(result)
            report.log(f"{title} round {number}: {name}: {told(result)}")

    alternate({name: standings[name] for name in ready}, turn, rounds + memory)
    return standings


def alternate(standings: Mapping[str, Standing], turn: Callable[[str, int], None], rounds: int) -> None:
    """Call `turn` with each name and the number of each round; a name whose turn raises `Unavailable` has no further
    turn.

    Each round begins with another name, because the first one finds the caches as the last one left them.
    """
    names = list(standings)
    for number in range(1, rounds + 1):
        first = (number - 1) % max(len(names), 1)
        for name in names[first:] + names[:first]:
            if standings[name].failure:
                continue
            try:
                turn(name, number)
            except Unavailable as error:
                standings[name].fail(name, error)


def entries(
    standings: Mapping[str, Standing], titles: Mapping[str, str], looks: tuple[str, ...] = LOOKS
) -> dict[str, dict]:
    """Return the figures of all entrants by name, with their titles and whether their colours agree."""
    found = {name: {"title": titles[name], **one.figures(looks)} for name, one in standings.items()}
    aims.judge_colours(entry for entry in found.values() if "mean" in entry)
    return found


def check_images(result: dict, images: int, dropped: int) -> None:
    """Check that all timed epochs were complete, except at most `dropped` images of an incomplete last batch."""
    epochs = len(result["epoch_seconds"])
    if not (images - dropped) * epochs < result["images"] <= images * epochs:
        raise Unavailable(f"delivered {result['images']} of {images * epochs} images")


def cpu_per_1000(result: dict) -> float:
    """Return the CPU seconds of a run per 1 000 images."""
    return 1000 * result["cpu_seconds"] / result["images"]


def told(result: dict) -> str:
    """Return a run as a line for the log."""
    return f"{result['images'] / result['seconds']:.0f} images/s, {cpu_per_1000(result):.2f} CPU s per 1000"


def attempt(measure: Callable[[], dict]) -> dict:
    """Return the measurement, or the reason why it failed."""
    try:
        return measure()
    except FAILURES as error:
        report.log(f"failed: {error!r}")
        return {"failure": programs.reason(error)}
