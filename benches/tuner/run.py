"""Measures the tuner beside fixed settings: from its defaults, from bad starting points, and what it costs when idle.

In each situation a grid of fixed settings (threads x reads in flight) says what the best would be; the tuner begins
from the defaults and from bad starting points (`FORELOAD_TUNER_START`), and the same defaults run without it. All of
them are processes of `foreload bench --turns` that take turns, an epoch of a second each: the machine is faster in some
seconds than in others, and some processes are than others, so that only neighbours are compared, in several sets of
processes. Figures are medians of these ratios, after the tuner had time to settle. What follows a change of costs comes
from `changing.py`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import report
from changing import CHANGES
from environments import ROOT, Unavailable, last_lines
from program import NOT_TUNED, Bench, Way, fixed, ready, take_turns
from situations import Situation, every

HERE = Path(__file__).resolve().parent
NEAR_THE_BEST = 0.95
NEVER_WORSE = 0.95
IDLE_COST = 1.05
SECONDS_TO_FOLLOW = 10.0
MOST_CHANGES = 3
BAD_STARTS = {
    "from little": "threads=1,queue_depth=1,prefetch=1",
    "from much reading": "threads=1,queue_depth=256",
    "from little reading": "queue_depth=2",
}
DEFAULTS = "defaults, not tuned"
TUNED = "tuned from defaults"
GLANCES = 4
"""The rounds of the grid, which choose its best."""
ROUNDS_OF_A_CHANGE = 5
"""How often the tuner and the best of the grid take turns after a change of costs."""
MEASURED = ("src", "Cargo.toml", "Cargo.lock", "benches/tuner")
"""Figures of another commit are those of this one where all of these are the same."""
RESTING_IN = "pfs-light"
"""The situation in which the tuner is watched for long: there the tuner has most to do."""


class Compared:
    """Ways that took turns: the best of the grid, what each epoch took, and what the tuner came to."""

    def __init__(self, bench: Bench, ways: dict[str, Way], cost: Callable[[dict], float]) -> None:
        """Find the fixed settings that cost least, and have these and `ways` take turns."""
        chosen = bench.chosen
        of_grid = {name: fixed(*values) for name, values in grid(chosen).items()}
        self.glances: dict[str, list[dict]] = {name: [] for name in of_grid}
        with bench.started(of_grid) as runs:
            for turn in range(GLANCES):
                take_turns(runs, self.glances, turn)
        self.best = min(of_grid, key=lambda name: statistics.median(map(cost, self.glances[name])))
        # The best runs anew beside the others, because luck chose it, too.
        ways = ways | {self.best: of_grid[self.best]}
        self.taken: dict[str, list[dict]] = {name: [] for name in ways}
        self.ends: dict[str, list[dict]] = {name: [] for name in ways}
        for number in range(chosen.sets):
            with bench.started(ways) as runs:
                for name, run in runs.items():
                    # Fixed settings have nothing to settle.
                    seconds = 0.0 if ways[name].is_tuned else chosen.settle
                    while seconds < chosen.settle:
                        seconds += run.epoch()["seconds"]
                for turn in range(chosen.rounds):
                    take_turns(runs, self.taken, number + turn)
                for name, run in runs.items():
                    self.ends[name].append(run.end())
            for name in ways:
                costs = [f"{abs(cost(one)):.4g}" for one in self.taken[name][-chosen.rounds :]]
                last = self.ends[name][-1]
                report.log(f"{bench.situation.name} {name}: {' '.join(costs)} {last['values']}")

    def of(self, name: str, other: str, figure: str) -> list[float]:
        """Return a figure of one in that of another, round by round."""
        pairs = zip(self.taken[name], self.taken[other], strict=True)
        return [one[figure] / two[figure] for one, two in pairs]

    def medians(self, figure: str) -> dict[str, float]:
        """Return a figure of each way."""
        of_all = self.glances | self.taken
        return {name: statistics.median(one[figure] for one in taken) for name, taken in of_all.items()}


def grid(chosen: argparse.Namespace) -> dict[str, tuple[int, int]]:
    """Return the fixed settings by name: threads, and reads in flight."""
    return {
        f"{threads} threads, {depth} reads": (threads, depth)
        for threads, depth in itertools.product(chosen.threads, chosen.depths)
    }


def measure(chosen: argparse.Namespace, scratch: Path, situation: Situation) -> dict:
    """Compare the tuner, from everywhere, with the best of the grid, and with the defaults without it."""
    tuned = {TUNED: Way()} | {name: Way(start=start) for name, start in BAD_STARTS.items()}
    with ready(chosen, scratch, situation) as bench:
        compared = Compared(bench, tuned | {DEFAULTS: NOT_TUNED}, lambda one: -one["images_per_s"])
    of_best = {name: compared.of(name, compared.best, "images_per_s") for name in tuned}
    of_defaults = compared.of(TUNED, DEFAULTS, "images_per_s")
    return {
        "images_per_s": compared.medians("images_per_s"),
        "best": compared.best,
        "of_best": {name: statistics.median(ratios) for name, ratios in of_best.items()},
        "of_defaults": statistics.median(of_defaults),
        "ratios": {"of_best": of_best, "of_defaults": of_defaults},
        "values": {name: [end["values"] for end in compared.ends[name]] for name in tuned},
        "changes": {name: [end["changes"] for end in compared.ends[name]] for name in tuned},
    }


def idle(chosen: argparse.Namespace, scratch: Path) -> dict:
    """CPU time per image where the consumer is slower than the loader: tuned, and by the best of fixed settings."""
    situation = Situation("idle", ("--consume", f"{chosen.consume_ms}ms"))
    with ready(chosen, scratch, situation) as bench:
        compared = Compared(bench, {TUNED: Way(), DEFAULTS: NOT_TUNED}, lambda one: one["cpu_per_1000"])
    ratios = compared.of(TUNED, compared.best, "cpu_per_1000")
    return {
        "cpu_per_1000": compared.medians("cpu_per_1000"),
        "least": compared.best,
        "of_least": statistics.median(ratios),
        "ratios": ratios,
        "values": [end["values"] for end in compared.ends[TUNED]],
    }


def follow(chosen: argparse.Namespace, change: str) -> dict:
    """How near to the best the tuner is some seconds after a cost has changed by three."""
    command = [sys.executable, str(HERE / "changing.py"), change, "--data", str(chosen.data)]
    command += ["--range-server", str(chosen.range_server), "--grid", json.dumps(grid(chosen))]
    command += ["--before", str(chosen.settle), "--after", str(SECONDS_TO_FOLLOW)]
    command += ["--glances", str(GLANCES), "--rounds", str(ROUNDS_OF_A_CHANGE)]
    sets = []
    for _ in range(chosen.repeats):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"exit code {done.returncode}: {last_lines(done.stderr or done.stdout)}")
        sets.append(json.loads(done.stdout))
        report.log(f"{change}: {sets[-1]}")
    return {"share": statistics.median(ratio for one in sets for ratio in one["ratios"]), "sets": sets}


def rest(chosen: argparse.Namespace, scratch: Path) -> dict:
    """How often the tuner changes something in half an hour, once it had time to settle."""
    bench = Bench(chosen, scratch, every()[RESTING_IN], str(chosen.data))
    passed = 0.0
    with bench.start(Way()) as run:
        while passed < chosen.settle + 60.0 * chosen.rest_minutes:
            passed += run.epoch()["seconds"]
        end = run.end()
    later = [one for one in end["decisions"] if one["seconds"] > chosen.settle]
    early = len(end["decisions"]) - len(later)
    minutes = (passed - chosen.settle) / 60.0
    return {"minutes": minutes, "changes": end["changes"] - early, "decisions": later}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--situations", nargs="*", choices=list(every()), default=list(every()))
    parser.add_argument("--no-idle", action="store_true", help="leave out the cost of being idle")
    parser.add_argument("--no-changes", action="store_true", help="leave out what follows a change of costs")
    parser.add_argument("--sets", type=int, default=6, help="of processes")
    parser.add_argument("--rounds", type=int, default=2, help="in which each process of a set has its turn")
    parser.add_argument("--repeats", type=int, default=3, help="of each change of costs")
    parser.add_argument(
        "--rest-minutes", type=float, default=30.0, help="for which changes are counted; 0: they are not"
    )
    parser.add_argument(
        "--settle", type=float, default=6.0, help="seconds that the tuner has before it is measured"
    )
    parser.add_argument("--seconds", type=float, default=1.2, help="that an epoch takes, about")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--depths", type=int, nargs="+", default=[16, 64, 256])
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
    for name in filter(result["situations"].__contains__, every()):
        one = result["situations"][name]
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
    of = result["measured_as"]
    wanted = (
        f"Wanted: {NEAR_THE_BEST} of the best, from anywhere; {NEVER_WORSE} of the defaults. Medians of "
        f"{of['sets'] * of['rounds']} rounds, in {of['sets']} sets of processes that take turns of about "
        f"{of['seconds']} s, after {of['settle']:.0f} s each."
    )
    lines += [report.table(head, rows), "", wanted, ""] if rows else []
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
    lines += changed_as_text(result.get("changes", {}))
    if resting := result.get("rest"):
        lines.append("")
        if "failure" in resting:
            lines.append(f"Rest: not measured: {resting['failure']}")
        else:
            lines.append(
                f"Rest: {resting['changes']} changes in {resting['minutes']:.0f} minutes of {RESTING_IN}, "
                f"wanted at most {MOST_CHANGES}."
            )
    return "\n".join(lines)


def changed_as_text(changes: dict) -> list[str]:
    """Return the table of what follows a change of costs."""
    if not changes:
        return []
    rows = []
    for name, one in changes.items():
        if "failure" in one:
            rows.append([name, f"not measured: {one['failure']}", "", ""])
            continue
        latest = max(each["latest"] for each in one["sets"])
        made = " ".join(str(each["changes"]) for each in one["sets"])
        rows.append([name, f"{one['share']:.2f}", f"{latest:.1f}", made])
    head = [
        "what changes",
        f"of the best, {SECONDS_TO_FOLLOW:.0f} s later",
        "seconds until the tuner's latest change meanwhile",
        "changes meanwhile",
    ]
    return ["", report.table(head, rows), "", f"Wanted: {NEAR_THE_BEST} within {SECONDS_TO_FOLLOW:.0f} s."]


def attempt(measured: Callable[[], dict]) -> dict:
    """Return what a part gives, or why it gives nothing."""
    try:
        return measured()
    except (Unavailable, KeyError, ValueError, OSError) as reason:
        report.log(f"failed: {reason!r}")
        return {"failure": f"{type(reason).__name__}: {reason}".replace(f"{ROOT}/", "")}


def parts(chosen: argparse.Namespace, scratch: Path) -> Iterator[tuple[str, str | None, Callable[[], dict]]]:
    """Yield what is measured: the name of the part, that of the row in it if it has rows, and what measures it."""
    known = every()
    for name in chosen.situations:
        yield "situations", name, partial(measure, chosen, scratch, known[name])
    if not chosen.no_idle:
        yield "idle", None, partial(idle, chosen, scratch)
    for name in () if chosen.no_changes else CHANGES:
        yield "changes", name, partial(follow, chosen, name)
    if chosen.rest_minutes > 0:
        yield "rest", None, partial(rest, chosen, scratch)


def measured_before(chosen: argparse.Namespace, result: dict) -> dict:
    """Return what an interrupted run has measured of the same program on such a machine, or `result`, if there is none.

    What takes hours can go on another day.
    """
    path = chosen.output and chosen.output.with_suffix(".json")
    if not path or not path.exists():
        return result
    before = json.loads(path.read_text())
    machines = [{name: one["machine"][name] for name in ("processor", "cores")} for one in (before, result)]
    commit = before["machine"]["commit"]
    unchanged = ["git", "-C", str(ROOT), "diff", "--quiet", commit, "--", *MEASURED]
    is_same = machines[0] == machines[1] and before["measured_as"] == result["measured_as"]
    return before if is_same and subprocess.run(unchanged, check=False).returncode == 0 else result


def main() -> int:
    """Measure and report."""
    chosen = parse_arguments()
    measured_as = {name: getattr(chosen, name) for name in ("sets", "rounds", "repeats", "settle", "seconds")}
    result = {"benchmark": "tuner", "machine": report.machine(), "measured_as": measured_as, "situations": {}}
    with tempfile.TemporaryDirectory(prefix="foreload-tuner-") as scratch:
        result = measured_before(chosen, result)
        for part, row, measured in parts(chosen, Path(scratch)):
            known = result.get(part, {}) if row is None else result.get(part, {}).get(row, {})
            if known and "failure" not in known:
                report.log(f"{part} {row or ''}: measured before")
            elif row is None:
                result[part] = attempt(measured)
            else:
                result.setdefault(part, {})[row] = attempt(measured)
            if chosen.output:
                # It takes hours, and what is known stays known.
                report.keep(result, as_text(result), chosen.output)
    report.deliver(result, as_text(result), chosen.json, chosen.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
