"""Times Foreload beside the loaders a user would pick instead: same files, output and cores, in one run.

The table gives medians of alternating rounds with their range. Every peer lives in its own environment, installed on
first use; one that cannot be installed or fails stays in the table with its reason.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import contest
import environments
import photographs
import report
from contest import Program, Standing
from environments import Unavailable

ROOT = environments.ROOT
PEER_FOLDER = Path(__file__).resolve().parent / "peers"
MEMORY_TARGET = 300e6
"""The most bytes of Foreload's peak, which must also lie below that of every peer."""


@dataclass(frozen=True)
class Peer:
    """One line of the table."""

    title: str
    program: str
    environment: str | None
    """The peer's environment; None for Foreload's own interpreter."""
    variant: str = ""
    equal: bool = True
    """Whether it does the same work at the same quality: antialiased resize of the source files."""
    tar: bool = False
    target: float | None = None
    """For Foreload alone: the least ratio of the CPU time of the best equal peer to ours."""


PEERS: dict[str, Peer] = {
    "foreload-fast-f16": Peer("**Foreload** fast, float16", "foreload_loader", None, "fast-f16", target=3.5),
    "foreload-fast-f32": Peer("**Foreload** fast", "foreload_loader", None, "fast-f32", target=3.0),
    "foreload-exact-f32": Peer("**Foreload** exact", "foreload_loader", None, "exact-f32", target=2.5),
    "foreload-torch-f32": Peer("**Foreload** fast, torch dataset", "foreload_loader", None, "torch-fast-f32"),
    "foreload-tar-f32": Peer(
        "**Foreload** fast, tar shards", "foreload_loader", None, "tar-fast-f32", tar=True
    ),
    "dali": Peer("DALI, CPU pipeline, fused random-crop decode", "dali_cpu", "dali"),
    "torchvision-io": Peer("torchvision.io + v2, batched normalise", "torchvision_io", "torch"),
    "webdataset": Peer("WebDataset + torchvision.io", "webdataset_io", "torch", tar=True),
    "torchvision-pil": Peer("torchvision ImageFolder, Pillow", "torchvision_pil", "torch"),
    "torchvision-simd": Peer("torchvision ImageFolder, Pillow-SIMD", "torchvision_pil", "pillow-simd"),
    "tf-data": Peer("tf.data, fused decode-and-crop, antialiased", "tf_data", "tensorflow"),
    "spdl": Peer("SPDL (FFmpeg)", "spdl_ffmpeg", "spdl"),
    "dali-f16": Peer("DALI, float16", "dali_cpu", "dali", "f16"),
    "ffcv-jpg": Peer("FFCV, re-encoded JPEG (area resize)", "ffcv_beton", "ffcv", "jpg", equal=False),
    "ffcv-raw": Peer("FFCV, raw pixels, resized when written", "ffcv_beton", "ffcv", "raw", equal=False),
    "opencv": Peer(
        "OpenCV + albumentations (no antialiasing)", "opencv_albumentations", "opencv", equal=False
    ),
    "tf-data-plain": Peer("tf.data, no antialiasing", "tf_data", "tensorflow", "plain", equal=False),
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
        default=[ROOT / "data" / "folder"],
        help="image folders (default: data/folder)",
    )
    parser.add_argument(
        "--shards",
        type=Path,
        nargs="+",
        help="tar shards of the same samples (default: `tar` beside each folder)",
    )
    parser.add_argument("--peers", nargs="+", choices=PEERS, metavar="PEER", help=f"from: {', '.join(PEERS)}")
    contest.add_options(parser, rounds=5)
    parser.add_argument("--epochs", type=int, default=1, help="timed epochs in each round")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--no-memory", action="store_true", help="leave out the round that samples memory")
    chosen = parser.parse_args()
    chosen.peers = chosen.peers or list(PEERS)
    if chosen.shards and len(chosen.shards) != len(chosen.data):
        parser.error("--shards: give one folder for each of --data")
    return chosen


def program_of(peer: Peer, data: Path, shards: Path | None, chosen: argparse.Namespace) -> Program:
    """Return how one peer is run; install what it needs."""
    python = contest.interpreter(peer.environment, chosen)
    more = ()
    if not peer.environment and "torch" in peer.variant:
        environments.ensure("torch", chosen.envs)
        more = (environments.site_packages("torch", chosen.envs),)
    made = contest.program(python, PEER_FOLDER / f"{peer.program}.py", data, peer.variant, chosen, more)
    words = made.words
    if peer.tar:
        if shards is None or not any(shards.glob("*.tar")):
            raise Unavailable(f"no tar shards of {data.name}")
        words += ["--shards", str(shards)]
    scratch = chosen.envs / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    words += ["--scratch", str(scratch), "--image-size", str(chosen.image_size)]
    words += ["--epochs", str(chosen.epochs)]
    return made


def measure_dataset(data: Path, shards: Path | None, chosen: argparse.Namespace) -> dict:
    """Do all rounds of all peers on one dataset."""
    files = photographs.jpegs(data)
    size = photographs.warm(files)
    photographs.warm(list(shards.glob("*.tar")) if shards else [])

    def check(name: str, result: dict) -> None:
        # Every worker of a sharded loader may drop a partial batch of its own.
        workers = chosen.threads if PEERS[name].tar else 1
        contest.check_images(result, len(files), chosen.batch_size * workers)

    entrants = {
        name: functools.partial(program_of, PEERS[name], data, shards, chosen) for name in chosen.peers
    }
    standings = contest.hold(entrants, check, chosen.rounds, not chosen.no_memory, data.name)
    return {
        "data": data.name,
        "images": len(files),
        "mean_bytes": size / len(files),
        "peers": summarise(standings),
    }


def summarise(standings: dict[str, Standing]) -> dict:
    """Return medians, ranges and ratios to the best peer of equal quality."""
    summary = {}
    for name, standing in standings.items():
        entry = {"title": PEERS[name].title, "equal_quality": PEERS[name].equal, **standing.figures()}
        if "images_per_s" in entry:
            entry |= {
                "peak_rss_bytes": standing.peak_bytes,
                "start_seconds": statistics.median(run["start_seconds"] for run in standing.runs),
                **{key: standing.runs[-1][key] for key in ("shape", "dtype", "mean", "std")},
            }
        summary[name] = entry
    measured = {name: entry for name, entry in summary.items() if "images_per_s" in entry}
    contest.judge_colours(list(measured.values()))
    rivals = {
        name: e for name, e in measured.items() if e["equal_quality"] and not name.startswith("foreload")
    }
    if rivals:
        least_cpu = min(rivals, key=lambda name: rivals[name]["cpu_seconds_per_1000"]["median"])
        fastest = max(rivals, key=lambda name: rivals[name]["images_per_s"]["median"])
        for name, entry in measured.items():
            cpu = (
                rivals[least_cpu]["cpu_seconds_per_1000"]["median"] / entry["cpu_seconds_per_1000"]["median"]
            )
            entry["best_peer"] = least_cpu
            entry["cpu_factor"] = cpu
            entry["speed_factor"] = (
                entry["images_per_s"]["median"] / rivals[fastest]["images_per_s"]["median"]
            )
            if PEERS[name].target:
                entry["target_factor"] = PEERS[name].target
                entry["target_met"] = cpu >= PEERS[name].target
    judge_memory(measured)
    return summary


def judge_memory(measured: dict[str, dict]) -> None:
    """Compare the peaks of Foreload's targeted lines with the target and with every peer that was sampled."""
    peers = [
        entry["peak_rss_bytes"]
        for name, entry in measured.items()
        if not name.startswith("foreload") and entry["peak_rss_bytes"]
    ]
    for name, entry in measured.items():
        peak = entry["peak_rss_bytes"]
        if PEERS[name].target and peak:
            entry["memory_target_bytes"] = MEMORY_TARGET
            entry["least_peer_rss_bytes"] = min(peers, default=None)
            entry["memory_met"] = peak <= MEMORY_TARGET and all(peak < other for other in peers)


def as_text(result: dict, chosen: argparse.Namespace) -> str:
    """Return the whole report in Markdown."""
    parts = [report.machine_line(result["machine"])]
    head = [
        "loader",
        "images/s",
        "CPU s per 1 000",
        "less CPU than best peer",
        "images/s of fastest",
        "peak MB",
    ]
    for dataset in result["datasets"]:
        parts.append(
            f"`{dataset['data']}`: {dataset['images']} JPEGs, "
            f"{dataset['mean_bytes'] / 1000:.0f} KB on average, page cache warm, "
            f"RandomResizedCrop {chosen.image_size} + flip + normalise, NCHW, "
            f"batch {chosen.batch_size}, {chosen.threads} cores; {chosen.rounds} rounds, median (range)"
        )
        peers = dataset["peers"]
        order = sorted(
            peers, key=lambda name: peers[name].get("cpu_seconds_per_1000", {}).get("median", float("inf"))
        )
        parts.append(report.table(head, [row(peers[name]) for name in order]))
        best = next((entry["best_peer"] for entry in peers.values() if "best_peer" in entry), None)
        if best:
            parts.append(
                f"Best peer of equal quality: {peers[best]['title']}. \\* other work or lower quality."
            )
        for entry in peers.values():
            if "target_factor" in entry:
                verdict = "met" if entry["target_met"] else "MISSED"
                factors = f"{entry['cpu_factor']:.2f} times less CPU, asked {entry['target_factor']}"
                parts.append(f"{entry['title']}: {factors}: {verdict}")
            if "memory_met" in entry:
                verdict = "met" if entry["memory_met"] else "MISSED"
                asked = f"asked {entry['memory_target_bytes'] / 1e6:.0f} at most"
                if entry["least_peer_rss_bytes"]:
                    asked += f" and less than every peer ({entry['least_peer_rss_bytes'] / 1e6:.0f})"
                parts.append(f"{entry['title']}: {entry['peak_rss_bytes'] / 1e6:.0f} MB, {asked}: {verdict}")
    return "\n\n".join(parts)


def row(entry: dict) -> list[str]:
    """Return one loader's line."""
    title = entry["title"] + ("" if entry["equal_quality"] else " \\*")
    if "images_per_s" not in entry:
        return [title, f"not measured: {entry['failure']}".replace("|", "/"), "", "", "", ""]
    if not entry["colours_agree"]:
        title += " (COLOURS DIFFER)"
    peak = f"{entry['peak_rss_bytes'] / 1e6:.0f}" if entry["peak_rss_bytes"] else ""
    factors = [f"{entry[key]:.2f}" if key in entry else "" for key in ("cpu_factor", "speed_factor")]
    return [
        title,
        report.show(entry["images_per_s"], 0),
        report.show(entry["cpu_seconds_per_1000"], 2),
        *factors,
        peak,
    ]


def main() -> int:
    """Install, measure, report; return 1 when Foreload failed, or missed a target that was required."""
    chosen = parse_arguments()
    contest.use_cores(chosen.threads)
    result = {
        "benchmark": "compare",
        "machine": report.machine(),
        "settings": settings(chosen),
        "datasets": [],
    }
    for position, data in enumerate(chosen.data):
        photographs.ensure_known(data, chosen.foreload_python.parent / "foreload")
        beside = chosen.shards[position] if chosen.shards else photographs.shards_beside(data)
        shards = beside if beside.is_dir() else None
        result["datasets"].append(measure_dataset(data, shards, chosen))
    report.deliver(result, as_text(result, chosen), chosen.json, chosen.output)
    own = [
        entry
        for dataset in result["datasets"]
        for name, entry in dataset["peers"].items()
        if name.startswith("foreload") and not (PEERS[name].tar and entry["failure"])
    ]
    missed = chosen.require_targets and any(
        entry.get(judged) is False for entry in own for judged in ("target_met", "memory_met")
    )
    return 1 if missed or any(entry["failure"] for entry in own) else 0


def settings(chosen: argparse.Namespace) -> dict:
    """Return what the rounds had in common."""
    keys = ("rounds", "epochs", "warmup", "batch_size", "image_size", "threads")
    return {key: getattr(chosen, key) for key in keys} | {
        "requirements": {name: list(recipe.requirements) for name, recipe in environments.RECIPES.items()}
    }


if __name__ == "__main__":
    sys.exit(main())
