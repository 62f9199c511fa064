"""Times several trainings on one machine that share their batches, one training alone, and the usual alternatives.

Each contestant is a number of consumers that take batches as fast as they come for some seconds, and perhaps a process
that makes the batches. The benchmark counts the images of all consumers in that time, and the CPU time of all
processes.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import accounting, options, programs, report, rounds
from harness.aims import at_least, at_most
from harness.environments import Unavailable, last_lines
from harness.rounds import COMPARED, Standing, cpu_per_1000

HERE = Path(__file__).resolve().parent
CPU = at_most(1.15)
"""CPU time per delivered image with n consumers, as a multiple of an n-th of that of a single consumer."""
SPEED = at_least(0.9)
"""Images per second of all n consumers together, as a share of n times those of a single consumer."""
STOPPED = at_least(0.95)
"""Images per second of the other consumers while one is stopped, as a share of those without it."""


@dataclass(frozen=True)
class Contestant:
    """One line of the table."""

    title: str
    loader: str
    consumers: int
    stopped: bool = False
    environment: str | None = None


def contestants() -> dict[str, Contestant]:
    found = {"alone": Contestant("**Foreload**, one loader", "alone", 1)}
    for count in (1, 2, 4, 8):
        found[f"shared-{count}"] = Contestant(f"**Foreload**, shared by {count}", "shared", count)
    found["stopped"] = Contestant("**Foreload**, shared by 3, one stopped", "shared", 3, stopped=True)
    for loader, title, counts, environment in (
        ("torchvision", "DataLoader, {} separate", (1, 2, 4, 8), "torch"),
        ("tensorsocket", "TensorSocket, {}", (2, 4, 8), "tensorsocket"),
    ):
        for count in counts:
            one = Contestant(title.format(count), loader, count, environment=environment)
            found[f"{loader}-{count}"] = one
    return found


CONTESTANTS = contestants()


def measured(of: Contestant, chosen: argparse.Namespace) -> dict:
    """Run a contestant once; return images, seconds and CPU seconds of the consumers that were not stopped."""
    python = rounds.interpreter(of.environment, chosen)
    with tempfile.TemporaryDirectory() as folder:
        scene = Path(folder)
        variables = programs.python_path(COMPARED) | {"FORELOAD_RUNTIME_DIR": folder}
        processes: list[subprocess.Popen] = []
        complaints = (scene / "complaints").open("w+")

        def start(*words: object) -> None:
            pipes = {"stdout": subprocess.DEVNULL, "stderr": complaints}
            processes.append(subprocess.Popen([python, *map(str, words)], env=variables, **pipes))

        try:
            size = ["--batch-size", chosen.batch_size]
            if of.loader == "shared":
                start("-m", "foreload", "serve", chosen.data, *size, "--shared=benchmark")
            elif of.loader == "tensorsocket":
                start(HERE / "tensorsocket_producer.py", chosen.data, chosen.threads, chosen.batch_size)
            makers = len(processes)
            if makers:
                time.sleep(chosen.head_start)
            counters = [scene / f"counter-{number}" for number in range(of.consumers)]
            for counter in counters:
                counter.write_bytes(bytes(8))
                words = [HERE / "consumer.py", of.loader, chosen.data, counter, "--threads", chosen.threads]
                start(*words, *size, *(["--touch"] if chosen.touch else []))

            def counts() -> list[int]:
                if any(process.poll() is not None for process in processes):
                    complaints.seek(0)
                    raise Unavailable(last_lines(complaints.read()))
                return [struct.unpack("<Q", counter.read_bytes())[0] for counter in counters]

            deadline = time.monotonic() + chosen.patience
            while min(counts()) < chosen.batch_size * chosen.warmup:
                if time.monotonic() > deadline:
                    said = f"not all got {chosen.warmup} batches in {chosen.patience} s: {counts()}"
                    raise Unavailable(said)
                time.sleep(0.05)
            if of.stopped:
                processes[makers].send_signal(signal.SIGSTOP)
            # A loader may have made batches ahead while the last consumer was starting.
            time.sleep(chosen.settle)
            counted = slice(1 if of.stopped else 0, None)
            before, cpu, begun = counts()[counted], cpu_seconds(processes), time.monotonic()
            time.sleep(chosen.seconds)
            after, more, ended = counts()[counted], cpu_seconds(processes), time.monotonic()
            each = [last - first for first, last in zip(before, after, strict=True)]
            taken = {"seconds": ended - begun, "cpu_seconds": more - cpu}
            return {"images": sum(each), "each": each} | taken
        finally:
            for process in processes:
                for pid in [*accounting.descendants(process.pid), process.pid]:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue
            for process in processes:
                process.wait()


def cpu_seconds(processes: list[subprocess.Popen]) -> float:
    """Return the CPU seconds of all processes and their descendants."""
    pids = {pid for process in processes for pid in [process.pid, *accounting.descendants(process.pid)]}
    return sum(accounting.process_cpu_seconds(pid) for pid in pids)


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__)
    usual = [name for name, one in CONTESTANTS.items() if one.loader != "tensorsocket"]
    parser.add_argument(
        "--entrants",
        nargs="+",
        choices=CONTESTANTS,
        default=usual,
        help="default: all but TensorSocket, whose producer takes gigabytes for a message in host memory",
    )
    parser.add_argument("--seconds", type=float, default=6, help="how long each is measured in a round")
    parser.add_argument("--settle", type=float, default=1, help="seconds before that")
    parser.add_argument("--head-start", type=float, default=1, help="seconds that makers of batches have")
    parser.add_argument("--patience", type=float, default=120, help="seconds that the warm-up may take")
    parser.add_argument("--touch", action="store_true", help="consumers read a number of each page of images")
    options.add_loaders(parser, rounds=7)
    return parser.parse_args()


def rate(run: dict) -> float:
    return run["images"] / run["seconds"]


def summarise(standings: dict[str, Standing]) -> dict:
    """Return medians of all contestants, and the ratios with aims."""
    runs = {name: standing.runs for name, standing in standings.items() if not standing.failure}
    lines: dict[str, dict] = {}
    for name, one in CONTESTANTS.items():
        standing = standings.get(name, Standing())
        if standing.failure:
            lines[name] = {"title": one.title, "failure": standing.failure}
        elif standing.runs:
            lines[name] = {"title": one.title, "consumers": one.consumers - one.stopped, **standing.figures()}

    def ratio(name: str, of: str, value) -> float | None:
        """Return the median of ratios, which are computed round by round."""
        pairs = list(zip(runs.get(name, []), runs.get(of, []), strict=False))
        return statistics.median(value(one) / value(other) for one, other in pairs) if pairs else None

    ratios = []
    for name, line in lines.items():
        cpu, speed = ratio(name, "alone", cpu_per_1000), ratio(name, "alone", rate)
        if name.startswith("shared-") and cpu is not None:
            count = line["consumers"]
            nth, times = cpu * count, speed / count
            judged = {"cpu_of_an_nth": nth, "cpu_met": CPU.met(nth)}
            judged |= {"rate_of_n_times": times, "rate_met": SPEED.met(times)}
            ratios.append({"consumers": count} | judged)
    summary = {"entrants": lines, "ratios": ratios}
    stopped = ratio("stopped", "shared-2", rate)
    if stopped is not None:
        summary["stopped"] = {"rate_of_the_others": stopped, "met": STOPPED.met(stopped)}
    return summary


def as_text(result: dict) -> str:
    chosen = result["settings"]
    rows = []
    for line in result["entrants"].values():
        title, *figures = report.loader(line, cpu=3)
        if line.get("failure"):
            rows.append([title, *figures, ""])
        else:
            each = line["images_per_s"]["median"] / line["consumers"]
            rows.append([title, figures[0], f"{each:.0f}", figures[1]])
    head = ["loader", "images/s, all together", "each", "CPU s per 1 000 delivered"]
    parts = ["# Sharing", report.machine_line(result["machine"]), report.table(head, rows)]
    told = "read a number of each page" if chosen["touch"] else "look at the labels"
    parts.append(
        f"RandomResizedCrop 224, flip, normalise, float32, batches of {chosen['batch_size']}; consumers {told}. "
        f"Medians of {chosen['rounds']} alternating rounds of {chosen['seconds']:g} s."
    )
    yes = {True: "yes", False: "no"}
    rows = [
        [
            str(line["consumers"]),
            *(f"{line['cpu_of_an_nth']:.2f}", yes[line["cpu_met"]]),
            *(f"{line['rate_of_n_times']:.2f}", yes[line["rate_met"]]),
        ]
        for line in result["ratios"]
    ]
    if rows:
        head = ["consumers", "CPU of an image, in an n-th of one alone", f"at most {CPU.bound}"]
        head += ["images/s, in n times one alone", f"at least {SPEED.bound}"]
        parts.append(report.table(head, rows))
    verdict = {True: "met", False: "missed"}
    if stopped := result.get("stopped"):
        parts.append(
            f"While a third is stopped, two others get {stopped['rate_of_the_others']:.3f} of what they get alone "
            f"({verdict[stopped['met']]})."
        )
    return "\n\n".join(parts) + "\n"


def main() -> int:
    chosen = parse_arguments()
    rounds.use_cores(chosen.threads)
    standings = {name: Standing() for name in chosen.entrants}

    def turn(name: str, number: int) -> None:
        run = measured(CONTESTANTS[name], chosen)
        standings[name].runs.append(run)
        report.log(f"round {number}: {name}: {rounds.told(run)} {run['each']}")

    rounds.alternate(standings, turn, chosen.rounds)
    result = {
        "machine": report.machine(),
        "settings": options.settings(chosen, "rounds seconds batch_size threads touch"),
        "runs": {name: standing.runs for name, standing in standings.items()},
        **summarise(standings),
    }
    report.deliver(result, as_text(result), chosen)
    missed = any(
        not (line["cpu_met"] and line["rate_met"]) for line in result["ratios"] if line["consumers"] > 1
    )
    missed |= "stopped" in result and not result["stopped"]["met"]
    return options.exit_code(chosen, False, missed)


if __name__ == "__main__":
    sys.exit(main())
