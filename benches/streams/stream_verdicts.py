"""The results of the benchmark of streams: ratios, verdicts on its aims, and the report."""

from __future__ import annotations

import statistics

from harness import aims, report, rounds
from harness.aims import at_least, at_most, median, word
from harness.environments import Unavailable
from harness.rounds import Standing

EPOCHS = "epochs"
"""The epoch pipeline over the same files, which is the reference for streams."""
SPEED = at_least(0.9)
"""Images per second from a growing directory, as a share of the epoch pipeline's."""
CPU = at_most(1.25)
"""CPU time of our own process per sample of a Redis stream, as a multiple of the epoch pipeline's."""
RESTORE = at_most(1.0)
"""Seconds from making a loader to its first batch, with a full rehearsal buffer in a directory."""
MEMORY = at_most(1.1)
"""Memory after all samples, as a multiple of that after a tenth of them."""
LEARNING = at_least(20.0)
"""The gain in accuracy over old classes through rehearsal, in percentage points."""
OURS, WITHOUT, PLAIN = "with rehearsal", "without rehearsal", "plain reservoir"
RIVALS = (
    ("folder-rehearsal", "usual-folder"),
    ("redis-rehearsal", "usual-redis"),
    ("folder-rehearsal", "reverb"),
)
"""Pairs of loaders with the same work; the second one is the usual way."""
LATENCIES = ("latency_p50", "latency_p99", "clocked_p50", "clocked_p99")
PARTS = ("latency", "memory", "restoring", "waiting", "learning")
"""The parts whose results are stored by name, each with figures or a `failure`."""


def summarise(standings: dict[str, Standing], titles: dict[str, str]) -> dict:
    """Return medians and ranges, and the ratios to the epoch pipeline and to the usual way."""
    entries = rounds.entries(standings, titles, ("mean", "std"))
    measured = {name: entry for name, entry in entries.items() if "images_per_s" in entry}
    for name, entry in measured.items():
        for key in ("producer_cpu_seconds", "server_cpu_seconds"):
            if key in standings[name].runs[0]:
                each = [1000 * run[key] / run["images"] for run in standings[name].runs]
                entry[f"{key}_per_1000"] = report.spread(each)

    def ratio(one: str, other: str, key: str) -> float | None:
        return aims.ratio(median(measured.get(one), key), median(measured.get(other), key))

    summary = {"entrants": entries}
    for key, aim, value in (
        ("folder_speed", SPEED, ratio("folder", EPOCHS, "images_per_s")),
        ("redis_cpu", CPU, ratio("redis", EPOCHS, "cpu_seconds_per_1000")),
    ):
        if value is not None:
            summary |= {key: value, f"{key}_met": aim.met(value)}
    summary["beside"] = [
        {
            "own": own,
            "rival": rival,
            "faster": ratio(own, rival, "images_per_s"),
            "less_cpu": ratio(rival, own, "cpu_seconds_per_1000"),
        }
        for own, rival in RIVALS
        if own in measured and rival in measured
    ]
    return summary


def judge_memory(run: dict) -> dict:
    """Return a run with its verdict: the last measurement of memory compared with the first, after a tenth of the
    samples.
    """
    looks = [look["resident_bytes"] for look in run["looks"]]
    growth = looks[-1] / looks[0]
    return run | {"growth": growth, "met": MEMORY.met(growth)}


def judge_restoring(filled: dict, restored: list[dict], capacity: int) -> dict:
    """Return the seconds of all runs with their verdict.

    Raises:
        Unavailable: The buffer was incomplete.
    """
    for run in restored:
        if run["kept"] < capacity or not run["rehearsed"]:
            raise Unavailable(f"came back with {run['kept']} of {capacity} samples")
    seconds = report.spread([run["seconds"] for run in restored])
    return filled | {"restored_seconds": seconds, "met": RESTORE.met(seconds["median"])}


def judge_learning(found: dict) -> dict:
    """Return the gain of rehearsal, and its difference from a plain reservoir, both as differences by seed."""
    old = {
        # Old classes are those of all tasks before the last.
        name: [statistics.mean(run[-1][: len(run[-2])]) for run in runs]
        for name, runs in found["runs"].items()
    }

    def difference(other: str) -> dict:
        by_seed = aims.paired(old[OURS], old[other])
        kept = {key: by_seed[key] for key in ("mean", "half_width")}
        return report.spread(by_seed["values"]) | kept

    gain, beside_plain = difference(WITHOUT), difference(PLAIN)
    width = beside_plain["half_width"]
    return found | {
        "gain": gain,
        "beside_plain": beside_plain,
        "within_noise": width is not None and abs(beside_plain["mean"]) <= width,
        "met": LEARNING.met(gain["mean"]),
    }


def failed(result: dict) -> bool:
    entrants = result.get("speed", {}).get("entrants", {})
    own = [entry for name, entry in entrants.items() if not name.startswith(("usual", "reverb"))]
    parts = [part for name in PARTS for part in result.get(name, {}).values()]
    return any(entry.get("failure") for entry in own + parts)


def missed(result: dict) -> bool:
    verdicts = [value for key, value in result.get("speed", {}).items() if key.endswith("_met")]
    for name in ("memory", "restoring", "learning"):
        verdicts += [part.get("met", False) for part in result.get(name, {}).values()]
    return not all(verdicts)


def as_text(result: dict) -> str:
    parts = [report.machine_line(result["machine"])]
    for name, text in TEXTS.items():
        if name in result:
            parts += text(result[name], result["settings"])
    return "\n\n".join(parts)


def speed_text(speed: dict, chosen: dict) -> list[str]:
    told = [
        "## Speed",
        f"{chosen['images']} JPEGs of ImageNet's size in the page cache, RandomResizedCrop {chosen['image_size']} + "
        f"flip + normalise, NCHW, batch {chosen['batch_size']}, {chosen['threads']} cores, which run the producer and "
        f"the server, too; {chosen['rounds']} rounds, median (range). CPU time is that of the loader's own processes; "
        "those of the producer and of the server have their own columns. With rehearsal, half of each batch are "
        f"earlier samples, of {chosen['capacity']} that are stored.",
    ]
    head = ["loader", "images/s", "CPU s per 1 000", "producer's", "server's"]
    told.append(report.table(head, [speed_row(entry) for entry in speed["entrants"].values()]))
    if "folder_speed" in speed:
        told.append(
            f"From a growing directory: {speed['folder_speed']:.2f} of the epoch pipeline's images a second, asked "
            f"{SPEED.bound:g}: {word(speed['folder_speed_met'])}"
        )
    if "redis_cpu" in speed:
        told.append(
            f"From Redis: {speed['redis_cpu']:.2f} of the epoch pipeline's CPU time, asked {CPU.bound:g} at most: "
            f"{word(speed['redis_cpu_met'])}"
        )
    for each in speed["beside"]:
        own, rival = (speed["entrants"][each[name]]["title"] for name in ("own", "rival"))
        factors = f"{each['faster']:.2f} times the images a second and {each['less_cpu']:.2f} times less CPU"
        told.append(f"{own}: {factors} than {rival}")
    return told


def speed_row(entry: dict) -> list[str]:
    keys = ("producer_cpu_seconds_per_1000", "server_cpu_seconds_per_1000")
    return report.loader(entry, *(report.digits(median(entry, key), 2) for key in keys))


def rows(entries: dict[str, dict], width: int, cells) -> list[list[str]]:
    """Return a table row for each entry: the result of `cells`, or why it was not measured."""
    return [
        report.missing(entry | {"title": name}, width) if entry.get("failure") else [name, *cells(entry)]
        for name, entry in entries.items()
    ]


def latency_text(latency: dict, chosen: dict) -> list[str]:
    def cells(entry: dict) -> list[str]:
        filling = f"{1000 * chosen['batch_size'] / entry['rate']:.0f}"
        return [
            f"{entry['rate']:.0f}",
            filling,
            *(f"{1000 * entry[f'{key}_seconds']:.0f}" for key in LATENCIES),
        ]

    share = f"{100 * chosen['load']:.0f} % of the most that it takes"
    head = ["source", "samples/s", "ms to fill a batch", "p50, ms", "p99, ms"]
    head += ["from sending: p50, ms", "p99, ms"]
    return [
        "## Latency",
        f"From the arrival of a sample to its batch, at {share}, as `stats()` says; and from its sending, by clocks of "
        "the producer and of the consumer. A batch can only begin when its last sample is there.",
        report.table(head, rows(latency, len(head), cells)),
    ]


def memory_text(memory: dict, _chosen: dict) -> list[str]:
    told = ["## Memory"]
    for name, run in memory.items():
        if run.get("failure"):
            told.append(f"{name}: not measured: {run['failure']}")
            continue
        looks = [[str(look["samples"]), f"{look['resident_bytes'] / 1e6:.0f}"] for look in run["looks"]]
        told.append(
            f"{name}: JPEGs of {run['mean_bytes'] / 1000:.1f} KB at 16 pixels, half of each batch rehearsed, "
            f"{run['seconds']:.0f} s"
        )
        told.append(report.table(["new samples", "resident MB"], looks))
        told.append(f"Growth {run['growth']:.2f}, asked {MEMORY.bound:g} at most: {word(run['met'])}")
    return told


def restoring_text(restoring: dict, _chosen: dict) -> list[str]:
    def cells(entry: dict) -> list[str]:
        seconds = f"{entry['saving_seconds']:.2f}", report.show(entry["restored_seconds"], 2)
        return [*seconds, word(entry["met"])]

    head = ["kept samples", "saving, s", "restoring, s", f"asked {RESTORE.bound:g}"]
    told = (
        "From making a loader to its first batch, in a new process, with a rehearsal buffer in a directory."
    )
    return ["## Going on from a state", told, report.table(head, rows(restoring, len(head), cells))]


def waiting_text(waiting: dict, _chosen: dict) -> list[str]:
    def cells(entry: dict) -> list[str]:
        seconds = f"{entry['seconds']:.1f}", f"{entry['waited_seconds']:.1f}"
        return [*seconds, str(entry["steps"]), str(entry["used"])]

    head = ["share", "s in all", "s of waiting", "steps", "samples used"]
    told = (
        "A stream that slows down in its second third to a quarter of what a training takes: how long the training "
        "waits for batches, with a fixed share of rehearsed samples and with one that adapts."
    )
    return ["## A stream that slows down", told, report.table(head, rows(waiting, len(head), cells))]


def learning_text(learning: dict, chosen: dict) -> list[str]:
    told, learned = ["## Continual learning"], learning["old classes"]
    if learned.get("failure"):
        return [*told, f"not measured: {learned['failure']}"]
    told.append(
        f"`examples/continual_learning.py`: ten classes of drawn images, two a task, {learned['images']} images that "
        f"arrive once, of which {learned['kept']} are kept; {chosen['seeds']} seeds. Mean accuracy in percent over all "
        "classes that had come, and over those of earlier tasks."
    )
    runs = learned["runs"]
    by_task = []
    for task in range(len(next(iter(runs.values()))[0])):
        cells = []
        for of_kind in runs.values():
            everything = statistics.mean(statistics.mean(run[task]) for run in of_kind)
            cells.append(f"{everything:.1f}")
            if task:
                earlier = statistics.mean(statistics.mean(run[task][: len(run[task - 1])]) for run in of_kind)
                cells[-1] += f", old {earlier:.1f}"
        by_task.append([str(task + 1), *cells])
    told.append(report.table(["after task", *runs], by_task))
    told.append(
        f"Over old classes rehearsal brings {difference_text(learned['gain'])}, asked {LEARNING.bound:g}: "
        f"{word(learned['met'])}. Beside the plain reservoir it has {difference_text(learned['beside_plain'])}: "
        + ("within" if learned["within_noise"] else "NOT within")
        + " what seeds differ by"
    )
    return told


def difference_text(found: dict) -> str:
    width = "" if found["half_width"] is None else f" ± {found['half_width']:.1f}"
    return f"{found['mean']:+.1f}{width} points ({found['min']:+.1f} to {found['max']:+.1f} by seed)"


TEXTS = {
    "speed": speed_text,
    "latency": latency_text,
    "memory": memory_text,
    "restoring": restoring_text,
    "waiting": waiting_text,
    "learning": learning_text,
}
