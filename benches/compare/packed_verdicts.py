"""What the measurements of packed shards say: figures, ratios, and whether the packed form shows what it must."""

from __future__ import annotations

import os
from dataclasses import dataclass

import contest
import report
from contest import Standing

DECODES = ("fast", "exact")
LEVELS = (None, "avx2")
"""The vector instructions: all that the processor has, or no more than AVX2."""
RIVALS = ("dali", "torchvision-io")
"""The peers that do the same work at the same quality."""


def own_line(form: str, decode: str, level: str | None) -> str:
    """The name of Foreload's line for the `packed` or `jpeg` form."""
    return f"{form}-{decode}" + (f"-{level}" if level else "")


def has_vbmi2(machine: dict) -> bool:
    """Whether the processor has the instructions that expand packed images fastest, and they may be used."""
    return "avx512_vbmi2" in machine["simd"] and os.environ.get("FORELOAD_SIMD") not in ("portable", "avx2")


@dataclass(frozen=True)
class Aim:
    """What is asked of a measurement."""

    what: str
    measured: float | None
    """None where something that it is made of was not measured."""
    bound: float
    is_least: bool = False
    """Whether `bound` is the least that is asked for, and not the most."""

    def judged(self) -> dict:
        """The aim with its verdict."""
        met = None
        if self.measured is not None:
            met = self.measured >= self.bound if self.is_least else self.measured <= self.bound
        sign = "≥" if self.is_least else "≤"
        return {"what": self.what, "asked": f"{sign} {self.bound:g}", "measured": self.measured, "met": met}


def summarise(
    standings: dict[str, Standing], titles: dict[str, str], sizes: dict[str, int], vbmi2: bool
) -> dict:
    """Return the figures of all entrants, their ratios, and the aims with their verdicts."""
    entries = {name: {"title": titles[name], **standing.figures()} for name, standing in standings.items()}
    pictures = {}
    for name, standing in standings.items():
        if "images_per_s" in entries[name] and "mean" in standing.runs[-1]:
            entries[name] |= {key: standing.runs[-1][key] for key in ("mean", "std")}
            pictures[name] = entries[name]
    contest.judge_colours(list(pictures.values()))
    figures = Figures(entries)
    for name, entry in pictures.items():
        entry |= {"less_cpu": figures.less_cpu(name), "faster": figures.faster(name)}
        if name.startswith("packed"):
            entry["beside_jpeg"] = figures.beside_jpeg(name)
    return {
        "entrants": entries,
        "rebuilding_ms": figures.rebuilding_ms(),
        "aims": [aim.judged() for aim in aims(figures, sizes["packed"] / sizes["jpeg"], vbmi2)],
    }


class Figures:
    """Ratios of medians; None where a part of one was not measured."""

    def __init__(self, entries: dict[str, dict]) -> None:
        """Take the entrants' figures."""
        self.entries = entries

    def median(self, of: str, key: str) -> float | None:
        """The median of what was measured of an entrant."""
        return self.entries.get(of, {}).get(key, {}).get("median")

    def ratio(self, of: float | None, to: float | None) -> float | None:
        """One beside the other."""
        return None if of is None or not to else of / to

    def cpu(self, of: str) -> float | None:
        """The CPU seconds per 1 000 images."""
        return self.median(of, "cpu_seconds_per_1000")

    def rate(self, of: str) -> float | None:
        """The images per second."""
        return self.median(of, "images_per_s")

    def beside_jpeg(self, packed: str) -> float | None:
        """The CPU time of a line on packed shards beside the same line on JPEGs."""
        return self.ratio(self.cpu(packed), self.cpu(packed.replace("packed", "jpeg", 1)))

    def less_cpu(self, of: str) -> float | None:
        """How many times less CPU time it takes than the rival that takes least."""
        rivals = [cpu for cpu in map(self.cpu, RIVALS) if cpu is not None]
        return self.ratio(min(rivals, default=None), self.cpu(of))

    def faster(self, of: str) -> float | None:
        """How many times the images per second of the fastest rival it gives."""
        rivals = [rate for rate in map(self.rate, RIVALS) if rate is not None]
        return self.ratio(self.rate(of), max(rivals, default=None))

    def rebuilding_ms(self) -> float | None:
        """The CPU milliseconds that it takes to rebuild a file, beyond those to read one."""
        rebuilt, read = self.cpu("files-packed"), self.cpu("files-jpeg")
        return None if rebuilt is None or read is None else rebuilt - read

    def packed_a_core(self) -> float | None:
        """The images that `foreload pack` packs in a second of one core."""
        return self.ratio(1000, self.cpu("pack"))


def aims(figures: Figures, size: float, vbmi2: bool) -> list[Aim]:
    """Return what the packed form must show, and what was measured of it."""
    beside = [
        Aim(
            f"CPU time on packed shards beside JPEGs, `{decode}`, {instructions}",
            figures.beside_jpeg(own_line("packed", decode, level)),
            bound,
        )
        for level, instructions, bound in ((None, "AVX-512 VBMI2", 0.45), ("avx2", "AVX2", 0.7))
        for decode in DECODES
        if level or vbmi2
    ]
    best = "than the better of DALI and torchvision.io"
    peers = [
        Aim(f"times less CPU time {best}, `fast`", figures.less_cpu("packed-fast"), 8, is_least=True),
        Aim(f"times less CPU time {best}, `exact`", figures.less_cpu("packed-exact"), 7, is_least=True),
        Aim(f"times more images/s {best}, `fast`", figures.faster("packed-fast"), 7.5, is_least=True),
        Aim(f"times more images/s {best}, `exact`", figures.faster("packed-exact"), 6.5, is_least=True),
    ]
    return [
        *beside,
        *peers,
        Aim("bytes on disk beside the JPEGs, container and checksums included", size, 1.30),
        Aim("images/s that a core packs, verification included", figures.packed_a_core(), 600, is_least=True),
    ]


HEAD = [
    "loader",
    "images/s",
    "CPU s per 1 000",
    "CPU beside JPEGs",
    "less CPU than best peer",
    "images/s of fastest peer",
    "bytes beside JPEGs",
]


def as_text(result: dict) -> str:
    """Return the whole report in Markdown."""
    parts = [report.machine_line(result["machine"])]
    chosen = result["settings"]
    for dataset in result["datasets"]:
        parts.append(
            f"`{dataset['data']}`: {dataset['images']} JPEGs, "
            f"{dataset['sizes']['jpeg'] / dataset['images'] / 1000:.0f} KB on average, page cache warm, "
            f"RandomResizedCrop 224 + flip + normalise, NCHW, batch {chosen['batch_size']}, "
            f"{chosen['threads']} cores; {chosen['rounds']} rounds, median (range)"
        )
        sizes, entries = dataset["sizes"], dataset["entrants"]
        rows = [row(of, entry, sizes) for of, entry in entries.items() if of not in ASIDE]
        parts.append(report.table(HEAD, rows))
        parts.append("Peers of equal quality: DALI and torchvision.io. \\* other work: smaller pictures.")
        aside = [row(of, entry, sizes)[:3] for of, entry in entries.items() if of in ASIDE]
        if aside:
            parts.append(report.table(["files", *HEAD[1:3]], aside))
        if dataset["rebuilding_ms"] is not None:
            parts.append(f"Rebuilding a file takes {dataset['rebuilding_ms']:.2f} ms of CPU time.")
        aims_table = [aim_row(aim) for aim in dataset["aims"]]
        parts.append(report.table(["what it must show", "asked", "measured", ""], aims_table))
    return "\n\n".join(parts)


ASIDE = ("files-packed", "files-jpeg", "pack")
"""The entrants that make no images."""


def row(of: str, entry: dict, sizes: dict[str, int]) -> list[str]:
    """Return one entrant's line."""
    title = entry["title"]
    if "images_per_s" not in entry:
        return [title, f"not measured: {entry['failure']}".replace("|", "/"), "", "", "", "", ""]
    if entry.get("colours_agree") is False:
        title += " (COLOURS DIFFER)"
    ratios = [shown(entry.get(key), 2) for key in ("beside_jpeg", "less_cpu", "faster")]
    size = sizes.get("packed" if of.startswith("packed") else of)
    return [
        title,
        report.show(entry["images_per_s"], 0),
        report.show(entry["cpu_seconds_per_1000"], 3),
        *ratios,
        shown(size / sizes["jpeg"] if size else None, 3),
    ]


def aim_row(aim: dict) -> list[str]:
    """Return one aim's line."""
    verdict = {True: "met", False: "MISSED", None: "not measured"}[aim["met"]]
    return [aim["what"], aim["asked"], shown(aim["measured"], 2), verdict]


def shown(value: float | None, digits: int) -> str:
    """Return a number as text, nothing for none."""
    return "" if value is None else f"{value:.{digits}f}"
