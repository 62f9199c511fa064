"""Measures the tuner beside fixed settings: from its defaults, from bad starting points, and what it costs when idle.

In each situation a grid of settings (threads x reads in flight) says what the best would be; the tuner begins from the
defaults and from bad starting points (`FORELOAD_TUNER_START`). All of them are processes of `foreload bench --turns`,
in which epochs of a second take turns: some by the tuner, some with the best settings of the grid or the defaults held.
The machine is faster in some seconds than in others, and some processes are for all their time, by up to half where
memory limits, so that only neighbours in one process are compared. Figures are medians of these ratios, after the tuner
had time to settle. What follows a change of costs comes from `changing.py`.
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
from program import USUAL, Bench, Run, ready, take_turns
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
DEFAULTS = "defaults, held"
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
    """What epochs took, by the tuner and with settings that were held, and what the tuner came to."""

    def __init__(self, bench: Bench, starts: dict[str, str], cost: Callable[[dict], float]) -> None:
        """Find the settings of the grid that cost least; from each of `starts`, have the tuner and these take turns."""
        chosen = bench.chosen
        self.glances = glances(bench)
        self.best = min(self.glances, key=lambda name: statistics.median(map(cost, self.glances[name])))
        both = {"": "", self.best: held(grid(chosen)[self.best])}
        lines = {way: both | ({DEFAULTS: USUAL} if way == TUNED else {}) for way in starts}
        self.taken = {way: {name: [] for name in lines[way]} for way in starts}
        self.ends: dict[str, list[dict]] = {way: [] for way in starts}
        for number in range(chosen.sets):
            for way, start in starts.items():
                with bench.started(start) as run:
                    run_for(run, chosen.settle)
                    epochs = {name: partial(run.epoch, line) for name, line in lines[way].items()}
                    for turn in range(chosen.rounds):
                        take_turns(epochs, self.taken[way], number + turn)
                    self.ends[way].append(run.end())
                self._log(bench, way, cost)

    def _log(self, bench: Bench, way: str, cost: Callable[[dict], float]) -> None:
        latest = {name: taken[-bench.chosen.rounds :] for name, taken in self.taken[way].items()}
        costs = {name: " ".join(f"{abs(cost(one)):.4g}" for one in taken) for name, taken in latest.items()}
        report.log(f"{bench.situation.name} {way}: {costs} {self.ends[way][-1]['values']}")

    def of(self, other: str, figure: str) -> dict[str, list[float]]:
        """Return a figure of the tuner in that of what was held, round by round, from each start where it was held."""
        pairs = {
            way: zip(taken[""], taken[other], strict=True)
            for way, taken in self.taken.items()
            if other in taken
        }
        return {way: [one[figure] / two[figure] for one, two in of_way] for way, of_way in pairs.items()}

    def medians(self, figure: str) -> dict[str, float]:
        """Return a figure of each of the grid, of each start, and of what was held beside the tuner."""
        of_all = dict(self.glances)
        for name in (self.best, DEFAULTS):
            of_all[name] = [one for taken in self.taken.values() for one in taken.get(name, [])]
        of_all |= {way: taken[""] for way, taken in self.taken.items()}
        return {name: statistics.median(one[figure] for one in taken) for name, taken in of_all.items()}


def grid(chosen: argparse.Namespace) -> dict[str, tuple[int, int]]:
    """Return the settings by name: threads, and reads in flight."""
    return {
        f"{threads} threads, {depth} reads": (threads, depth)
        for threads, depth in itertools.product(chosen.threads, chosen.depths)
    }


def held(values: tuple[int, int]) -> str:
    """Return what holds an epoch at these settings."""
    return "threads={},queue_depth={}".format(*values)


def glances(bench: Bench) -> dict[str, list[dict]]:
    """Return what epochs of each of the grid take, which choose its best."""
    taken: dict[str, list[dict]] = {name: [] for name in grid(bench.chosen)}
    with bench.started() as run:
        epochs = {name: partial(run.epoch, held(values)) for name, values in grid(bench.chosen).items()}
        for turn in range(GLANCES):
            take_turns(epochs, taken, turn)
    return taken


def run_for(run: Run, seconds: float) -> float:
    """Run epochs by the tuner until they have taken so long; return how long they took."""
    passed = 0.0
    while passed < seconds:
        passed += run.epoch()["seconds"]
    return passed


def measure(chosen: argparse.Namespace, scratch: Path, situation: Situation) -> dict:
    """Compare the tuner, from everywhere, with the best of the grid, and from the defaults with these."""
    with ready(chosen, scratch, situation) as bench:
        compared = Compared(bench, {TUNED: ""} | BAD_STARTS, lambda one: -one["images_per_s"])
    of_best = compared.of(compared.best, "images_per_s")
    of_defaults = compared.of(DEFAULTS, "images_per_s")[TUNED]
    return {
        "images_per_s": compared.medians("images_per_s"),
        "best": compared.best,
        "of_best": {name: statistics.median(ratios) for name, ratios in of_best.items()},
        "of_defaults": statistics.median(of_defaults),
        "ratios": {"of_best": of_best, "of_defaults": of_defaults},
        "values": {name: [end["values"] for end in ends] for name, ends in compared.ends.items()},
        "changes": {name: [end["changes"] for end in ends] for name, ends in compared.ends.items()},
    }


def idle(chosen: argparse.Namespace, scratch: Path) -> dict:
    """CPU time per image where the consumer is slower than the loader: tuned, and by the best of fixed settings."""
    situation = Situation("idle", ("--consume", f"{chosen.consume_ms}ms"))
    with ready(chosen, scratch, situation) as bench:
        compared = Compared(bench, {TUNED: ""}, lambda one: one["cpu_per_1000"])
    ratios = compared.of(compared.best, "cpu_per_1000")[TUNED]
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
    with bench.started() as run:
        passed = run_for(run, chosen.settle + 60.0 * chosen.rest_minutes)
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
    parser.add_argument("--sets", type=int, default=2, help="processes from each start")
    parser.add_argument("--rounds", type=int, default=12, help="of turns in each process")
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
        f"{of['sets'] * of['rounds']} rounds, in {of['sets']} processes from each start, in which tuned epochs take "
        f"turns with held ones, of about {of['seconds']} s each, after {of['settle']:.0f} s."
    )
    lines += [report.table(head, rows), "", wanted, ""] if rows else []
    if waiting := result.get("idle"):
        if "failure" in waiting:
            lines.append(f"Idle cost: not measured: {waiting['failure']}")
        else:
            least = waiting["cpu_per_1000"][waiting["least"]]
            lines.append(
                f"Idle cost: {waiting['cpu_per_1000'][TUNED]:.3f} s of CPU per 1000 images tuned, {least:.3f} with "
                f"{waiting['least']}, {waiting['cpu_per_1000'][DEFAULTS]:.3f} by the defaults; "
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
