"""What the benchmark of streams says: ratios, verdicts on what was asked of them, and the report."""

from __future__ import annotations

import statistics

import contest
import report
from contest import Standing

EPOCHS = "epochs"
"""The epoch pipeline over the same files, with which streams are compared."""
SPEED_TARGET = 0.9
"""The least images a second from a growing directory, as a share of the epoch pipeline's."""
CPU_TARGET = 1.25
"""The most CPU of our own process for a sample of a Redis stream, in that of the epoch pipeline."""
RESTORE_TARGET = 1.0
"""The most seconds from making a loader to its first batch, with a full rehearsal buffer in a directory."""
MEMORY_TARGET = 1.1
"""The most memory after all samples, in that after a tenth of them."""
LEARNING_TARGET = 20.0
"""The least points of accuracy over old classes that rehearsal brings."""
T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Half-widths of 95 % intervals of a mean of so many differences, in standard errors (Student's t)."""
OURS, WITHOUT, PLAIN = "with rehearsal", "without rehearsal", "plain reservoir"
RIVALS = (
    ("folder-rehearsal", "usual-folder"),
    ("redis-rehearsal", "usual-redis"),
    ("folder-rehearsal", "reverb"),
)
"""Pairs of which both do the same, the second the usual way."""


def summarise(standings: dict[str, Standing], titles: dict[str, str]) -> dict:
    """Return medians and ranges, and the ratios to the epoch pipeline and to the usual way."""
    entries = {}
    for name, standing in standings.items():
        entry = entries[name] = {"title": titles[name], **standing.figures()}
        if "images_per_s" not in entry:
            continue
        for key in ("producer_cpu_seconds", "server_cpu_seconds"):
            if key in standing.runs[0]:
                each = [1000 * run[key] / run["images"] for run in standing.runs]
                entry[f"{key}_per_1000"] = report.spread(each)
        entry |= {key: standing.runs[-1][key] for key in ("mean", "std")}
    measured = {name: entry for name, entry in entries.items() if "images_per_s" in entry}
    contest.judge_colours(list(measured.values()))
    summary = {"entrants": entries}
    if "folder" in measured and EPOCHS in measured:
        summary["folder_speed"] = ratio(measured, "folder", EPOCHS, "images_per_s")
        summary["folder_speed_met"] = summary["folder_speed"] >= SPEED_TARGET
    if "redis" in measured and EPOCHS in measured:
        summary["redis_cpu"] = ratio(measured, "redis", EPOCHS, "cpu_seconds_per_1000")
        summary["redis_cpu_met"] = summary["redis_cpu"] <= CPU_TARGET
    summary["beside"] = [
        {
            "own": own,
            "rival": rival,
            "faster": ratio(measured, own, rival, "images_per_s"),
            "less_cpu": ratio(measured, rival, own, "cpu_seconds_per_1000"),
        }
        for own, rival in RIVALS
        if own in measured and rival in measured
    ]
    return summary


def ratio(measured: dict[str, dict], one: str, other: str, key: str) -> float:
    """Return a median in another one."""
    return measured[one][key]["median"] / measured[other][key]["median"]


def judge_memory(run: dict) -> dict:
    """Return a run with its verdict: the last look beside the first, which is after a tenth of the samples."""
    looks = [look["resident_bytes"] for look in run["looks"]]
    return run | {"growth": looks[-1] / looks[0], "met": looks[-1] <= MEMORY_TARGET * looks[0]}


def judge_restoring(filled: dict, restored: list[dict], capacity: int) -> dict:
    """Return the seconds of all runs with their verdict.

    Raises:
        Unavailable: The buffer was not whole.
    """
    for run in restored:
        if run["kept"] < capacity or not run["rehearsed"]:
            raise contest.Unavailable(f"came back with {run['kept']} of {capacity} samples")
    seconds = report.spread([run["seconds"] for run in restored])
    return filled | {"restored_seconds": seconds, "met": seconds["median"] <= RESTORE_TARGET}


def judge_learning(found: dict) -> dict:
    """Return what rehearsal brings, and how it differs from a plain reservoir, each as differences by seed."""
    old = {
        # Old classes are those that had come with the task before the last.
        name: [statistics.mean(run[-1][: len(run[-2])]) for run in runs]
        for name, runs in found["runs"].items()
    }

    def difference(other: str) -> dict:
        by_seed = [ours - others for ours, others in zip(old[OURS], old[other], strict=True)]
        error = statistics.stdev(by_seed) / len(by_seed) ** 0.5 if len(by_seed) > 1 else None
        width = T95[len(by_seed)] * error if error is not None and len(by_seed) in T95 else None
        return report.spread(by_seed) | {"mean": statistics.mean(by_seed), "half_width": width}

    gain, beside_plain = difference(WITHOUT), difference(PLAIN)
    width = beside_plain["half_width"]
    return found | {
        "gain": gain,
        "beside_plain": beside_plain,
        "within_noise": width is not None and abs(beside_plain["mean"]) <= width,
        "met": gain["mean"] >= LEARNING_TARGET,
    }


def failed(result: dict) -> bool:
    """Return whether Foreload could not do something of it."""
    entrants = result.get("speed", {}).get("entrants", {})
    own = [entry for name, entry in entrants.items() if not name.startswith(("usual", "reverb"))]
    parts = [
        part
        for name in ("latency", "memory", "restoring", "waiting", "learning")
        for part in result.get(name, {}).values()
    ]
    return any(entry.get("failure") for entry in own + parts)


def missed(result: dict) -> bool:
    """Return whether something that was asked for is not so."""
    verdicts = [value for key, value in result.get("speed", {}).items() if key.endswith("_met")]
    for name in ("memory", "restoring", "learning"):
        verdicts += [part.get("met", False) for part in result.get(name, {}).values()]
    return not all(verdicts)


def verdict(met: bool) -> str:
    """Return it in a word."""
    return "met" if met else "MISSED"


def as_text(result: dict) -> str:
    """Return the whole report in Markdown."""
    parts = [report.machine_line(result["machine"])]
    chosen = result["settings"]
    if "speed" in result:
        parts += speed_text(result["speed"], chosen)
    if "latency" in result:
        parts += latency_text(result["latency"], chosen)
    if "memory" in result:
        parts += memory_text(result["memory"])
    if "restoring" in result:
        parts += restoring_text(result["restoring"])
    if "waiting" in result:
        parts += waiting_text(result["waiting"])
    if "learning" in result:
        parts += learning_text(result["learning"]["old classes"], chosen)
    return "\n\n".join(parts)


def speed_text(speed: dict, chosen: dict) -> list[str]:
    """Return the paragraphs on images a second and CPU time."""
    told = [
        "## Speed",
        f"{chosen['images']} JPEGs of ImageNet's size in the page cache, RandomResizedCrop {chosen['image_size']} + "
        f"flip + normalise, NCHW, batch {chosen['batch_size']}, {chosen['threads']} cores, which run the producer and "
        f"the server, too; {chosen['rounds']} rounds, median (range). CPU time is that of the loader's own processes; "
        "those of the producer and of the server stand beside it. With rehearsal half of each batch are earlier "
        f"samples, of {chosen['capacity']} that are kept.",
    ]
    head = ["loader", "images/s", "CPU s per 1 000", "producer's", "server's"]
    told.append(report.table(head, [speed_row(entry) for entry in speed["entrants"].values()]))
    if "folder_speed" in speed:
        told.append(
            f"From a growing directory: {speed['folder_speed']:.2f} of the epoch pipeline's images a second, asked "
            f"{SPEED_TARGET:g}: {verdict(speed['folder_speed_met'])}"
        )
    if "redis_cpu" in speed:
        told.append(
            f"From Redis: {speed['redis_cpu']:.2f} of the epoch pipeline's CPU time, asked {CPU_TARGET:g} at most: "
            f"{verdict(speed['redis_cpu_met'])}"
        )
    for each in speed["beside"]:
        own, rival = (speed["entrants"][each[name]]["title"] for name in ("own", "rival"))
        told.append(
            f"{own}: {each['faster']:.2f} times the images a second and {each['less_cpu']:.2f} times less CPU than {rival}"
        )
    return told


def speed_row(entry: dict) -> list[str]:
    """Return one loader's line."""
    if "images_per_s" not in entry:
        return [entry["title"], f"not measured: {entry['failure']}".replace("|", "/"), "", "", ""]
    title = entry["title"] + ("" if entry["colours_agree"] else " (COLOURS DIFFER)")
    beside = [
        f"{entry[key]['median']:.2f}" if key in entry else ""
        for key in ("producer_cpu_seconds_per_1000", "server_cpu_seconds_per_1000")
    ]
    figures = report.show(entry["images_per_s"], 0), report.show(entry["cpu_seconds_per_1000"], 2)
    return [title, *figures, *beside]


def latency_text(latency: dict, chosen: dict) -> list[str]:
    """Return the paragraphs on the time from a sample's arrival to its batch."""
    rows = []
    for name, entry in latency.items():
        if entry.get("failure"):
            rows.append([name, f"not measured: {entry['failure']}".replace("|", "/"), *[""] * 5])
            continue
        row = [name, f"{entry['rate']:.0f}", f"{1000 * chosen['batch_size'] / entry['rate']:.0f}"]
        for key in ("latency_p50", "latency_p99", "clocked_p50", "clocked_p99"):
            row.append(f"{1000 * entry[f'{key}_seconds']:.0f}")
        rows.append(row)
    share = f"{100 * chosen['load']:.0f} % of the most that it takes"
    head = [
        "source",
        "samples/s",
        "ms to fill a batch",
        "p50, ms",
        "p99, ms",
        "from sending: p50, ms",
        "p99, ms",
    ]
    return [
        "## Latency",
        f"From the arrival of a sample to its batch, at {share}, as `stats()` says; and from its sending, by clocks of "
        "the producer and of who takes the batch. A batch can only begin when its last sample is there.",
        report.table(head, rows),
    ]


def memory_text(memory: dict) -> list[str]:
    """Return the paragraphs on memory over many samples."""
    told = ["## Memory"]
    for name, run in memory.items():
        if run.get("failure"):
            told.append(f"{name}: not measured: {run['failure']}")
            continue
        rows = [[str(look["samples"]), f"{look['resident_bytes'] / 1e6:.0f}"] for look in (run["looks"])]
        told.append(
            f"{name}: JPEGs of {run['mean_bytes'] / 1000:.1f} KB at 16 pixels, half of each batch rehearsed, "
            f"{run['seconds']:.0f} s"
        )
        told.append(report.table(["new samples", "resident MB"], rows))
        told.append(f"Growth {run['growth']:.2f}, asked {MEMORY_TARGET:g} at most: {verdict(run['met'])}")
    return told


def restoring_text(restoring: dict) -> list[str]:
    """Return the paragraphs on going on from a state."""
    rows = []
    for capacity, entry in restoring.items():
        if entry.get("failure"):
            rows.append([capacity, f"not measured: {entry['failure']}".replace("|", "/"), "", ""])
            continue
        figures = f"{entry['saving_seconds']:.2f}", report.show(entry["restored_seconds"], 2)
        rows.append([capacity, *figures, verdict(entry["met"])])
    head = ["kept samples", "saving, s", "restoring, s", f"asked {RESTORE_TARGET:g}"]
    told = (
        "From making a loader to its first batch, in a new process, with a rehearsal buffer in a directory."
    )
    return ["## Going on from a state", told, report.table(head, rows)]


def waiting_text(waiting: dict) -> list[str]:
    """Return the paragraphs on a stream that slows down."""
    head = ["share", "s in all", "s of waiting", "steps", "samples used"]
    rows = []
    for share, entry in waiting.items():
        if entry.get("failure"):
            rows.append([share, f"not measured: {entry['failure']}".replace("|", "/"), "", "", ""])
            continue
        seconds = f"{entry['seconds']:.1f}", f"{entry['waited_seconds']:.1f}"
        rows.append([share, *seconds, str(entry["steps"]), str(entry["used"])])
    told = (
        "A stream that slows down in its second third to a quarter of what a training takes: how long the training "
        "waits for batches, with a fixed share of rehearsed samples and with one that adapts."
    )
    return ["## A stream that slows down", told, report.table(head, rows)]


def learning_text(learned: dict, chosen: dict) -> list[str]:
    """Return the paragraphs on classes that arrive one after another."""
    told = ["## Continual learning"]
    if learned.get("failure"):
        return [*told, f"not measured: {learned['failure']}"]
    told.append(
        f"`examples/continual_learning.py`: ten classes of drawn images, two a task, {learned['images']} images that "
        f"arrive once, of which {learned['kept']} are kept; {chosen['seeds']} seeds. Mean accuracy in percent over all "
        "classes that had come, and over those of earlier tasks."
    )
    runs = learned["runs"]
    rows = []
    for task in range(len(next(iter(runs.values()))[0])):
        cells = []
        for of_kind in runs.values():
            everything = statistics.mean(statistics.mean(run[task]) for run in of_kind)
            cells.append(f"{everything:.1f}")
            if task:
                earlier = statistics.mean(statistics.mean(run[task][: len(run[task - 1])]) for run in of_kind)
                cells[-1] += f", old {earlier:.1f}"
        rows.append([str(task + 1), *cells])
    told.append(report.table(["after task", *runs], rows))
    gain, beside = learned["gain"], learned["beside_plain"]
    told.append(
        f"Over old classes rehearsal brings {difference_text(gain)}, asked {LEARNING_TARGET:g}: "
        f"{verdict(learned['met'])}. Beside the plain reservoir it has {difference_text(beside)}: "
        + ("within" if learned["within_noise"] else "NOT within")
        + " what seeds differ by"
    )
    return told


def difference_text(found: dict) -> str:
    """Return a mean difference with its interval."""
    width = "" if found["half_width"] is None else f" ± {found['half_width']:.1f}"
    return f"{found['mean']:+.1f}{width} points ({found['min']:+.1f} to {found['max']:+.1f} by seed)"
