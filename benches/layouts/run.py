"""Times Foreload beside each layout's own library on the files that this library wrote: same images, cores and views.

First part: CPU seconds and images a second of whole epochs, in alternating rounds. Second part: how long it takes to
open a dataset of ten million samples that was indexed before. A layout that Foreload cannot read is left out of both
with a line that says so.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import contest
import environments
import layout_verdicts
import making
import photographs
import report
from contest import Program
from environments import Unavailable
from layout_verdicts import OWN
from making import Writer

HERE = Path(__file__).resolve().parent
SHARED = contest.HERE / "peers"
FIRST_BATCH = """
import sys, foreload
next(iter(foreload.ImageLoader(sys.argv[1], batch_size=1, device="cpu", progress=False)))
"""
SHARD_SAMPLES = 100_000
"""The samples of the shard that lies under many names where a dataset is only opened."""


@dataclass(frozen=True)
class Peer:
    """One way to read a layout."""

    title: str
    source: Path
    environment: str | None
    """The peer's environment; None for Foreload's own interpreter."""
    variant: str = ""
    sharded: bool = False
    """Whether every worker has shards or samples of its own, and may drop a partial batch of them."""


@dataclass(frozen=True)
class Layout:
    """A layout, who writes it, and who reads it."""

    title: str
    writer: Writer
    peers: dict[str, Peer]


def peer(title: str, program: str, environment: str, variant: str = "", sharded: bool = False) -> Peer:
    """Return a peer of this benchmark's own."""
    return Peer(title, HERE / "peers" / f"{program}.py", environment, variant, sharded)


FORELOAD = Peer("**Foreload**", SHARED / "foreload_loader.py", None, "fast-f32")

LAYOUTS = {
    "parquet": Layout(
        "Parquet",
        Writer("parquet_datasets", "huggingface"),
        {
            "datasets": peer("datasets + torchvision.io", "parquet_datasets", "datasets"),
            "datasets-pil": peer("datasets, Pillow", "parquet_datasets", "datasets", "pil"),
        },
    ),
    "mds": Layout(
        "MDS",
        Writer("mds_streaming", "streaming"),
        {
            "streaming": peer("Streaming + torchvision.io", "mds_streaming", "streaming", "", True),
            "streaming-pil": peer("Streaming, Pillow", "mds_streaming", "streaming", "pil", True),
        },
    ),
    "webdataset": Layout(
        "WebDataset",
        Writer("tar_webdataset", "webdataset"),
        {
            "webdataset": Peer(
                "WebDataset + torchvision.io", SHARED / "webdataset_io.py", "torch", sharded=True
            )
        },
    ),
    "tfrecord": Layout(
        "TFRecord with tf.Example",
        Writer("tfrecord_tensorflow", "tensorflow"),
        {"tf-data": peer("tf.data, fused decode-and-crop", "tfrecord_tf_data", "tensorflow")},
    ),
}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = contest.folder_parser(__doc__)
    parser.add_argument("--images", type=int, default=4000, help="how many of its images are written")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--parts", nargs="+", choices=("speed", "opening"), default=["speed", "opening"])
    parser.add_argument("--epochs", type=int, default=1, help="timed epochs in each round")
    parser.add_argument(
        "--samples", type=int, default=10_000_000, help="samples of the datasets that are opened"
    )
    contest.add_options(parser, rounds=3)
    chosen = parser.parse_args()
    if chosen.samples % min(SHARD_SAMPLES, chosen.samples):
        parser.error(f"--samples: is {chosen.samples}, must be below or a multiple of {SHARD_SAMPLES}")
    return chosen


def unreadable(root: Path, chosen: argparse.Namespace) -> str | None:
    """Return why Foreload cannot read a dataset; None if it can."""
    command = [str(contest.interpreter(None, chosen)), "-W", "ignore", "-c", FIRST_BATCH, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return environments.last_lines(done.stderr) if done.returncode else None


def program_of(peer: Peer, root: Path, chosen: argparse.Namespace) -> Program:
    """Return how a peer is run; install what it needs."""
    python = contest.interpreter(peer.environment, chosen)
    made = contest.program(python, peer.source, root, peer.variant, chosen, (SHARED, HERE / "peers"))
    scratch = chosen.envs / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    made.words.extend(["--shards", str(root), "--scratch", str(scratch), "--epochs", str(chosen.epochs)])
    return made


def speed(name: str, root: Path, images: int, chosen: argparse.Namespace) -> dict:
    """Do all rounds of a layout's peers and Foreload."""
    layout = LAYOUTS[name]
    peers = {OWN: FORELOAD, **layout.peers}
    photographs.warm([path for path in root.iterdir() if path.is_file()])

    def check(who: str, result: dict) -> None:
        dropped = chosen.batch_size * (chosen.threads if peers[who].sharded else 1)
        contest.check_images(result, images, dropped)

    entrants = {who: functools.partial(program_of, peer, root, chosen) for who, peer in peers.items()}
    standings = contest.hold(entrants, check, chosen.rounds, memory=False, title=name)
    return layout_verdicts.summarise(standings, {who: peer.title for who, peer in peers.items()})


def opening(name: str, folder: Path, chosen: argparse.Namespace) -> dict:
    """Index a dataset of many samples and open it again in new processes; return the seconds of both."""
    layout = LAYOUTS[name]
    each = min(SHARD_SAMPLES, chosen.samples)
    source = making.thumbnails(chosen.data, 10, folder / "thumbnails", chosen.envs)
    words = ["--copies", str(each // 10), "--shard-samples", str(each)]
    shard = making.ensure(layout.writer, source, folder / f"{name}-shard-{each}", words, chosen.envs)
    root = making.repeated(shard, chosen.samples // each, folder / f"{name}-{chosen.samples}")
    index = chosen.envs / "scratch" / f"index-{name}-{chosen.samples}"
    for old in index.glob("*"):
        old.unlink()

    def start() -> dict:
        command = [contest.interpreter(None, chosen), HERE / "start.py", root, index]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(environments.last_lines(done.stderr))
        result = json.loads(done.stdout)
        if result["samples"] != chosen.samples:
            raise Unavailable(f"has {result['samples']} samples, not {chosen.samples}")
        report.log(f"{name}: opened in {result['seconds']:.2f} s")
        return result

    first = start()
    again = report.spread([start()["seconds"] for _ in range(chosen.rounds)])
    met = again["median"] < layout_verdicts.OPENING_TARGET
    return {
        "samples": chosen.samples,
        "indexed_seconds": first["seconds"],
        "opened_seconds": again,
        "met": met,
    }


def measure(name: str, part: Path, chosen: argparse.Namespace) -> dict:
    """Return all that is measured of a layout, or why it is left out."""
    layout, folder = LAYOUTS[name], chosen.data.parent / "layouts"
    images = len(photographs.jpegs(part))
    # At least as many shards as workers.
    words = ["--shard-samples", str(max(1, min(500, images // (2 * chosen.threads))))]
    try:
        root = making.ensure(layout.writer, part, folder / f"{name}-{images}", words, chosen.envs)
        if reason := unreadable(root, chosen):
            raise Unavailable(reason)
    except Unavailable as reason:
        report.log(f"{name}: left out: {reason}")
        return {"skipped": str(reason)}
    entry = {}
    if "speed" in chosen.parts:
        entry["speed"] = speed(name, root, images, chosen)
    if "opening" in chosen.parts:
        try:
            entry["opening"] = opening(name, folder, chosen)
        except Unavailable as reason:
            report.log(f"{name}: not opened: {reason}")
            entry["opening"] = {"failure": str(reason), "met": False}
    return entry


def main() -> int:
    """Write, measure, report; return 1 when Foreload failed, or missed a target that was required."""
    chosen = parse_arguments()
    contest.use_cores(chosen.threads)
    if chosen.data.name == "folder":
        photographs.ensure(chosen.data, "folder", chosen.foreload_python.parent / "foreload")
    part = photographs.part(chosen.data, chosen.images, chosen.envs / "scratch")
    result = {
        "benchmark": "layouts",
        "machine": report.machine(),
        "settings": {
            key: getattr(chosen, key)
            for key in ("rounds", "epochs", "warmup", "batch_size", "threads", "images")
        },
        "layouts": {name: measure(name, part, chosen) for name in chosen.layouts},
    }
    titles = {name: LAYOUTS[name].title for name in chosen.layouts}
    report.deliver(result, layout_verdicts.as_text(result, titles), chosen.json, chosen.output)
    judged = [
        part for entry in result["layouts"].values() for part in entry.values() if isinstance(part, dict)
    ]
    missed = chosen.require_targets and not all(part.get("met") for part in judged)
    failed = any(part.get("peers", {}).get(OWN, {}).get("failure") for part in judged)
    return 1 if missed or failed else 0


if __name__ == "__main__":
    sys.exit(main())
