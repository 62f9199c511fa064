"""What the comparisons with other loaders share: programs that run in turn, round after round, each in its environment.

Rounds alternate (A B C … A B C …), so that a busy machine affects all alike. A contestant that cannot be installed,
fails, or delivers something else than was asked for keeps its reason and takes no part in later rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import accounting
import environments
import report
from environments import ROOT, Unavailable

HERE = Path(__file__).resolve().parent
MEMORY_INTERVAL = 0.1
TIMEOUT = 1800
COLOUR_TOLERANCE = 0.15
"""The largest difference of a peer's normalised channel mean from the median of all: more means other pixels."""


@dataclass(frozen=True)
class Program:
    """How a contestant is run."""

    words: list[str]
    variables: dict[str, str]


@dataclass
class Standing:
    """The measurements of one contestant."""

    runs: list[dict] = field(default_factory=list)
    failure: str | None = None
    peak_bytes: int | None = None

    def figures(self) -> dict:
        """Return medians and ranges of what was measured; nothing but the reason when that failed."""
        if not self.runs or self.failure:
            return {"failure": self.failure and self.failure.replace(f"{ROOT}/", "")}
        return {
            "failure": None,
            "images_per_s": report.spread([run["images"] / run["seconds"] for run in self.runs]),
            "cpu_seconds_per_1000": report.spread([cpu_per_1000(run) for run in self.runs]),
        }


def folder_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser for a benchmark of an image folder, which says what it is about."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=ROOT / "data" / "folder",
        help="image folder (default: data/folder)",
    )
    return parser


def add_options(parser: argparse.ArgumentParser, rounds: int) -> None:
    """Add what every comparison can be asked for."""
    parser.add_argument("--rounds", type=int, default=rounds, help="timed rounds of every peer")
    parser.add_argument("--warmup", type=int, default=8, help="batches before the timed epochs")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2, help="cores, and worker threads or processes")
    parser.add_argument("--require-targets", action="store_true", help="exit code 1 when a target is missed")
    parser.add_argument(
        "--envs", type=Path, default=environments.DEFAULT_FOLDER, help="folder of the environments"
    )
    parser.add_argument("--foreload-python", type=Path, default=ROOT / ".venv" / "bin" / "python")
    parser.add_argument("--output", type=Path, help="keep the result in OUTPUT.json and OUTPUT.md too")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def use_cores(count: int) -> None:
    """Restrict this program and all it starts to the first cores that it may use."""
    cores = sorted(os.sched_getaffinity(0))[:count]
    if len(cores) < count:
        report.log(f"only {len(cores)} cores for {count} threads")
    os.sched_setaffinity(0, cores)


def interpreter(environment: str | None, chosen: argparse.Namespace) -> Path:
    """Return a peer's interpreter, whose environment is made if it is missing; Foreload's own for None."""
    if environment:
        return environments.ensure(environment, chosen.envs)
    if not chosen.foreload_python.exists():
        raise Unavailable(f"{chosen.foreload_python} is missing: run `make setup` first")
    return chosen.foreload_python


def program(
    python: Path,
    source: Path,
    data: Path,
    variant: str,
    chosen: argparse.Namespace,
    more: tuple[Path, ...] = (),
) -> Program:
    """Return how a program that uses `measure` is run; `more` are folders of further modules that it imports."""
    words = [python, source, data, "--variant", variant, "--threads", chosen.threads]
    words += ["--warmup", chosen.warmup, "--batch-size", chosen.batch_size]
    path = os.pathsep.join(str(folder) for folder in (HERE, *more))
    return Program([str(word) for word in words], os.environ | {"PYTHONPATH": path})


def hold(
    entrants: dict[str, Callable[[], Program]],
    check: Callable[[str, dict], None],
    rounds: int,
    memory: bool,
    title: str,
) -> dict[str, Standing]:
    """Run all programs in turn, `rounds` times, and once more to sample their memory, as sampling costs time.

    `check` raises `Unavailable` for a result that is not what was asked for. An entrant is called once, before the
    first round: it installs what its program needs, or raises `Unavailable`.
    """
    standings = {name: Standing() for name in entrants}
    programs: dict[str, Program] = {}
    for name, make in entrants.items():
        try:
            programs[name] = make()
        except Unavailable as reason:
            standings[name].failure = str(reason)
            report.log(f"{name}: {reason}")
    for number, watch in enumerate([False] * rounds + [True] * memory, start=1):
        for name, runnable in programs.items():
            standing = standings[name]
            if standing.failure:
                continue
            try:
                result, peak = run(runnable, watch)
                check(name, result)
            except Unavailable as reason:
                standing.failure = str(reason)
                report.log(f"{name}: {reason}")
                continue
            if watch:
                standing.peak_bytes = peak
                report.log(f"{title} memory: {name}: {peak / 1e6:.0f} MB")
            else:
                standing.runs.append(result)
                rate = result["images"] / result["seconds"]
                told = f"{rate:.0f} images/s, {cpu_per_1000(result):.2f} CPU s per 1000"
                report.log(f"{title} round {number}: {name}: {told}")
    return standings


def run(runnable: Program, watch_memory: bool) -> tuple[dict, int]:
    """Run a program once; return its JSON line and, when watched, its peak memory in bytes."""
    peak = 0
    with subprocess.Popen(
        runnable.words, env=runnable.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                output, complaints = process.communicate(timeout=MEMORY_INTERVAL if watch_memory else TIMEOUT)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    process.kill()
                    raise Unavailable(f"no end after {TIMEOUT} s") from None
                peak = max(peak, accounting.tree_memory_bytes(process.pid))
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if process.returncode != 0 or not lines:
        raise Unavailable(f"exit code {process.returncode}: {environments.last_lines(complaints or output)}")
    return json.loads(lines[-1]), peak


def check_images(result: dict, images: int, dropped: int) -> None:
    """Check that all timed epochs were whole, but for the `dropped` images at most that fill no batch."""
    epochs = len(result["epoch_seconds"])
    if not (images - dropped) * epochs < result["images"] <= images * epochs:
        raise Unavailable(f"delivered {result['images']} of {images * epochs} images")


def judge_colours(measured: list[dict]) -> None:
    """Mark whose channel means lie near the median of all: who does less work than the others has other pixels."""
    for entry in measured:
        typical = [statistics.median(other["mean"][channel] for other in measured) for channel in range(3)]
        off = max(abs(own - other) for own, other in zip(entry["mean"], typical, strict=True))
        entry["colours_agree"] = off <= COLOUR_TOLERANCE


def cpu_per_1000(result: dict) -> float:
    """Return the CPU seconds of a run per 1 000 images."""
    return 1000 * result["cpu_seconds"] / result["images"]
