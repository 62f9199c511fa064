"""Times recipes of well-known trainings: Foreload, torchvision, DALI and albumentations, same photographs and cores.

Every loader builds every recipe of `recipes.py` from its own operators (`peers/`). The CPU time of all processes over
whole epochs of some images of a dataset is compared, in alternating rounds. Foreload's is also compared with its own
for only crop and flip.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import recipes
from harness import aims, datasets, options, report, rounds
from harness.aims import Aim, at_least, at_most
from harness.rounds import Entrant, Program, Standing
from recipes import Aims

HERE = Path(__file__).resolve().parent
OWN = "foreload"
PEERS = {
    "torchvision": ("torchvision v2", "torchvision_v2", "torch"),
    "dali": ("DALI, CPU", "dali_cpu", "dali"),
    "albumentations": ("albumentations + OpenCV", "albumentations_cv2", "opencv"),
    OWN: ("**Foreload**", "foreload_loader", None),
}
"""The title, program and environment of each loader, in the order of the tables."""
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
"""Differences between loaders that got the same settings."""


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--images", type=int, default=2048, help="how many of its images make an epoch")
    parser.add_argument("--recipes", nargs="+", choices=recipes.RECIPES, default=list(recipes.RECIPES))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--seconds", type=float, default=3, help="the least seconds of timed epochs")
    options.add_loaders(parser, rounds=3)
    chosen = parser.parse_args()
    if chosen.images < chosen.batch_size:
        parser.error(f"--images: is {chosen.images}, must be {chosen.batch_size} or more to fill a batch")
    return chosen


def program_of(peer: str, letter: str, data: Path, chosen: argparse.Namespace) -> Program:
    title, program, environment = PEERS[peer]
    entrant = Entrant(title, HERE / "peers" / f"{program}.py", environment, letter)
    return entrant.program(data, chosen, "--seconds", chosen.seconds)


def measure(data: Path, chosen: argparse.Namespace) -> dict[tuple[str, str], Standing]:
    images = len(datasets.jpegs(data))
    pairs = {f"{letter} {peer}": (letter, peer) for letter in chosen.recipes for peer in chosen.peers}
    entrants = {
        name: functools.partial(program_of, peer, letter, data, chosen)
        for name, (letter, peer) in pairs.items()
    }

    def check(_name: str, result: dict) -> None:
        rounds.check_images(result, images, chosen.batch_size)

    held = rounds.hold(entrants, check, chosen.rounds, title=data.name)
    return {pairs[name]: standing for name, standing in held.items()}


def has_avx512(machine: dict) -> bool:
    """Whether Foreload used AVX-512 on a machine of `report.machine`."""
    return "avx512vbmi" in machine["simd"] and os.environ.get("FORELOAD_SIMD") not in ("portable", "avx2")


def summarise(standings: dict[tuple[str, str], Standing], avx512: bool) -> dict:
    """Return the figures of each recipe and loader, their ratios, and the aims that are met."""
    titles = {peer: title for peer, (title, *_) in PEERS.items()}
    summary = {}
    for letter in dict.fromkeys(letter for letter, _ in standings):
        held = {peer: standing for (of, peer), standing in standings.items() if of == letter}
        peers = rounds.entries(held, titles, (*rounds.LOOKS, "detail"))
        summary[letter] = {"title": recipes.RECIPES[letter].title, "peers": peers}
    for letter, entry in summary.items():
        relate(entry, summary.get(recipes.BASE), recipes.RECIPES[letter].aims, avx512)
    return summary


def cpu(entry: dict | None, peer: str) -> float | None:
    return aims.median(entry["peers"].get(peer), "cpu_seconds_per_1000") if entry else None


def relate(entry: dict, base: dict | None, asked: Aims, avx512: bool) -> None:
    """Add the ratios of Foreload's CPU time to its own for the base recipe, and to the peers'."""
    own = cpu(entry, OWN)
    rivals = {peer: used for peer in PEERS if peer != OWN and (used := cpu(entry, peer))}
    entry["best_peer"] = min(rivals, key=rivals.__getitem__, default=None)
    most = asked.cost if avx512 or asked.cost_avx2 is None else asked.cost_avx2
    entry["cost"] = judged(own, cpu(base, OWN), at_most(most))
    entry["saving"] = judged(rivals.get(entry["best_peer"]), own, at_least(asked.saving))
    entry["torchvision"] = judged(rivals.get("torchvision"), own, at_least(asked.torchvision))


def judged(used: float | None, beside: float | None, aim: Aim) -> dict:
    """Return a ratio (None if one side is missing), with its aim and whether the aim is met."""
    value = aims.ratio(used, beside)
    return {"ratio": value, "asked": aim.bound, "met": None if aim.bound is None else aim.met(value)}


def judgements(summary: dict) -> list[bool]:
    """Return for each aim that could be checked whether it is met."""
    asked = (entry[what]["met"] for entry in summary.values() for what in ("cost", "saving", "torchvision"))
    return [met for met in asked if met is not None]


def as_text(result: dict) -> str:
    settings, summary = result["settings"], result["recipes"]
    peers = [peer for peer in PEERS if any(peer in entry["peers"] for entry in summary.values())]
    titles = {letter: f"{letter} {entry['title']}" for letter, entry in summary.items()}
    head = ["recipe", *(PEERS[peer][0] for peer in peers)]
    met = judgements(summary)
    parts = [
        report.machine_line(result["machine"]),
        f"`{result['data']}`: {result['images']} JPEGs, {result['mean_bytes'] / 1000:.0f} KB on average, page "
        f"cache warm, float32 NCHW, batch {settings['batch_size']}, {settings['threads']} cores. All recipes begin "
        "with a random resized crop to 224 pixels and a flip, and end with normalisation.",
        "CPU seconds per 1 000 images, user and system of all processes: median (range) of "
        f"{settings['rounds']} alternating rounds",
        report.table(
            head, [[titles[at], *(used(entry, peer) for peer in peers)] for at, entry in summary.items()]
        ),
        f"What was asked of Foreload: {sum(met)} of {len(met)} met",
        report.table(
            ["recipe", "best peer", "best peer / Foreload", "torchvision / Foreload", "Foreload / its own a"],
            [
                [
                    titles[letter],
                    PEERS[entry["best_peer"]][0] if entry["best_peer"] else "",
                    shown(entry["saving"], "≥"),
                    shown(entry["torchvision"], "≥"),
                    shown(entry["cost"], "≤"),
                ]
                for letter, entry in summary.items()
            ],
        ),
        "How the batches look: the mean of the normalised R, G and B, their deviation averaged, and the mean step "
        "between neighbours in a row, over all views of the warm-up; who does less has other figures",
        report.table(head, [[at, *(look(entry, peer) for peer in peers)] for at, entry in summary.items()]),
        "\n".join(f"- {line}" for line in (*OTHERWISE, *failures(summary))),
    ]
    return "\n\n".join(parts)


def used(entry: dict, peer: str) -> str:
    of_peer = entry["peers"].get(peer, {})
    return report.show(of_peer["cpu_seconds_per_1000"], 2) if "cpu_seconds_per_1000" in of_peer else "-"


def shown(judgement: dict, sign: str) -> str:
    ratio = "-" if judgement["ratio"] is None else f"{judgement['ratio']:.2f}"
    if judgement["met"] is None:
        return ratio
    return f"{ratio} ({sign} {judgement['asked']:g}: {aims.word(judgement['met'])})"


def look(entry: dict, peer: str) -> str:
    """Return a description of a loader's batches."""
    of_peer = entry["peers"].get(peer, {})
    if "mean" not in of_peer:
        return "-"
    means = " ".join(f"{value:.2f}" for value in of_peer["mean"])
    deviation = sum(of_peer["std"]) / len(of_peer["std"])
    differs = "" if of_peer["colours_agree"] else " COLOURS DIFFER"
    return f"{means}; {deviation:.2f}; {of_peer['detail']:.3f}{differs}"


def failures(summary: dict) -> list[str]:
    return [
        f"{letter}, {PEERS[peer][0]}, not measured: {of_peer['failure']}"
        for letter, entry in summary.items()
        for peer, of_peer in entry["peers"].items()
        if of_peer["failure"]
    ]


def main() -> int:
    """Install, measure, report; return 1 if Foreload failed, or missed a required aim."""
    chosen = parse_arguments()
    rounds.use_cores(chosen.threads)
    datasets.ensure_known(chosen.data, chosen.foreload_python.parent / "foreload")
    part = datasets.part(chosen.data, chosen.images, chosen.envs / "scratch")
    files = datasets.jpegs(part)
    size = datasets.warm(files)
    machine = report.machine()
    standings = measure(part, chosen)
    asked = options.settings(chosen, "rounds seconds warmup batch_size threads images")
    asked["requirements"] = options.requirements({PEERS[peer][2] for peer in chosen.peers})
    result = {
        "benchmark": "recipes",
        "machine": machine,
        "settings": asked,
        "data": chosen.data.name,
        "images": len(files),
        "mean_bytes": size / len(files),
        "recipes": summarise(standings, has_avx512(machine)),
    }
    report.deliver(result, as_text(result), chosen)
    failed = any(standing.failure for (_, peer), standing in standings.items() if peer == OWN)
    return options.exit_code(chosen, failed, not all(judgements(result["recipes"])))


if __name__ == "__main__":
    sys.exit(main())
