"""Times several trainings on one machine that share their batches, beside one alone and beside the usual ways.

Each contestant is a number of consumers that take batches as fast as they come for some seconds, and perhaps a process
that makes the batches. Counted are the images that all consumers got in that time, and the CPU time of all processes.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import accounting
import contest
import environments
import report
from environments import Unavailable

HERE = Path(__file__).resolve().parent
PEERS = contest.HERE / "peers"
CPU_TARGET = 1.15
"""The most CPU of a delivered image with n consumers, in an n-th of what one alone takes."""
SPEED_TARGET = 0.9
"""The least images a second of all n consumers together, in n times what one alone gets."""
RECIPES_TARGET = 1.6
"""The most CPU of a sample by two recipes on one read, in the mean of what each takes alone."""
STOPPED_TARGET = 0.95
"""The least that the others get while one is stopped, in what they get without it."""


OTHER_RECIPES = ("smaller", "other", "augmented")
"""What stands beside the usual recipe; `consumer.py` has what each is."""


@dataclass(frozen=True)
class Entrant:
    """One line of the table."""

    title: str
    loader: str
    consumers: int
    stopped: bool = False
    environment: str | None = None
    recipes: tuple[str, ...] = ("usual",)
    """The recipes that consumers have by turns."""


def entrants() -> dict[str, Entrant]:
    """Return all contestants by name."""
    all_of = {"alone": Entrant("**Foreload**, one loader", "alone", 1)}
    for count in (1, 2, 4, 8):
        all_of[f"shared-{count}"] = Entrant(f"**Foreload**, shared by {count}", "shared", count)
    for other in OTHER_RECIPES:
        all_of[f"alone-{other}"] = Entrant(f"**Foreload**, one loader, {other}", "alone", 1, recipes=(other,))
        title = f"**Foreload**, usual and {other} on one read"
        all_of[f"both-{other}"] = Entrant(title, "shared", 2, recipes=("usual", other))
    all_of["stopped"] = Entrant("**Foreload**, shared by 3, one stopped", "shared", 3, stopped=True)
    for count in (1, 2, 4, 8):
        title = f"DataLoader, {count} separate"
        all_of[f"torchvision-{count}"] = Entrant(title, "torchvision", count, environment="torch")
    for count in (2, 4, 8):
        title = f"TensorSocket, {count}"
        all_of[f"tensorsocket-{count}"] = Entrant(title, "tensorsocket", count, environment="tensorsocket")
    return all_of


def measured(entrant: Entrant, python: Path, chosen: argparse.Namespace) -> dict:
    """Run a contestant once; return images, seconds and CPU seconds of those that were not stopped."""
    with tempfile.TemporaryDirectory() as folder:
        scene = Path(folder)
        path = os.pathsep.join(str(place) for place in (contest.HERE, PEERS))
        variables = os.environ | {"PYTHONPATH": path, "FORELOAD_RUNTIME_DIR": folder}
        processes: list[subprocess.Popen] = []
        complaints = (scene / "complaints").open("w+")

        def start(*words: object) -> subprocess.Popen:
            process = subprocess.Popen(
                list(map(str, words)), env=variables, stdout=subprocess.DEVNULL, stderr=complaints
            )
            processes.append(process)
            return process

        try:
            size = ["--batch-size", chosen.batch_size]
            if entrant.loader == "shared":
                start(python, "-m", "foreload", "serve", chosen.data, *size, "--shared=benchmark")
            elif entrant.loader == "tensorsocket":
                start(
                    python, HERE / "tensorsocket_producer.py", chosen.data, chosen.threads, chosen.batch_size
                )
            makers = len(processes)
            if makers:
                time.sleep(chosen.head_start)
            counters = []
            for number in range(entrant.consumers):
                counter = scene / f"counter-{number}"
                counter.write_bytes(bytes(8))
                counters.append(counter)
                touch = ["--touch"] if chosen.touch else []
                touch += ["--recipe", entrant.recipes[number % len(entrant.recipes)]]
                words = [
                    HERE / "consumer.py",
                    entrant.loader,
                    chosen.data,
                    counter,
                    "--threads",
                    chosen.threads,
                ]
                start(python, *words, *size, *touch)

            def counts() -> list[int]:
                ended = [process for process in processes if process.poll() is not None]
                if ended:
                    complaints.seek(0)
                    raise Unavailable(environments.last_lines(complaints.read()))
                return [struct.unpack("<Q", counter.read_bytes())[0] for counter in counters]

            deadline = time.monotonic() + chosen.patience
            while min(counts()) < chosen.batch_size * chosen.warmup:
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"not all got {chosen.warmup} batches in {chosen.patience} s: {counts()}"
                    )
                time.sleep(0.05)
            if entrant.stopped:
                processes[makers].send_signal(signal.SIGSTOP)
            # A loader may have made batches ahead while the last consumer started.
            time.sleep(chosen.settle)
            counted = slice(1 if entrant.stopped else 0, None)
            before, cpu, begun = counts()[counted], cpu_seconds(processes), time.monotonic()
            time.sleep(chosen.seconds)
            after, more, ended = counts()[counted], cpu_seconds(processes), time.monotonic()
            images = [last - first for first, last in zip(before, after, strict=True)]
            return {
                "images": sum(images),
                "each": images,
                "seconds": ended - begun,
                "cpu_seconds": more - cpu,
            }
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
    """Return the CPU seconds of all processes and of those below them."""
    pids = {pid for process in processes for pid in [process.pid, *accounting.descendants(process.pid)]}
    return sum(accounting.process_cpu_seconds(pid) for pid in pids)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = contest.folder_parser(__doc__)
    usual = [name for name, entrant in entrants().items() if entrant.loader != "tensorsocket"]
    parser.add_argument(
        "--entrants",
        nargs="+",
        choices=entrants(),
        default=usual,
        help="default: all but TensorSocket, whose producer takes gigabytes for a message in host memory",
    )
    parser.add_argument("--seconds", type=float, default=6, help="how long each is measured in a round")
    parser.add_argument("--settle", type=float, default=1, help="seconds before that")
    parser.add_argument("--head-start", type=float, default=1, help="seconds that makers of batches have")
    parser.add_argument("--patience", type=float, default=120, help="seconds that the warm-up may take")
    parser.add_argument(
        "--touch", action="store_true", help="consumers read a number of each page of their images"
    )
    contest.add_options(parser, rounds=7)
    return parser.parse_args()


def summarise(runs: dict[str, list[dict]], failures: dict[str, str]) -> dict:
    """Return medians of all contestants, and the ratios that were asked for."""
    lines: dict[str, dict] = {}
    for name, entrant in entrants().items():
        if name in failures:
            lines[name] = {"title": entrant.title, "failure": failures[name]}
        elif runs.get(name):
            rates = [run["images"] / run["seconds"] for run in runs[name]]
            cpu = [contest.cpu_per_1000(run) for run in runs[name]]
            consumers = entrant.consumers - entrant.stopped
            lines[name] = {
                "title": entrant.title,
                "consumers": consumers,
                "images_per_s": report.spread(rates),
                "cpu_seconds_per_1000": report.spread(cpu),
            }

    def ratio(name: str, key: str, base: str, of: dict[str, list[dict]] = runs) -> float | None:
        if not of.get(name) or not of.get(base):
            return None
        value = {
            "rate": lambda run: run["images"] / run["seconds"],
            "cpu": contest.cpu_per_1000,
        }[key]
        return statistics.median(
            value(one) / value(other) for one, other in zip(of[name], of[base], strict=False)
        )

    ratios = []
    for name, line in lines.items():
        entrant = entrants()[name]
        if entrant.loader != "shared" or "failure" in line or entrant.stopped or len(entrant.recipes) > 1:
            continue
        cpu, rate = ratio(name, "cpu", "alone"), ratio(name, "rate", "alone")
        if cpu is None or rate is None:
            continue
        count = line["consumers"]
        ratios.append(
            {
                "consumers": count,
                "cpu_of_an_nth": cpu * count,
                "cpu_met": cpu * count <= CPU_TARGET,
                "rate_of_n_times": rate / count,
                "rate_met": rate / count >= SPEED_TARGET,
            }
        )
    stopped = ratio("stopped", "rate", "shared-2")
    summary = {"entrants": lines, "ratios": ratios, "recipes": []}
    for other in OTHER_RECIPES:
        three = [runs.get(name) for name in (f"both-{other}", "alone", f"alone-{other}")]
        if all(three):
            # What both get is counted twice, once for each.
            costs = [
                2 * contest.cpu_per_1000(both) / statistics.mean(map(contest.cpu_per_1000, alone))
                for both, *alone in zip(*three, strict=False)
            ]
            cost = statistics.median(costs)
            summary["recipes"].append({"recipe": other, "cpu": cost, "met": cost <= RECIPES_TARGET})
    if stopped is not None:
        summary["stopped"] = {"rate_of_the_others": stopped, "met": stopped >= STOPPED_TARGET}
    return summary


def text_of(result: dict, chosen: argparse.Namespace) -> str:
    """Return the report as Markdown."""
    rows = []
    for line in result["entrants"].values():
        if "failure" in line:
            rows.append([line["title"], "not measured: " + line["failure"], "", ""])
        else:
            rows.append(
                [
                    line["title"],
                    report.show(line["images_per_s"], 0),
                    f"{line['images_per_s']['median'] / line['consumers']:.0f}",
                    report.show(line["cpu_seconds_per_1000"], 3),
                ]
            )
    head = ["loader", "images/s, all together", "each", "CPU s per 1 000 delivered"]
    parts = ["# Sharing", report.machine_line(result["machine"]), report.table(head, rows)]
    told = "read a number of each page" if chosen.touch else "look at the labels"
    parts.append(
        f"RandomResizedCrop 224, flip, normalise, float32, batches of {chosen.batch_size}; consumers {told}. "
        f"Medians of {chosen.rounds} alternating rounds of {chosen.seconds:g} s."
    )
    rows = [
        [
            str(line["consumers"]),
            f"{line['cpu_of_an_nth']:.2f}",
            "yes" if line["cpu_met"] else "no",
            f"{line['rate_of_n_times']:.2f}",
            "yes" if line["rate_met"] else "no",
        ]
        for line in result["ratios"]
    ]
    if rows:
        head = [
            "consumers",
            "CPU of an image, in an n-th of one alone",
            f"at most {CPU_TARGET}",
            "images/s, in n times one alone",
            f"at least {SPEED_TARGET}",
        ]
        parts.append(report.table(head, rows))
    for line in result["recipes"]:
        verdict = "met" if line["met"] else "missed"
        parts.append(
            f"Two recipes on one read, usual and {line['recipe']}: {line['cpu']:.2f} times the CPU of one (the mean of "
            f"what each takes alone), at most {RECIPES_TARGET} ({verdict})."
        )
    if "stopped" in result:
        verdict = "met" if result["stopped"]["met"] else "missed"
        share = result["stopped"]["rate_of_the_others"]
        parts.append(
            f"While a third is stopped, two others get {share:.3f} of what they get alone ({verdict})."
        )
    return "\n\n".join(parts) + "\n"


def main() -> int:
    """Measure, and report."""
    chosen = parse_arguments()
    contest.use_cores(chosen.threads)
    runs: dict[str, list[dict]] = {name: [] for name in chosen.entrants}
    failures: dict[str, str] = {}
    for number in range(1, chosen.rounds + 1):
        for name in chosen.entrants:
            if name in failures:
                continue
            entrant = entrants()[name]
            try:
                run = measured(entrant, contest.interpreter(entrant.environment, chosen), chosen)
            except Unavailable as reason:
                failures[name] = str(reason)
                report.log(f"{name}: {reason}")
                continue
            runs[name].append(run)
            rate, cpu = run["images"] / run["seconds"], contest.cpu_per_1000(run)
            report.log(f"round {number}: {name}: {rate:.0f} images/s {run['each']}, {cpu:.3f} CPU s per 1000")
    facts = {"machine": report.machine(), "commit": report.commit(), "rounds": chosen.rounds, "runs": runs}
    result = facts | summarise(runs, failures)
    report.deliver(result, text_of(result, chosen), chosen.json, chosen.output)
    missed = any(
        not (line["cpu_met"] and line["rate_met"]) for line in result["ratios"] if line["consumers"] > 1
    )
    missed |= any(not line["met"] for line in result["recipes"])
    missed |= "stopped" in result and not result["stopped"]["met"]
    return 1 if chosen.require_targets and missed else 0


if __name__ == "__main__":
    sys.exit(main())
