"""What the comparison of layouts says: ratios to the best peer, verdicts on what Foreload must show, and the report."""

from __future__ import annotations

import contest
import report
from contest import Standing

OWN = "foreload"
CPU_TARGET = 3.0
"""How many times less CPU than the best peer Foreload takes."""
OPENING_TARGET = 1.0
"""The most seconds from the call to a loader of a dataset that was indexed before."""


def summarise(standings: dict[str, Standing], titles: dict[str, str]) -> dict:
    """Return medians and ranges, and how much less CPU Foreload takes than the peer that takes least."""
    summary = {"peers": {}}
    for name, standing in standings.items():
        entry = summary["peers"][name] = {"title": titles[name], **standing.figures()}
        if "images_per_s" in entry:
            entry |= {key: standing.runs[-1][key] for key in ("shape", "dtype", "mean", "std")}
    measured = {name: entry for name, entry in summary["peers"].items() if "images_per_s" in entry}
    contest.judge_colours(list(measured.values()))
    rivals = {
        name: entry["cpu_seconds_per_1000"]["median"] for name, entry in measured.items() if name != OWN
    }
    if rivals and OWN in measured:
        best = min(rivals, key=rivals.__getitem__)
        summary["best_peer"] = best
        summary["less_cpu"] = rivals[best] / measured[OWN]["cpu_seconds_per_1000"]["median"]
        summary["met"] = summary["less_cpu"] >= CPU_TARGET
    return summary


def as_text(result: dict, titles: dict[str, str]) -> str:
    """Return the whole report in Markdown; `titles` are those of the layouts."""
    chosen = result["settings"]
    parts = [report.machine_line(result["machine"])]
    head = ["loader", "images/s", "CPU s per 1 000"]
    for name, entry in result["layouts"].items():
        parts.append(f"## {titles[name]}")
        if entry.get("skipped"):
            parts.append(f"Left out, as Foreload does not read it: {entry['skipped']}")
            continue
        if "speed" in entry:
            parts.append(
                f"{chosen['images']} JPEGs in the page cache, RandomResizedCrop 224 + flip + normalise, NCHW, batch "
                f"{chosen['batch_size']}, {chosen['threads']} cores; {chosen['rounds']} rounds, median (range)"
            )
            parts.append(report.table(head, [row(peer) for peer in entry["speed"]["peers"].values()]))
            if "less_cpu" in entry["speed"]:
                told = f"{entry['speed']['less_cpu']:.2f} times less CPU than {entry['speed']['best_peer']}"
                parts.append(f"{told}, asked {CPU_TARGET:g}: {verdict(entry['speed'])}")
        if "opening" in entry:
            seconds = entry["opening"]
            if "failure" in seconds:
                parts.append(f"Opening: not measured: {seconds['failure']}")
                continue
            parts.append(
                f"{seconds['samples']} samples: indexed in {seconds['indexed_seconds']:.1f} s, then opened in "
                f"{report.show(seconds['opened_seconds'], 2)} s, asked {OPENING_TARGET:g}: {verdict(seconds)}"
            )
    return "\n\n".join(parts)


def verdict(judged: dict) -> str:
    """Return whether a target was met."""
    return "met" if judged["met"] else "MISSED"


def row(entry: dict) -> list[str]:
    """Return one loader's line."""
    if "images_per_s" not in entry:
        return [entry["title"], f"not measured: {entry['failure']}".replace("|", "/"), ""]
    title = entry["title"] + ("" if entry["colours_agree"] else " (COLOURS DIFFER)")
    return [title, report.show(entry["images_per_s"], 0), report.show(entry["cpu_seconds_per_1000"], 2)]
