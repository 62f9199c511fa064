"""Times Foreload and the loaders that a user might choose instead: same files, output and cores, in one run.

The table gives medians of alternating rounds with their range. Every peer has its own environment, installed on first
use; a peer that cannot be installed or fails stays in the table with the reason.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import plot
from harness import aims, datasets, environments, options, report, rounds
from harness.aims import Aim, at_least
from harness.environments import Unavailable
from harness.rounds import COMPARED, Entrant, Program, Standing

MEMORY_TARGET = 300e6
"""The limit of Foreload's peak memory in bytes, which must also be below that of every peer."""


@dataclass(frozen=True)
class Peer(Entrant):
    """One line of the table; `sharded` peers read the tar shards."""

    equal: bool = True
    """Whether it does the same work with the same quality: antialiased resize of the source files."""
    aim: Aim | None = None
    """Only for Foreload: the ratio of the CPU time of the best equal peer to Foreload's."""

    def program(self, data: Path, chosen: argparse.Namespace, *more: object) -> Program:
        """Return the program to run; Foreload's torch dataset finds torch in the environment of that name."""
        made = super().program(data, chosen, *more)
        if not self.environment and "torch" in self.variant:
            environments.ensure("torch", chosen.envs)
            made.variables["PYTHONPATH"] += f":{environments.site_packages('torch', chosen.envs)}"
        return made


def own(title: str, variant: str, aim: Aim | None = None, sharded: bool = False) -> Peer:
    source = COMPARED / "foreload_loader.py"
    return Peer(f"**Foreload** {title}", source, variant=variant, aim=aim, sharded=sharded)


def other(title: str, program: str, environment: str, variant: str = "", **more: bool) -> Peer:
    return Peer(title, COMPARED / f"{program}.py", environment, variant, **more)


PEERS: dict[str, Peer] = {
    "foreload-fast-f16": own("fast, float16", "fast-f16", at_least(4.0)),
    "foreload-fast-f32": own("fast", "fast-f32", at_least(3.6)),
    "foreload-exact-f32": own("exact", "exact-f32", at_least(3.3)),
    "foreload-torch-f32": own("fast, torch dataset", "torch-fast-f32"),
    "foreload-tar-f32": own("fast, tar shards", "tar-fast-f32", sharded=True),
    "dali": other("DALI, CPU pipeline, fused random-crop decode", "dali_cpu", "dali"),
    "torchvision-io": other("torchvision.io + v2, batched normalise", "torchvision_io", "torch"),
    "torchcodec": other("torchcodec + v2, batched normalise", "torchcodec_jpeg", "torch"),
    "webdataset": other("WebDataset + torchvision.io", "webdataset_io", "torch", sharded=True),
    "torchvision-pil": other("torchvision ImageFolder, Pillow", "torchvision_pil", "torch"),
    "torchvision-simd": other("torchvision ImageFolder, Pillow-SIMD", "torchvision_pil", "pillow-simd"),
    "tf-data": other("tf.data, fused decode-and-crop, antialiased", "tf_data", "tensorflow"),
    "spdl": other("SPDL (FFmpeg)", "spdl_ffmpeg", "spdl"),
    "dali-f16": other("DALI, float16", "dali_cpu", "dali", "f16"),
    "ffcv-jpg": other("FFCV, re-encoded JPEG (area resize)", "ffcv_beton", "ffcv", "jpg", equal=False),
    "ffcv-raw": other("FFCV, raw pixels, resized when written", "ffcv_beton", "ffcv", "raw", equal=False),
    "opencv": other(
        "OpenCV + albumentations (no antialiasing)", "opencv_albumentations", "opencv", equal=False
    ),
    "tf-data-plain": other("tf.data, no antialiasing", "tf_data", "tensorflow", "plain", equal=False),
}


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__, several=True)
    parser.add_argument(
        "--shards", type=Path, nargs="+", help="tar shards of the same samples (default: `tar` next to each)"
    )
    names = ", ".join(PEERS)
    parser.add_argument("--peers", nargs="+", choices=PEERS, metavar="PEER", default=list(PEERS), help=names)
    options.add_loaders(parser, rounds=5)
    parser.add_argument("--epochs", type=int, default=1, help="timed epochs in each round")
    parser.add_argument("--epochs-before", type=int, default=1, help="whole epochs before those")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--no-memory", action="store_true", help="leave out the round that samples memory")
    chosen = parser.parse_args()
    if chosen.shards and len(chosen.shards) != len(chosen.data):
        parser.error("--shards: give one folder for each of --data")
    return chosen


def program_of(peer: Peer, data: Path, shards: Path, chosen: argparse.Namespace) -> Program:
    more = ["--image-size", chosen.image_size, "--epochs", chosen.epochs]
    more += ["--epochs-before", chosen.epochs_before]
    if peer.sharded:
        if not any(shards.glob("*.tar")):
            raise Unavailable(f"no tar shards of {data.name}")
        more += ["--shards", shards]
    return peer.program(data, chosen, *more)


def measure_dataset(data: Path, shards: Path, chosen: argparse.Namespace) -> dict:
    files = datasets.jpegs(data)
    size = datasets.warm(files)
    datasets.warm(list(shards.glob("*.tar")))

    def check(name: str, result: dict) -> None:
        workers = chosen.threads if PEERS[name].sharded else 1
        rounds.check_images(result, len(files), chosen.batch_size * workers)

    entrants = {
        name: functools.partial(program_of, PEERS[name], data, shards, chosen) for name in chosen.peers
    }
    standings = rounds.hold(entrants, check, chosen.rounds, not chosen.no_memory, data.name)
    peers = summarise(standings)
    return {"data": data.name, "images": len(files), "mean_bytes": size / len(files), "peers": peers}


def summarise(standings: dict[str, Standing]) -> dict:
    """Return medians, ranges and ratios to the best peer of equal quality."""
    summary = rounds.entries(standings, {name: peer.title for name, peer in PEERS.items()})
    measured = {name: entry for name, entry in summary.items() if "images_per_s" in entry}
    for name, entry in summary.items():
        entry["equal_quality"] = PEERS[name].equal
    for name, entry in measured.items():
        entry["peak_rss_bytes"] = standings[name].peak_bytes
        entry["start_seconds"] = statistics.median(run["start_seconds"] for run in standings[name].runs)
    others = {name: entry for name, entry in measured.items() if not name.startswith("foreload")}
    rivals = {name: entry for name, entry in others.items() if entry["equal_quality"]}
    if rivals:
        cpu = {name: aims.median(entry, "cpu_seconds_per_1000") for name, entry in measured.items()}
        least_cpu = min(rivals, key=cpu.__getitem__)
        fastest = max(aims.median(entry, "images_per_s") for entry in rivals.values())
        for name, entry in measured.items():
            entry["best_peer"] = least_cpu
            entry["cpu_factor"] = cpu[least_cpu] / cpu[name]
            entry["speed_factor"] = aims.median(entry, "images_per_s") / fastest
            if aim := PEERS[name].aim:
                entry["target_factor"] = aim.bound
                entry["target_met"] = aim.met(entry["cpu_factor"])
    peaks = [peak for entry in others.values() if (peak := entry["peak_rss_bytes"])]
    for name, entry in measured.items():
        if PEERS[name].aim and (peak := entry["peak_rss_bytes"]):
            entry["memory_target_bytes"] = MEMORY_TARGET
            entry["least_peer_rss_bytes"] = min(peaks, default=None)
            entry["memory_met"] = peak <= MEMORY_TARGET and all(peak < other for other in peaks)
    return summary


HEAD = ["loader", "images/s", "CPU s per 1 000", "less CPU than best peer", "images/s of fastest", "peak MB"]


def as_text(result: dict) -> str:
    parts = [report.machine_line(result["machine"])]
    chosen = result["settings"]
    for dataset in result["datasets"]:
        parts.append(
            f"`{dataset['data']}`: {dataset['images']} JPEGs, "
            f"{dataset['mean_bytes'] / 1000:.0f} KB on average, page cache warm, "
            f"RandomResizedCrop {chosen['image_size']} + flip + normalise, NCHW, "
            f"batch {chosen['batch_size']}, {chosen['threads']} cores; whole epochs before: "
            f"{chosen['epochs_before']}; {chosen['rounds']} rounds, median (range)"
        )
        peers = dataset["peers"]
        order = sorted(
            peers.values(), key=lambda entry: aims.median(entry, "cpu_seconds_per_1000") or float("inf")
        )
        parts.append(report.table(HEAD, [row(entry) for entry in order]))
        best = next((entry["best_peer"] for entry in order if "best_peer" in entry), None)
        if best:
            parts.append(
                f"Best peer of equal quality: {peers[best]['title']}. \\* other work or lower quality."
            )
        for entry in peers.values():
            if "target_factor" in entry:
                factors = f"{entry['cpu_factor']:.2f} times less CPU, asked {entry['target_factor']}"
                parts.append(f"{entry['title']}: {factors}: {aims.word(entry['target_met'])}")
            if "memory_met" in entry:
                asked = f"asked {entry['memory_target_bytes'] / 1e6:.0f} at most"
                if entry["least_peer_rss_bytes"]:
                    asked += f" and less than every peer ({entry['least_peer_rss_bytes'] / 1e6:.0f})"
                peak, word = f"{entry['peak_rss_bytes'] / 1e6:.0f} MB", aims.word(entry["memory_met"])
                parts.append(f"{entry['title']}: {peak}, {asked}: {word}")
    return "\n\n".join(parts)


def row(entry: dict) -> list[str]:
    factors = [report.digits(entry.get(key), 2) for key in ("cpu_factor", "speed_factor")]
    peak = entry.get("peak_rss_bytes")
    mark = "" if entry["equal_quality"] else " \\*"
    return report.loader(entry, *factors, f"{peak / 1e6:.0f}" if peak else "", mark=mark)


def main() -> int:
    """Install, measure, report; return 1 if Foreload failed, or missed a required target."""
    chosen = parse_arguments()
    rounds.use_cores(chosen.threads)
    asked = options.settings(chosen, "rounds epochs epochs_before warmup batch_size image_size threads")
    asked["requirements"] = options.requirements(set(environments.RECIPES))
    result = {"benchmark": "compare", "machine": report.machine(), "settings": asked, "datasets": []}
    for position, data in enumerate(chosen.data):
        datasets.ensure_known(data, chosen.foreload_python.parent / "foreload")
        shards = chosen.shards[position] if chosen.shards else datasets.shards_beside(data)
        result["datasets"].append(measure_dataset(data, shards, chosen))
    report.deliver(result, as_text(result), chosen)
    if chosen.output:
        chosen.output.with_suffix(".svg").write_text(plot.svg(result["datasets"][0]))
    own = [
        entry
        for dataset in result["datasets"]
        for name, entry in dataset["peers"].items()
        if name.startswith("foreload") and not (PEERS[name].sharded and entry["failure"])
    ]
    missed = any(entry.get(judged) is False for entry in own for judged in ("target_met", "memory_met"))
    return options.exit_code(chosen, any(entry["failure"] for entry in own), missed)


if __name__ == "__main__":
    sys.exit(main())
