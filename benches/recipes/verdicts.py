"""What the rounds say of each recipe: medians, ratios, aims met or not, and the report in Markdown."""

from __future__ import annotations

import os

import contest
import recipes
import report
from contest import Standing
from recipes import Aims

OWN = "foreload"
PEERS = {
    "torchvision": "torchvision v2",
    "dali": "DALI, CPU",
    "albumentations": "albumentations + OpenCV",
    OWN: "**Foreload**",
}
"""The titles of all loaders, in the order of the tables."""
OTHERWISE = (
    "torchvision: torchvision.io and uint8 tensors in workers; the main process normalises, erases and mixes "
    "batches, because uint8 costs less to send.",
    "DALI: `color_twist` has a fixed order of its steps and contrast around half-grey; blur has a window of three "
    "deviations; one try for a rectangle to erase. One view is decoded by the fused random-crop decoder, several from "
    "one whole decode.",
    "albumentations: crops are resized by OpenCV's INTER_AREA, also where others are bicubic; erasing, mixing and "
    "normalising are as for torchvision.",
    "Foreload mixes each image of a batch with the one before it of four, torchvision with the one before it of all.",
)
"""What loaders do otherwise although they were asked for the same."""


def has_avx512(machine: dict) -> bool:
    """Whether Foreload used AVX-512 on a machine of `report.machine`."""
    return "avx512vbmi" in machine["simd"] and os.environ.get("FORELOAD_SIMD") not in ("portable", "avx2")


def summarise(standings: dict[tuple[str, str], Standing], avx512: bool) -> dict:
    """Return the figures of each recipe and loader, what they are in relation to others, and which aims are met."""
    summary = {}
    for letter in dict.fromkeys(letter for letter, _ in standings):
        of_all = {peer: figures(standing) for (of, peer), standing in standings.items() if of == letter}
        contest.judge_colours([entry for entry in of_all.values() if "mean" in entry])
        summary[letter] = {"title": recipes.RECIPES[letter].title, "peers": of_all}
    for letter, entry in summary.items():
        relate(entry, summary.get(recipes.BASE), recipes.RECIPES[letter].aims, avx512)
    return summary


def figures(standing: Standing) -> dict:
    """Return what was measured of one loader, and how its batches look."""
    entry = standing.figures()
    if "cpu_seconds_per_1000" in entry:
        entry |= {key: standing.runs[-1][key] for key in ("shape", "dtype", "mean", "std", "detail")}
    return entry


def cpu(entry: dict | None, peer: str) -> float | None:
    """Return the median of a loader's CPU seconds per 1 000 images, None where it was not measured."""
    of_peer = entry["peers"].get(peer, {}) if entry else {}
    return of_peer["cpu_seconds_per_1000"]["median"] if "cpu_seconds_per_1000" in of_peer else None


def relate(entry: dict, base: dict | None, aims: Aims, avx512: bool) -> None:
    """Add what Foreload's CPU time is beside its own for the base recipe, and beside the peers'."""
    own, own_base = cpu(entry, OWN), cpu(base, OWN)
    rivals = {peer: used for peer in PEERS if peer != OWN and (used := cpu(entry, peer))}
    entry["best_peer"] = min(rivals, key=rivals.__getitem__, default=None)
    most = aims.cost if avx512 or aims.cost_avx2 is None else aims.cost_avx2
    entry["cost"] = judged(own, own_base, at_most=most)
    entry["saving"] = judged(rivals.get(entry["best_peer"]), own, at_least=aims.saving)
    entry["torchvision"] = judged(rivals.get("torchvision"), own, at_least=aims.torchvision)


def judged(
    used: float | None, beside: float | None, at_most: float | None = None, at_least: float | None = None
) -> dict:
    """Return a ratio, None where one side is missing, with what is asked of it and whether that is met."""
    ratio = used / beside if used and beside else None
    asked = at_least if at_most is None else at_most
    if ratio is None or asked is None:
        return {"ratio": ratio, "asked": asked, "met": None}
    met = ratio >= at_least if at_most is None else ratio <= at_most
    return {"ratio": ratio, "asked": asked, "met": met}


def judgements(summary: dict) -> list[bool]:
    """Return for each aim that could be judged whether it is met."""
    asked = (entry[what]["met"] for entry in summary.values() for what in ("cost", "saving", "torchvision"))
    return [met for met in asked if met is not None]


def as_text(result: dict) -> str:
    """Return the whole report in Markdown."""
    settings, summary = result["settings"], result["recipes"]
    peers = [peer for peer in PEERS if any(peer in entry["peers"] for entry in summary.values())]
    met = judgements(summary)
    return "\n\n".join(
        [
            report.machine_line(result["machine"]),
            f"`{result['data']}`: {result['images']} JPEGs, {result['mean_bytes'] / 1000:.0f} KB on average, page "
            f"cache warm, float32 NCHW, batch {settings['batch_size']}, {settings['threads']} cores. All recipes begin "
            "with a random resized crop to 224 pixels and a flip, and end with normalisation.",
            "CPU seconds per 1 000 images, user and system of all processes: median (range) of "
            f"{settings['rounds']} alternating rounds",
            report.table(
                ["recipe", *(PEERS[peer] for peer in peers)],
                [
                    [f"{letter} {entry['title']}", *(used(entry, peer) for peer in peers)]
                    for letter, entry in summary.items()
                ],
            ),
            f"What was asked of Foreload: {sum(met)} of {len(met)} met",
            report.table(
                [
                    "recipe",
                    "best peer",
                    "best peer / Foreload",
                    "torchvision / Foreload",
                    "Foreload / its own a",
                ],
                [
                    [
                        f"{letter} {entry['title']}",
                        PEERS.get(entry["best_peer"], ""),
                        shown(entry["saving"], "≥"),
                        shown(entry["torchvision"], "≥"),
                        shown(entry["cost"], "≤"),
                    ]
                    for letter, entry in summary.items()
                ],
            ),
            "How the batches look: the mean of the normalised R, G and B, their deviation averaged, and the mean step "
            "between neighbours in a row, over all views of the warm-up; who does less has other figures",
            report.table(
                ["recipe", *(PEERS[peer] for peer in peers)],
                [[letter, *(look(entry, peer) for peer in peers)] for letter, entry in summary.items()],
            ),
            "\n".join(f"- {line}" for line in (*OTHERWISE, *failures(summary))),
        ]
    )


def used(entry: dict, peer: str) -> str:
    """Return a loader's CPU time in a recipe."""
    of_peer = entry["peers"].get(peer, {})
    if "cpu_seconds_per_1000" not in of_peer:
        return "-"
    return report.show(of_peer["cpu_seconds_per_1000"], 2)


def shown(judgement: dict, sign: str) -> str:
    """Return a ratio with what was asked of it."""
    if judgement["ratio"] is None:
        return "-"
    ratio = f"{judgement['ratio']:.2f}"
    if judgement["met"] is None:
        return ratio
    return f"{ratio} ({sign} {judgement['asked']:g}: {'met' if judgement['met'] else 'MISSED'})"


def look(entry: dict, peer: str) -> str:
    """Return what a loader's batches look like."""
    of_peer = entry["peers"].get(peer, {})
    if "mean" not in of_peer:
        return "-"
    means = " ".join(f"{value:.2f}" for value in of_peer["mean"])
    deviation = sum(of_peer["std"]) / len(of_peer["std"])
    differs = "" if of_peer["colours_agree"] else " COLOURS DIFFER"
    return f"{means}; {deviation:.2f}; {of_peer['detail']:.3f}{differs}"


def failures(summary: dict) -> list[str]:
    """Say why loaders were not measured."""
    return [
        f"{letter}, {PEERS[peer]}, not measured: {of_peer['failure']}"
        for letter, entry in summary.items()
        for peer, of_peer in entry["peers"].items()
        if of_peer["failure"]
    ]
