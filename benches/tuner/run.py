"""Measures the tuner beside fixed settings: from its defaults, from bad starting points, and what it costs when idle.

Every figure comes from `foreload bench --json` on the same images. In each situation a small grid of fixed settings
(threads x reads in flight) says what the best would be; the tuner begins from the defaults and from bad starting points
(`FORELOAD_TUNER_START`), and the same defaults run without it. Ways alternate within a round; figures are medians of
rounds, of the seconds after the tuner had time to settle.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import report
from environments import ROOT, Unavailable, last_lines
from situations import OBJECT_STORE_DELAY, Situation, every

NEAR_THE_BEST = 0.95
NEVER_WORSE = 0.95
IDLE_COST = 1.05
BAD_STARTS = {
    "from little": "threads=1,queue_depth=1,prefetch=1",
    "from much reading": "threads=1,queue_depth=256",
    "from little reading": "queue_depth=2",
}
DEFAULTS = "defaults, not tuned"
TUNED = "tuned from defaults"


@dataclass(frozen=True)
class Way:
    """A way to run: flags, and the values that the tuner begins with."""

    flags: tuple[str, ...] = ()
    start: str = ""


def ways(chosen: argparse.Namespace) -> dict[str, Way]:
    """Return what is compared, by name."""
    grid = {
        f"{threads} threads, {depth} reads": Way(
            ("--tune=false", "--threads", str(threads), "--queue-depth", str(depth))
        )
        for threads, depth in itertools.product(chosen.threads, chosen.depths)
    }
    bad = {name: Way(start=start) for name, start in BAD_STARTS.items()}
    return grid | {DEFAULTS: Way(("--tune=false",)), TUNED: Way()} | bad


class Bench:
    """The program and its data."""

    def __init__(self, chosen: argparse.Namespace, scratch: Path) -> None:
        """Remember what was chosen."""
        self.chosen = chosen
        self.scratch = scratch

    def start(
        self, situation: Situation, way: Way, data: str, rank: int, epochs: int, more: list[str]
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
        started = [
            self.start(situation, way, data, rank, epochs, list(more)) for rank in range(situation.ranks)
        ]
        reports = []
        for process in started:
            out, err = process.communicate()
            if process.returncode != 0:
                raise Unavailable(f"exit code {process.returncode}: {last_lines(err or out)}")
            reports.append(json.loads(out[out.index("{") :]))
        return reports


def settled(reports: list[dict], settle: float) -> dict:
    """Return rate and CPU of the epochs that began after the tuner had time to settle, of all ranks together."""
    rate, cpu, images, changes = 0.0, 0.0, 0, 0
    for one in reports:
        passed, late = 0.0, []
        for epoch in one["epochs"]:
            if passed >= settle:
                late.append(epoch)
            passed += epoch["seconds"]
        late = late or one["epochs"][-1:]
        rate += sum(epoch["images"] for epoch in late) / sum(epoch["seconds"] for epoch in late)
        cpu += sum(epoch["cpu_seconds"] for epoch in late)
        images += sum(epoch["images"] for epoch in late)
        changes += one["tuner"]["changes"]
    last = reports[0]["tuner"]
    values = {name: last[name] for name in ("threads", "queue_depth", "prefetch")}
    return {"images_per_s": rate, "cpu_per_1000": 1000 * cpu / images, "changes": changes, "values": values}


@contextmanager
def hog(on: bool) -> Iterator[None]:
    """Keep one processor busy with something else."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if on else None
    try:
        yield
    finally:
        if process:
            process.kill()
            process.wait()


@contextmanager
def served(chosen: argparse.Namespace, on: bool) -> Iterator[str]:
    """Serve the data as slowly as an object store, where that is asked for; yields where it lies."""
    if not on:
        yield str(chosen.data)
        return
    delay = f"stall:1:{OBJECT_STORE_DELAY}"
    command = [str(chosen.range_server), str(chosen.data), "--fault", delay]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield server.stdout.readline().strip()
    finally:
        server.stdin.close()
        server.wait()


def measure(bench: Bench, situation: Situation) -> dict:
    """Run all ways of a situation in alternating rounds."""
    chosen = bench.chosen
    found: dict[str, list[dict]] = {name: [] for name in ways(chosen)}
    with served(chosen, situation.server) as data, hog(situation.hog):
        first = bench.run(situation, Way(("--tune=false",)), data, 2)
        epoch = max(one["epochs"][-1]["seconds"] for one in first)
        for number in range(chosen.rounds):
            for name, way in ways(chosen).items():
                is_tuned = "--tune=false" not in way.flags
                settle = chosen.settle if is_tuned else 0.0
                epochs = max(2, round((settle + chosen.seconds) / epoch) + 1)
                # From a bad start epochs are longer at first.
                result = settled(bench.run(situation, way, data, epochs), settle)
                found[name].append(result)
                report.log(
                    f"{situation.name} {number} {name}: {result['images_per_s']:.0f} {result['values']}"
                )
    return summary(found)


def summary(found: dict[str, list[dict]]) -> dict:
    """Return the medians of all ways, and what they say."""
    medians = {
        name: statistics.median(one["images_per_s"] for one in rounds) for name, rounds in found.items()
    }
    grid = [name for name in found if name.endswith("reads")]
    best = max(grid, key=medians.__getitem__)
    tuned = [TUNED, *BAD_STARTS]
    # Neighbours in time are compared, because the machine is not the same all the time.
    beside = [
        ours["images_per_s"] / theirs["images_per_s"]
        for ours, theirs in zip(found[TUNED], found[DEFAULTS], strict=True)
    ]
    return {
        "images_per_s": medians,
        "best": best,
        "of_best": {name: medians[name] / medians[best] for name in tuned},
        "of_defaults": statistics.median(beside),
        "values": {name: found[name][-1]["values"] for name in tuned},
        "changes": {name: [one["changes"] for one in found[name]] for name in tuned},
    }


def idle(bench: Bench) -> dict:
    """CPU time per image where the consumer is slower than the loader: tuned, and by the best of fixed settings."""
    chosen = bench.chosen
    situation = Situation("idle", ())
    steps = ("--consume", f"{chosen.consume_ms}ms")
    asked = {name: way for name, way in ways(chosen).items() if name not in BAD_STARTS}
    found: dict[str, list[float]] = {name: [] for name in asked}
    first = bench.run(situation, Way(("--tune=false",)), str(chosen.data), 2, *steps)
    epoch = first[0]["epochs"][-1]["seconds"]
    for _ in range(chosen.rounds):
        for name, way in asked.items():
            settle = chosen.settle if name == TUNED else 0.0
            epochs = max(2, round((settle + chosen.seconds) / epoch) + 1)
            result = settled(bench.run(situation, way, str(chosen.data), epochs, *steps), settle)
            found[name].append(result["cpu_per_1000"])
            report.log(f"idle {name}: {result['cpu_per_1000']:.3f} s of CPU per 1000, {result['values']}")
    medians = {name: statistics.median(values) for name, values in found.items()}
    least = min((name for name in medians if name.endswith("reads")), key=medians.__getitem__)
    ratios = [ours / theirs for ours, theirs in zip(found[TUNED], found[least], strict=True)]
    return {"cpu_per_1000": medians, "least": least, "of_least": statistics.median(ratios)}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--situations", nargs="*", choices=list(every()), default=list(every()))
    parser.add_argument("--no-idle", action="store_true", help="leave out the cost of being idle")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--settle", type=float, default=15.0, help="seconds that the tuner has before it is measured"
    )
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="that are measured of each way in each round"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--depths", type=int, nargs="+", default=[4, 32, 128])
    parser.add_argument(
        "--consume-ms", type=float, default=60.0, help="for a consumer that is slower than loading"
    )
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "folder")
    parser.add_argument("--foreload", type=Path, default=ROOT / ".venv" / "bin" / "foreload")
    parser.add_argument("--range-server", type=Path, default=ROOT / "target" / "release" / "range-server")
    parser.add_argument("--output", type=Path, help="keep the result in OUTPUT.json and OUTPUT.md too")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    return parser.parse_args()


def as_text(result: dict) -> str:
    """Return the report in Markdown."""
    lines = ["# Tuner", "", report.machine_line(result["machine"]), ""]
    tuned = [TUNED, *BAD_STARTS]
    rows = []
    for name, one in result["situations"].items():
        if "failure" in one:
            rows.append([name, f"not measured: {one['failure']}", *[""] * (len(tuned) + 2)])
            continue
        best = f"{one['images_per_s'][one['best']]:.0f} ({one['best']})"
        rows.append(
            [
                name,
                best,
                *(f"{one['of_best'][way]:.2f}" for way in tuned),
                f"{one['of_defaults']:.2f}",
                " ".join(str(max(one["changes"][way])) for way in tuned),
            ]
        )
    head = [
        "situation",
        "best of the grid, images/s",
        *(f"{way}, of it" for way in tuned),
        "tuned, of defaults",
        "changes",
    ]
    lines += [report.table(head, rows), ""]
    if waiting := result.get("idle"):
        if "failure" in waiting:
            lines.append(f"Idle cost: not measured: {waiting['failure']}")
        else:
            least = waiting["cpu_per_1000"][waiting["least"]]
            lines.append(
                f"Idle cost: {waiting['cpu_per_1000'][TUNED]:.3f} s of CPU per 1000 images tuned, {least:.3f} with "
                f"{waiting['least']}, {waiting['cpu_per_1000'][DEFAULTS]:.3f} by defaults that are not tuned; "
                f"tuned {waiting['of_least']:.3f} of the least, wanted at most {IDLE_COST}."
            )
    lines.append(f"Wanted: {NEAR_THE_BEST} of the best, from anywhere; {NEVER_WORSE} of the defaults.")
    return "\n".join(lines)


def attempt(measured: object) -> dict:
    """Return what a part gives, or why it gives nothing."""
    try:
        return measured()
    except (Unavailable, KeyError, ValueError, OSError) as reason:
        report.log(f"failed: {reason!r}")
        return {"failure": f"{type(reason).__name__}: {reason}".replace(f"{ROOT}/", "")}


def main() -> int:
    """Measure and report."""
    chosen = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="foreload-tuner-") as scratch:
        bench = Bench(chosen, Path(scratch))
        known = every()
        result = {
            "benchmark": "tuner",
            "machine": report.machine(),
            "situations": {
                name: attempt(lambda name=name: measure(bench, known[name])) for name in chosen.situations
            },
        }
        if not chosen.no_idle:
            result["idle"] = attempt(lambda: idle(bench))
    report.deliver(result, as_text(result), chosen.json, chosen.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
