"""Times Foreload on packed shards beside itself on the JPEGs, and beside DALI, torchvision.io and FFCV.

Same photographs, output and cores, in alternating rounds of one run, with reading, batching and hand-off; then what
packing and rebuilding the files cost, and the bytes on disk. What the packed form must show stands below the table.
"""

from __future__ import annotations

import argparse
import functools
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import contest
import environments
import packed_verdicts
import photographs
import report
from contest import Program

PEER_FOLDER = contest.HERE / "peers"


@dataclass(frozen=True)
class Entrant:
    """How a line of the table is measured."""

    title: str
    program: str
    variant: str = ""
    environment: str | None = None
    """The environment of its packages; None for Foreload's own interpreter."""
    is_packed: bool = False
    """Whether it reads the packed shards and not the JPEGs."""
    level: str | None = None
    """The vector instructions that it may use (FORELOAD_SIMD); None for all that the processor has."""


def own(source: str, decode: str, level: str | None) -> Entrant:
    """Foreload's batches of images."""
    instructions = ", AVX2" if level else ""
    title = f"**Foreload** {decode}, {source}{instructions}"
    return Entrant(
        title, "foreload_loader", f"{decode}-f32", is_packed=source == "packed shards", level=level
    )


ENTRANTS: dict[str, Entrant] = {
    packed_verdicts.own_line(form, decode, level): own(source, decode, level)
    for level in packed_verdicts.LEVELS
    for decode in packed_verdicts.DECODES
    for form, source in (("packed", "packed shards"), ("jpeg", "JPEGs"))
} | {
    "dali": Entrant("DALI, CPU pipeline, fused random-crop decode", "dali_cpu", environment="dali"),
    "torchvision-io": Entrant(
        "torchvision.io + v2, batched normalise", "torchvision_io", environment="torch"
    ),
    "ffcv-raw": Entrant(
        "FFCV, raw pixels, resized when written \\*", "ffcv_beton", "raw", environment="ffcv"
    ),
    "files-packed": Entrant(
        "**Foreload** files, rebuilt from packed shards", "foreload_files", is_packed=True
    ),
    "files-jpeg": Entrant("**Foreload** files as they are", "foreload_files"),
    "pack": Entrant("`foreload pack`", "foreload_pack"),
}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        nargs="+",
        default=[contest.ROOT / "data" / "folder"],
        help="image folders (default: data/folder)",
    )
    parser.add_argument(
        "--packed",
        type=Path,
        nargs="+",
        help="where their packed shards are or will be (default: NAME-packed beside each)",
    )
    parser.add_argument("--entrants", nargs="+", choices=ENTRANTS, default=list(ENTRANTS))
    parser.add_argument(
        "--seconds",
        type=float,
        default=3,
        help="timed epochs of a loader go on until so much time has passed",
    )
    contest.add_options(parser, rounds=5)
    chosen = parser.parse_args()
    if chosen.packed and len(chosen.packed) != len(chosen.data):
        parser.error("--packed: give one folder for each of --data")
    return chosen


def program_of(entrant: Entrant, data: Path, packed: Path, chosen: argparse.Namespace) -> Program:
    """Return how an entrant is run; install what it needs."""
    python = contest.interpreter(entrant.environment, chosen)
    source = PEER_FOLDER / f"{entrant.program}.py"
    made = contest.program(python, source, packed if entrant.is_packed else data, entrant.variant, chosen)
    scratch = chosen.envs / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    made.words.extend(["--scratch", str(scratch)])
    if entrant.program != "foreload_pack":
        made.words.extend(["--seconds", str(chosen.seconds)])
    if entrant.level:
        made.variables["FORELOAD_SIMD"] = entrant.level
    return made


def measure_dataset(data: Path, packed: Path, vbmi2: bool, chosen: argparse.Namespace) -> dict:
    """Do all rounds of all entrants on one dataset."""
    files = photographs.jpegs(data)
    size = photographs.warm(files)
    photographs.warm([path for path in packed.rglob("*") if path.is_file()])

    def check(name: str, result: dict) -> None:
        contest.check_images(result, len(files), chosen.batch_size if name != "pack" else 1)

    entrants = {
        name: functools.partial(program_of, ENTRANTS[name], data, packed, chosen) for name in chosen.entrants
    }
    standings = contest.hold(entrants, check, chosen.rounds, memory=False, title=data.name)
    sizes = {"jpeg": size, "packed": photographs.size(packed)}
    for run in standings["ffcv-raw"].runs[-1:] if "ffcv-raw" in standings else []:
        sizes["ffcv-raw"] = run["copy_bytes"]
    titles = {name: ENTRANTS[name].title for name in standings}
    return {
        "data": data.name,
        "images": len(files),
        "sizes": sizes,
        **packed_verdicts.summarise(standings, titles, sizes, vbmi2),
    }


def main() -> int:
    """Install, pack, measure, report; return 1 when Foreload failed, or missed an aim that was required."""
    chosen = parse_arguments()
    contest.use_cores(chosen.threads)
    program = chosen.foreload_python.parent / "foreload"
    result = {
        "benchmark": "compare-packed",
        "machine": report.machine(),
        "settings": settings(chosen),
        "datasets": [],
    }
    for position, data in enumerate(chosen.data):
        packed = chosen.packed[position] if chosen.packed else photographs.packed_beside(data)
        photographs.ensure_packed(data, packed, program)
        vbmi2 = packed_verdicts.has_vbmi2(result["machine"])
        result["datasets"].append(measure_dataset(data, packed, vbmi2, chosen))
    report.deliver(result, packed_verdicts.as_text(result), chosen.json, chosen.output)
    failed = any(
        entry["failure"]
        for dataset in result["datasets"]
        for name, entry in dataset["entrants"].items()
        if ENTRANTS[name].environment is None
    )
    missed = any(aim["met"] is False for dataset in result["datasets"] for aim in dataset["aims"])
    return 1 if failed or (chosen.require_targets and missed) else 0


def settings(chosen: argparse.Namespace) -> dict:
    """Return what the rounds had in common."""
    keys = ("rounds", "seconds", "warmup", "batch_size", "threads")
    used = {ENTRANTS[name].environment for name in chosen.entrants} - {None}
    requirements = {name: list(environments.RECIPES[name].requirements) for name in sorted(used)}
    return {key: getattr(chosen, key) for key in keys} | {"requirements": requirements}


if __name__ == "__main__":
    sys.exit(main())
