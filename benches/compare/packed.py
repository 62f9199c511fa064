"""Times Foreload on packed shards, itself on the JPEGs, DALI, torchvision.io and FFCV.

All use the same photographs, output and cores, in alternating rounds of one run, including reading, batching and
hand-off. Then it measures the cost of packing and of rebuilding the files, and the bytes on disk. The aims of the
packed format are below the table.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import aims, datasets, options, report, rounds
from harness.aims import Aim, at_least, at_most, ratio
from harness.rounds import COMPARED, Entrant, Program, Standing

DECODES = ("fast", "exact")
LEVELS = (None, "avx2")
"""The vector instructions: all that the processor has, or no more than AVX2."""
RIVALS = ("dali", "torchvision-io")
"""The peers that do the same work at the same quality."""
ASIDE = ("files-packed", "files-jpeg", "pack")
"""The entrants that make no images."""


@dataclass(frozen=True)
class Line(Entrant):
    """How a line of the table is measured."""

    is_packed: bool = False
    """Whether it reads the packed shards instead of the JPEGs."""
    level: str | None = None
    """The vector instructions that it may use (FORELOAD_SIMD); None for all that the processor has."""


def own_line(form: str, decode: str, level: str | None) -> str:
    """Return the name of Foreload's line for the `packed` or `jpeg` form."""
    return f"{form}-{decode}" + (f"-{level}" if level else "")


def line(title: str, program: str, environment: str | None = None, variant: str = "", **more: object) -> Line:
    return Line(title, COMPARED / f"{program}.py", environment, variant, **more)


def own(form: str, decode: str, level: str | None) -> Line:
    source = "packed shards" if form == "packed" else "JPEGs"
    title = f"**Foreload** {decode}, {source}{', AVX2' if level else ''}"
    is_packed = form == "packed"
    return line(title, "foreload_loader", variant=f"{decode}-f32", is_packed=is_packed, level=level)


ENTRANTS: dict[str, Line] = {
    own_line(form, decode, level): own(form, decode, level)
    for level in LEVELS
    for decode in DECODES
    for form in ("packed", "jpeg")
} | {
    "dali": line("DALI, CPU pipeline, fused random-crop decode", "dali_cpu", "dali"),
    "torchvision-io": line("torchvision.io + v2, batched normalise", "torchvision_io", "torch"),
    "ffcv-raw": line("FFCV, raw pixels, resized when written \\*", "ffcv_beton", "ffcv", "raw"),
    "files-packed": line("**Foreload** files, rebuilt from packed shards", "foreload_files", is_packed=True),
    "files-jpeg": line("**Foreload** files as they are", "foreload_files"),
    "pack": line("`foreload pack`", "foreload_pack"),
}


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__, several=True)
    parser.add_argument(
        "--packed", type=Path, nargs="+", help="their packed shards, made if missing (default: NAME-packed)"
    )
    parser.add_argument("--entrants", nargs="+", choices=ENTRANTS, default=list(ENTRANTS))
    parser.add_argument("--seconds", type=float, default=3, help="the least seconds of timed epochs")
    parser.add_argument("--epochs-before", type=int, default=1, help="whole epochs before those")
    options.add_loaders(parser, rounds=5)
    chosen = parser.parse_args()
    if chosen.packed and len(chosen.packed) != len(chosen.data):
        parser.error("--packed: give one folder for each of --data")
    return chosen


def program_of(name: str, data: Path, packed: Path, chosen: argparse.Namespace) -> Program:
    entrant = ENTRANTS[name]
    more = ["--seconds", chosen.seconds, "--epochs-before", chosen.epochs_before] if name != "pack" else []
    made = entrant.program(packed if entrant.is_packed else data, chosen, *more)
    if entrant.level:
        made.variables["FORELOAD_SIMD"] = entrant.level
    return made


def measure_dataset(data: Path, packed: Path, vbmi2: bool, chosen: argparse.Namespace) -> dict:
    files = datasets.jpegs(data)
    packed_files = [path for path in packed.rglob("*") if path.is_file()]
    sizes = {"jpeg": datasets.warm(files), "packed": datasets.warm(packed_files)}

    def check(name: str, result: dict) -> None:
        rounds.check_images(result, len(files), chosen.batch_size if name != "pack" else 1)

    entrants = {name: functools.partial(program_of, name, data, packed, chosen) for name in chosen.entrants}
    standings = rounds.hold(entrants, check, chosen.rounds, title=data.name)
    for run in standings["ffcv-raw"].runs[-1:] if "ffcv-raw" in standings else []:
        sizes["ffcv-raw"] = run["copy_bytes"]
    about = {"data": data.name, "images": len(files), "sizes": sizes}
    return about | summarise(standings, sizes, vbmi2)


def has_vbmi2(machine: dict) -> bool:
    """Whether the processor has the instructions that expand packed images fastest, and may use them."""
    return "avx512_vbmi2" in machine["simd"] and os.environ.get("FORELOAD_SIMD") not in ("portable", "avx2")


def summarise(standings: dict[str, Standing], sizes: dict[str, int], vbmi2: bool) -> dict:
    """Return the figures of all entrants, their ratios, and the aims with their verdicts."""
    titles = {name: entrant.title for name, entrant in ENTRANTS.items()}
    entries = rounds.entries(standings, titles, ("mean", "std"))
    cpu, rate = (
        {name: value for name, entry in entries.items() if (value := aims.median(entry, key)) is not None}
        for key in ("cpu_seconds_per_1000", "images_per_s")
    )
    least_cpu = min((cpu[name] for name in RIVALS if name in cpu), default=None)
    fastest = max((rate[name] for name in RIVALS if name in rate), default=None)

    def beside_jpeg(name: str) -> float | None:
        return ratio(cpu.get(name), cpu.get(name.replace("packed", "jpeg", 1)))

    def less_cpu(name: str) -> float | None:
        return ratio(least_cpu, cpu.get(name))

    def faster(name: str) -> float | None:
        return ratio(rate.get(name), fastest)

    for name, entry in entries.items():
        if "mean" in entry:
            entry |= {"less_cpu": less_cpu(name), "faster": faster(name)}
            if name.startswith("packed"):
                entry["beside_jpeg"] = beside_jpeg(name)
    best = "than the better of DALI and torchvision.io"
    judged: list[tuple[str, float | None, Aim]] = [
        *(
            (
                f"CPU time on packed shards compared with JPEGs, `{decode}`, {instructions}",
                beside_jpeg(own_line("packed", decode, level)),
                aim,
            )
            for level, instructions, aim in (
                (None, "AVX-512 VBMI2", at_most(0.45)),
                ("avx2", "AVX2", at_most(0.7)),
            )
            for decode in DECODES
            if level or vbmi2
        ),
        (f"times less CPU time {best}, `fast`", less_cpu("packed-fast"), at_least(8)),
        (f"times less CPU time {best}, `exact`", less_cpu("packed-exact"), at_least(7)),
        (f"times more images/s {best}, `fast`", faster("packed-fast"), at_least(7.5)),
        (f"times more images/s {best}, `exact`", faster("packed-exact"), at_least(6.5)),
        (
            "bytes on disk compared with the JPEGs, including container and checksums",
            sizes["packed"] / sizes["jpeg"],
            at_most(1.30),
        ),
        ("images/s that a core packs, verification included", ratio(1000, cpu.get("pack")), at_least(600)),
    ]
    both = "files-packed" in cpu and "files-jpeg" in cpu
    return {
        "entrants": entries,
        # The CPU time to rebuild a file, in addition to reading it.
        "rebuilding_ms": cpu["files-packed"] - cpu["files-jpeg"] if both else None,
        "aims": [
            {"what": what, "asked": str(aim), "measured": value, "met": aim.met(value)}
            for what, value, aim in judged
        ],
    }


HEAD = ["loader", "images/s", "CPU s per 1 000", "CPU vs JPEGs", "less CPU than best peer"]
HEAD += ["images/s of fastest peer", "bytes vs JPEGs"]


def as_text(result: dict) -> str:
    parts = [report.machine_line(result["machine"])]
    chosen = result["settings"]
    for dataset in result["datasets"]:
        parts.append(
            f"`{dataset['data']}`: {dataset['images']} JPEGs, "
            f"{dataset['sizes']['jpeg'] / dataset['images'] / 1000:.0f} KB on average, page cache warm, "
            f"RandomResizedCrop 224 + flip + normalise, NCHW, batch {chosen['batch_size']}, "
            f"{chosen['threads']} cores; whole epochs before: {chosen['epochs_before']}; "
            f"{chosen['rounds']} rounds, median (range)"
        )
        sizes, entries = dataset["sizes"], dataset["entrants"]
        rows = [row(of, entry, sizes) for of, entry in entries.items() if of not in ASIDE]
        parts.append(report.table(HEAD, rows))
        parts.append("Peers of equal quality: DALI and torchvision.io. \\* other work: smaller pictures.")
        aside = [report.loader(entry, cpu=3) for of, entry in entries.items() if of in ASIDE]
        if aside:
            parts.append(report.table(["files", *HEAD[1:3]], aside))
        if dataset["rebuilding_ms"] is not None:
            parts.append(f"Rebuilding a file takes {dataset['rebuilding_ms']:.2f} ms of CPU time.")
        aims_table = [
            [aim["what"], aim["asked"], report.digits(aim["measured"], 2), aims.word(aim["met"])]
            for aim in dataset["aims"]
        ]
        parts.append(report.table(["what it must show", "asked", "measured", ""], aims_table))
    return "\n\n".join(parts)


def row(of: str, entry: dict, sizes: dict[str, int]) -> list[str]:
    ratios = [report.digits(entry.get(key), 2) for key in ("beside_jpeg", "less_cpu", "faster")]
    size = sizes.get("packed" if of.startswith("packed") else of) if "images_per_s" in entry else None
    return report.loader(entry, *ratios, report.digits(ratio(size, sizes["jpeg"]), 3), cpu=3)


def main() -> int:
    """Install, pack, measure, report; return 1 if Foreload failed, or missed a required aim."""
    chosen = parse_arguments()
    rounds.use_cores(chosen.threads)
    asked = options.settings(chosen, "rounds seconds epochs_before warmup batch_size threads")
    asked["requirements"] = options.requirements({ENTRANTS[name].environment for name in chosen.entrants})
    result = {"benchmark": "compare-packed", "machine": report.machine(), "settings": asked, "datasets": []}
    for position, data in enumerate(chosen.data):
        packed = chosen.packed[position] if chosen.packed else data.parent / f"{data.name}-packed"
        # The result of an earlier run is reused; packed shards of other files are an error.
        command = [chosen.foreload_python.parent / "foreload", "pack", data, packed]
        subprocess.run([str(word) for word in command], check=True, stdout=sys.stderr)
        vbmi2 = has_vbmi2(result["machine"])
        result["datasets"].append(measure_dataset(data, packed, vbmi2, chosen))
    report.deliver(result, as_text(result), chosen)
    failed = any(
        entry["failure"]
        for dataset in result["datasets"]
        for name, entry in dataset["entrants"].items()
        if ENTRANTS[name].environment is None
    )
    missed = any(aim["met"] is False for dataset in result["datasets"] for aim in dataset["aims"])
    return options.exit_code(chosen, failed, missed)


if __name__ == "__main__":
    sys.exit(main())
