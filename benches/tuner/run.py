"""Measures the tuner beside fixed settings: from its defaults, from bad starting points, and what it costs when idle.

Every figure comes from `foreload bench --json` on the same images, but for those after a change of costs, which come
from `changing.py`. In each situation a grid of fixed settings (threads x reads in flight) says what the best would be;
the tuner begins from the defaults and from bad starting points (`FORELOAD_TUNER_START`), and the same defaults run
without it. What is compared runs one right after the other; figures are medians of these ratios, of the seconds after
the tuner had time to settle.
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
from changing import CHANGES, WINDOW
from environments import ROOT, Unavailable, last_lines
from program import NOT_TUNED, Bench, Way, fixed, hogs, served
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
GLANCE = 1.0
"""The seconds after which the grid is measured, to choose its best."""
MEASURED = ("src", "Cargo.toml", "Cargo.lock", "benches/tuner")
"""Figures of another commit are those of this one where all of these are the same."""
RESTING_IN = "pfs-light"
"""The situation in which the tuner is watched for long: there the tuner has most to do."""


def grid(chosen: argparse.Namespace) -> dict[str, tuple[int, int]]:
    """Return the fixed settings by name: threads, and reads in flight."""
    return {
        f"{threads} threads, {depth} reads": (threads, depth)
        for threads, depth in itertools.product(chosen.threads, chosen.depths)
    }


def of_all(values: dict[str, tuple[int, int]]) -> dict[str, Way]:
    """Return the ways with these settings."""
    return {name: fixed(*one) for name, one in values.items()}


def measure(bench: Bench, situation: Situation) -> dict:
    """Run the grid, and beside its best the tuner from everywhere; the defaults, tuned and not, in some more rounds.

    The machine is faster in some minutes than in others, and processes are by their age. So what is compared runs one
    right after the other, in an order that alternates, and is measured at the same age; for that the best of the grid
    runs anew, as it must anyway, because what chose it was luck, too.
    """
    chosen = bench.chosen
    of_grid = of_all(grid(chosen))
    ways = of_grid | {TUNED: Way(), DEFAULTS: NOT_TUNED}
    ways |= {name: Way(start=start) for name, start in BAD_STARTS.items()}
    found: dict[str, list[dict]] = {name: [] for name in ways}
    glances: dict[str, list[dict]] = {name: [] for name in of_grid}
    of_best: dict[str, list[float]] = {name: [] for name in (TUNED, *BAD_STARTS)}
    of_defaults: list[float] = []
    with served(chosen, situation.server) as data, hogs(situation.hogs):
        epoch = bench.epoch(situation, data)

        def run(kept: dict[str, list[dict]], name: str, settle: float) -> float:
            kept[name].append(bench.settled(situation, ways[name], data, (epoch, settle)))
            latest = kept[name][-1]
            report.log(f"{situation.name} {name}: {latest['images_per_s']:.0f} {latest['values']}")
            return latest["images_per_s"]

        for number in range(max(chosen.rounds, chosen.rounds_of_defaults)):
            turn = -1 if number % 2 else 1
            together = [DEFAULTS, TUNED]
            if number < chosen.rounds:
                for name in list(of_grid)[::turn]:
                    run(glances, name, GLANCE)
                best = best_of(glances)
                for name in BAD_STARTS:
                    rates = {one: run(found, one, chosen.settle) for one in (name, best)[::turn]}
                    of_best[name].append(rates[name] / rates[best])
                together.append(best)
            rates = {one: run(found, one, chosen.settle) for one in together[::turn]}
            of_defaults.append(rates[TUNED] / rates[DEFAULTS])
            if number < chosen.rounds:
                of_best[TUNED].append(rates[TUNED] / rates[best])
    return {
        "images_per_s": {name: rate_of(rounds or glances[name]) for name, rounds in found.items()},
        "best": best,
        "of_best": {name: statistics.median(ratios) for name, ratios in of_best.items()},
        "of_defaults": statistics.median(of_defaults),
        "ratios": {"of_best": of_best, "of_defaults": of_defaults},
        "values": {name: found[name][-1]["values"] for name in of_best},
        "changes": {name: [one["changes"] for one in found[name]] for name in of_best},
    }


def rate_of(rounds: list[dict]) -> float:
    """Return the median rate of a way."""
    return statistics.median(one["images_per_s"] for one in rounds)


def best_of(found: dict[str, list[dict]]) -> str:
    """Return the fastest of these ways."""
    return max(found, key=lambda name: rate_of(found[name]))


def idle(bench: Bench) -> dict:
    """CPU time per image where the consumer is slower than the loader: tuned, and by the best of fixed settings."""
    chosen = bench.chosen
    situation = Situation("idle", ())
    steps = ("--consume", f"{chosen.consume_ms}ms")
    of_grid = of_all(grid(chosen))
    ways = of_grid | {DEFAULTS: NOT_TUNED, TUNED: Way()}
    found: dict[str, list[float]] = {name: [] for name in ways}
    glances: dict[str, list[float]] = {name: [] for name in of_grid}
    epoch = bench.epoch(situation, str(chosen.data), *steps)

    def run(kept: dict[str, list[float]], name: str, settle: float) -> float:
        result = bench.settled(situation, ways[name], str(chosen.data), (epoch, settle), *steps)
        kept[name].append(result["cpu_per_1000"])
        report.log(f"idle {name}: {result['cpu_per_1000']:.3f} s of CPU per 1000, {result['values']}")
        return kept[name][-1]

    for number in range(chosen.rounds):
        for name in list(of_grid)[:: -1 if number % 2 else 1]:
            run(glances, name, GLANCE)
    least = min(of_grid, key=lambda name: statistics.median(glances[name]))
    ratios = []
    for number in range(chosen.rounds_of_defaults):
        turn = -1 if number % 2 else 1
        cost = {one: run(found, one, chosen.settle) for one in (TUNED, least, DEFAULTS)[::turn]}
        ratios.append(cost[TUNED] / cost[least])
    return {
        "cpu_per_1000": {name: statistics.median(rounds or glances[name]) for name, rounds in found.items()},
        "least": least,
        "of_least": statistics.median(ratios),
        "ratios": ratios,
    }


def follow(bench: Bench, change: str) -> dict:
    """How soon the tuner is near the best again after a cost has changed by three."""
    chosen = bench.chosen
    of_grid = grid(chosen)

    def run(settings: dict, before: float, after: float) -> dict:
        command = [sys.executable, str(HERE / "changing.py"), change, "--data", str(chosen.data)]
        command += ["--range-server", str(chosen.range_server), "--settings", json.dumps(settings)]
        command += ["--before", str(before), "--after", str(after)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"exit code {done.returncode}: {last_lines(done.stderr or done.stdout)}")
        return json.loads(done.stdout)

    def run_fixed(name: str, before: float, until: float) -> float:
        threads, depth = of_grid[name]
        settings = {"threads": threads, "queue_depth": depth, "tune": False}
        images = run(settings, before, until + chosen.seconds)["images"]
        return sum(images[round(until / WINDOW) :]) / chosen.seconds

    def run_beside(name: str) -> float:
        # Anew, and at the same age, because the machine is not always as fast, and luck chose it, too.
        return run_fixed(name, chosen.settle, SECONDS_TO_FOLLOW)

    glances: dict[str, list[float]] = {name: [] for name in of_grid}
    rounds = []
    for number in range(chosen.rounds):
        for name, rates in glances.items():
            # There is nothing to find, but there are batches ahead that were made before the change.
            rates.append(run_fixed(name, GLANCE, 2.0))
        best = max(glances, key=lambda name: statistics.median(glances[name]))
        beside = run_beside(best) if number % 2 else 0.0
        ours = run({}, chosen.settle, SECONDS_TO_FOLLOW + chosen.seconds)
        beside = beside or run_beside(best)
        images, later = ours["images"], round(SECONDS_TO_FOLLOW / WINDOW)
        made = [one for one in ours["tuner"]["decisions"] if one["seconds"] >= ours["at"] - 0.5]
        rounds.append(
            {
                "best": best,
                "share": sum(images[later:]) / chosen.seconds / beside,
                "seconds": seconds_until(images, NEAR_THE_BEST * beside),
                "changes": len(made),
                "values": {name: ours["tuner"][name] for name in ("threads", "queue_depth", "prefetch")},
            }
        )
        report.log(f"{change}: {rounds[-1]}")
    return {
        "share": statistics.median(one["share"] for one in rounds),
        "seconds": statistics.median(one["seconds"] for one in rounds),
        "rounds": rounds,
    }


def seconds_until(images: list[int], rate: float) -> float:
    """Return after how long so many images a second, or more, came for two seconds, and from then on to the end."""
    stretch = round(2.0 / WINDOW)
    # What was made before is taken first.
    for begin in range(2, len(images) - stretch + 1):
        rest = images[begin:]
        if min(sum(rest[:stretch]) / stretch, sum(rest) / len(rest)) >= rate * WINDOW:
            return begin * WINDOW
    return float("inf")


def rest(bench: Bench) -> dict:
    """How often the tuner changes something in half an hour, once it had time to settle."""
    chosen = bench.chosen
    situation = every()[RESTING_IN]
    epoch = bench.epoch(situation, str(chosen.data))
    seconds = chosen.settle + 60.0 * chosen.rest_minutes
    one = bench.run(situation, Way(), str(chosen.data), round(seconds / epoch))[0]
    latest = one["tuner"]["decisions"]
    early = sum(decision["seconds"] <= chosen.settle for decision in latest)
    minutes = (sum(epoch["seconds"] for epoch in one["epochs"]) - chosen.settle) / 60.0
    return {"minutes": minutes, "changes": one["tuner"]["changes"] - early, "decisions": latest[early:]}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--situations", nargs="*", choices=list(every()), default=list(every()))
    parser.add_argument("--no-idle", action="store_true", help="leave out the cost of being idle")
    parser.add_argument("--no-changes", action="store_true", help="leave out what follows a change of costs")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--rounds-of-defaults", type=int, default=7, help="of the defaults, tuned and not, and of being idle"
    )
    parser.add_argument(
        "--rest-minutes", type=float, default=30.0, help="for which changes are counted; 0: they are not"
    )
    parser.add_argument(
        "--settle", type=float, default=6.0, help="seconds that the tuner has before it is measured"
    )
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="that are measured of each way in each round"
    )
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
    of = result["measured_as"]
    wanted = (
        f"Wanted: {NEAR_THE_BEST} of the best, from anywhere; {NEVER_WORSE} of the defaults. Medians of "
        f"{of['rounds']} rounds, of the defaults {of['rounds_of_defaults']}, with {of['seconds']:.0f} s measured each, "
        f"after {of['settle']:.0f} s."
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
        made = " ".join(str(round_["changes"]) for round_ in one["rounds"])
        rows.append([name, f"{one['share']:.2f}", f"{one['seconds']:.1f}", made])
    head = [
        "what changes",
        f"of the best, {SECONDS_TO_FOLLOW:.0f} s later",
        "seconds until near it",
        "changes, by rounds",
    ]
    return ["", report.table(head, rows), "", f"Wanted: {NEAR_THE_BEST} within {SECONDS_TO_FOLLOW:.0f} s."]


def attempt(measured: Callable[[], dict]) -> dict:
    """Return what a part gives, or why it gives nothing."""
    try:
        return measured()
    except (Unavailable, KeyError, ValueError, OSError) as reason:
        report.log(f"failed: {reason!r}")
        return {"failure": f"{type(reason).__name__}: {reason}".replace(f"{ROOT}/", "")}


def parts(bench: Bench) -> Iterator[tuple[str, str | None, Callable[[], dict]]]:
    """Yield what is measured: the name of the part, that of the row in it if it has rows, and what measures it."""
    chosen, known = bench.chosen, every()
    for name in chosen.situations:
        yield "situations", name, partial(measure, bench, known[name])
    if not chosen.no_idle:
        yield "idle", None, partial(idle, bench)
    for name in () if chosen.no_changes else CHANGES:
        yield "changes", name, partial(follow, bench, name)
    if chosen.rest_minutes > 0:
        yield "rest", None, partial(rest, bench)


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
    measured_as = {
        name: getattr(chosen, name) for name in ("rounds", "rounds_of_defaults", "settle", "seconds")
    }
    result = {"benchmark": "tuner", "machine": report.machine(), "measured_as": measured_as, "situations": {}}
    with tempfile.TemporaryDirectory(prefix="foreload-tuner-") as scratch:
        result = measured_before(chosen, result)
        for part, row, measured in parts(Bench(chosen, Path(scratch))):
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
