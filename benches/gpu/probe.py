"""Queries nvJPEG and the driver directly to check Foreload's assumptions about them.

    python benches/gpu/probe.py --lines probe.jsonl --images images

Every answer is a line of JSON in the file, written at once. Each step has its own process: if a question ends that
process, or does not end, its line says so, and the next process asks the remaining questions. The most important
questions come first, cheap ones before expensive ones; deliberate damage comes late. Answers are measurements, not
tests: the exit code is 0 if every question has one, 1 if some did not end or had no time, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "gpu"))
import driver
from harness import report
from probing import library, machine, matrix, speed, verdicts
from probing.answers import unanswered
from probing.steps import Context, Step

SETTLE = 25.0
"""The time limit in seconds until a process's first question: imports, pictures, CUDA's start."""
LOST = 3
"""The exit code of a process whose device does not answer any more."""


def all_steps(short: bool) -> list[Step]:
    return [
        *machine.first_steps(short),
        *speed.first_steps(short),
        *matrix.first_steps(short),
        *machine.steps(short),
        *matrix.steps(short),
        *speed.steps(short),
        *machine.late_steps(short),
        *matrix.late_steps(short),
    ]


def child(step: Step, first: int, images: Path | None, short: bool) -> int:
    """Ask the questions of a step from `first` on; print a line before and after each."""

    def tell(line: dict) -> None:
        print(json.dumps(line), flush=True)

    faulthandler.enable()
    context = Context(images, short)
    with driver.context() if step.on_device else contextlib.nullcontext():
        for index, cell in enumerate(step.cells[first:], first):
            tell({"begin": index})
            faulthandler.dump_traceback_later(0.9 * step.limit)
            began = time.perf_counter()
            try:
                found = cell.answer(context)
            except AttributeError as error:
                if "undefined symbol" not in str(error):
                    raise
                found = {"error": f"no such symbol: {str(error).rpartition(' ')[2]}"}
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {error}"}
            found["took_s"] = time.perf_counter() - began
            lost = machine.said("cuCtxSynchronize") if step.on_device else "ok"
            if lost != "ok":
                found["device"] = lost
            faulthandler.cancel_dump_traceback_later()
            tell({"index": index, **cell.known, **found})
            if lost != "ok":
                os._exit(LOST)
    # The cost of freeing handles is measured where they are made; here a hang at exit would cost the next step's time.
    sys.stdout.flush()
    os._exit(0)


class Probe:
    """Runs the steps and keeps the lines."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen, self.began = chosen, time.monotonic()
        self.until = self.began + chosen.seconds
        self.lines: list[dict] = []
        chosen.lines.parent.mkdir(parents=True, exist_ok=True)
        self.file = report.Lines(chosen.lines)

    def write(self, line: dict) -> None:
        line["at_s"] = time.monotonic() - self.began
        self.lines.append(line)
        self.file.add(shortened(line))
        shown = {key: value for key, value in shortened(line).items() if key not in ("step", "cell", "at_s")}
        print(f"{line['step']}: {line['cell']}: {json.dumps(shown)[:400]}", flush=True)

    def left(self) -> float:
        """Return the seconds until the step must have ended."""
        return self.until - time.monotonic()

    def run(self, step: Step) -> None:
        first, began = 0, time.monotonic()
        while first < len(step.cells):
            self.until = min(self.began + self.chosen.seconds, began + step.most)
            if self.left() < 3:
                rest = f"{len(step.cells) - first} questions"
                self.write({"step": step.name, "cell": rest, "ended": "no time was left to ask"})
                return
            first = self.run_from(step, first)

    def run_from(self, step: Step, first: int) -> int:
        """Ask the questions from `first` on; return the next question after the process has ended."""
        command = [sys.executable, sys.argv[0], "--child", step.name, "--first", str(first)]
        command += ["--lines", os.devnull, *(["--short"] if self.chosen.short else [])]
        if self.chosen.images:
            command += ["--images", str(self.chosen.images)]
        with tempfile.TemporaryFile("w+", errors="replace") as said:
            # The process stays in the probe's group, so that ending the group leaves no process behind.
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said)
            try:
                under_way, following, ended = self.listen(process, step, first)
            finally:
                process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    # A process that hangs in a driver does not end even then; the others must not wait for it.
                    process.wait(5)
                process.stdout.close()
            if under_way is None and ended in ("exit 0", f"exit {LOST}") and following > first:
                return following
            if under_way is None and following == len(step.cells):
                return following
            said.seek(0)
            told = " | ".join(line.strip() for line in said.read().splitlines() if line.strip())[-600:]
            if under_way is None:
                # The process did not reach its first question, and other processes would not either.
                self.write({"step": step.name, "cell": "start", "ended": ended, "said": told})
                return len(step.cells)
            cell = step.cells[under_way]
            self.write({"step": step.name, "cell": cell.label, **cell.known, "ended": ended, "said": told})
            return under_way + 1

    def listen(self, process: subprocess.Popen, step: Step, first: int) -> tuple[int | None, int, str]:
        """Read lines until the process ends; return the open question, the next one, and how the process ended."""
        under_way, following, pending = None, first, b""
        until = time.monotonic() + SETTLE
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                wait = min(until - time.monotonic(), self.left())
                if wait <= 0 or not selector.select(wait):
                    if time.monotonic() < until and self.left() > 0:
                        continue
                    what = "no end within its time" if self.left() > 0 else "no time was left"
                    return under_way, following, what
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    return under_way, following, ending(process.wait(5))
                *whole, pending = (pending + data).split(b"\n")
                for line in map(json.loads, whole):
                    until = time.monotonic() + step.limit + 2
                    if "begin" in line:
                        under_way = line["begin"]
                    else:
                        following = line.pop("index") + 1
                        self.write({"step": step.name, "cell": step.cells[under_way].label, **line})
                        under_way = None

    def deliver(self) -> None:
        result = {"benchmark": "gpu-probe", "machine": report.machine(), "lines": self.lines}
        text = verdicts.as_text(self.lines)
        report.keep(result, text, self.chosen.output)


def ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"


def shortened(value: object) -> object:
    """Return numbers rounded to their significant digits."""
    if isinstance(value, dict):
        return {key: shortened(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [shortened(inner) for inner in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main() -> int:
    """Ask everything; return 1 if something has no answer, 2 without a GPU."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=Path, default=Path("probe.jsonl"), help="file for the answers")
    parser.add_argument("--images", type=Path, help="a folder of photographs; drawn ones without it")
    parser.add_argument("--seconds", type=float, default=150, help="time for all questions together")
    parser.add_argument("--short", action="store_true", help="small and few: try the probe itself")
    parser.add_argument(
        "--library", type=Path, help="this nvJPEG instead of the one that Foreload would find"
    )
    parser.add_argument("--only", nargs="+", help="steps whose names begin so")
    parser.add_argument(
        "--output", type=Path, help="keep the answers in OUTPUT.json, their meaning in OUTPUT.md"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.library:
        os.environ[library.CHOSEN] = str(chosen.library.resolve())
    steps = all_steps(chosen.short)
    if chosen.child:
        step = next(step for step in steps if step.name == chosen.child)
        return child(step, chosen.first, chosen.images, chosen.short)
    probe = Probe(chosen)
    for step in steps:
        if chosen.only and not step.name.startswith(tuple(chosen.only)):
            continue
        probe.run(step)
        if chosen.output:
            probe.deliver()
        if step.name == "device" and verdicts.without_gpu(probe.lines):
            report.log(f"no GPU to probe: {verdicts.without_gpu(probe.lines)}")
            return 2
    print(verdicts.as_text(probe.lines))
    return int(bool(unanswered(probe.lines)))


if __name__ == "__main__":
    sys.exit(main())
