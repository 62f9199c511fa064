"""Times Foreload and each layout's own library on files that this library wrote: same images, cores and views.

First part: CPU seconds and images per second of whole epochs, in alternating rounds. Second part: the time to open a
dataset of ten million samples that was indexed before. A layout that Foreload cannot read is omitted from both, with a
line that says so.
"""

from __future__ import annotations

import argparse
import functools
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import making
from harness import aims, datasets, options, programs, report, rounds
from harness.aims import at_least, at_most
from harness.environments import Unavailable
from harness.rounds import COMPARED, Entrant, Standing
from making import Writer

HERE = Path(__file__).resolve().parent
OWN = "foreload"
CPU_AIM = at_least(3.0)
"""The ratio of the best peer's CPU time to Foreload's."""
OPENING_AIM = at_most(1.0)
"""The seconds from the call to a loader of an indexed dataset."""
FIRST_BATCH = """
import sys, foreload
next(iter(foreload.ImageLoader(sys.argv[1], batch_size=1, device="cpu", progress=False)))
"""
OPEN = """
import json, sys, time, foreload
root, index = sys.argv[1:]
begun = time.perf_counter()
loader = foreload.ImageLoader(root, batch_size=256, index_dir=index, progress=False, device="cpu")
print(json.dumps({"seconds": time.perf_counter() - begun, "samples": loader.samples}))
"""
SHARD_SAMPLES = 100_000
"""The samples of the shard that is linked under many names in the second part."""


@dataclass(frozen=True)
class Layout:
    """A layout, the program that writes it, and the peers that read it."""

    title: str
    writer: Writer
    peers: dict[str, Entrant]


def peer(title: str, program: str, environment: str, variant: str = "", sharded: bool = False) -> Entrant:
    return Entrant(title, HERE / "peers" / f"{program}.py", environment, variant, sharded)


FORELOAD = Entrant("**Foreload**", COMPARED / "foreload_loader.py", variant="fast-f32")
WEBDATASET = Entrant("WebDataset + torchvision.io", COMPARED / "webdataset_io.py", "torch", sharded=True)
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
    "webdataset": Layout("WebDataset", Writer("tar_webdataset", "webdataset"), {"webdataset": WEBDATASET}),
    "tfrecord": Layout(
        "TFRecord with tf.Example",
        Writer("tfrecord_tensorflow", "tensorflow"),
        {"tf-data": peer("tf.data, fused decode-and-crop", "tfrecord_tf_data", "tensorflow")},
    ),
}


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--images", type=int, default=4000, help="how many of its images are written")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--parts", nargs="+", choices=("speed", "opening"), default=["speed", "opening"])
    parser.add_argument("--epochs", type=int, default=1, help="timed epochs in each round")
    parser.add_argument("--samples", type=int, default=10_000_000, help="samples of datasets to be opened")
    options.add_loaders(parser, rounds=3)
    chosen = parser.parse_args()
    if chosen.samples % min(SHARD_SAMPLES, chosen.samples):
        parser.error(f"--samples: is {chosen.samples}, must be below or a multiple of {SHARD_SAMPLES}")
    return chosen


def speed(name: str, root: Path, images: int, chosen: argparse.Namespace) -> dict:
    """Run all rounds of a layout's peers and Foreload."""
    peers = {OWN: FORELOAD, **LAYOUTS[name].peers}
    datasets.warm([path for path in root.iterdir() if path.is_file()])

    def check(who: str, result: dict) -> None:
        dropped = chosen.batch_size * (chosen.threads if peers[who].sharded else 1)
        rounds.check_images(result, images, dropped)

    more = ("--shards", root, "--epochs", chosen.epochs)
    entrants = {who: functools.partial(peer.program, root, chosen, *more) for who, peer in peers.items()}
    standings = rounds.hold(entrants, check, chosen.rounds, title=name)
    return summarise(standings, {who: peer.title for who, peer in peers.items()})


def summarise(standings: dict[str, Standing], titles: dict[str, str]) -> dict:
    """Return medians and ranges, and the ratio of the least CPU time of the peers to Foreload's."""
    summary = {"peers": rounds.entries(standings, titles)}
    cpu = {
        name: used
        for name, entry in summary["peers"].items()
        if (used := aims.median(entry, "cpu_seconds_per_1000")) is not None
    }
    best = min((name for name in cpu if name != OWN), key=cpu.__getitem__, default=None)
    if best and OWN in cpu:
        less = cpu[best] / cpu[OWN]
        summary |= {"best_peer": best, "less_cpu": less, "met": CPU_AIM.met(less)}
    return summary


def opening(name: str, folder: Path, chosen: argparse.Namespace) -> dict:
    """Index a dataset of many samples and open it again in new processes; return the seconds of both."""
    each = min(SHARD_SAMPLES, chosen.samples)
    source = making.thumbnails(chosen.data, 10, folder / "thumbnails", chosen.envs)
    words = ["--copies", each // 10, "--shard-samples", each]
    shard = making.ensure(LAYOUTS[name].writer, source, folder / f"{name}-shard-{each}", words, chosen.envs)
    root = making.repeated(shard, chosen.samples // each, folder / f"{name}-{chosen.samples}")
    index = chosen.envs / "scratch" / f"index-{name}-{chosen.samples}"
    for old in index.glob("*"):
        old.unlink()

    def start() -> float:
        result = programs.json_of([rounds.interpreter(None, chosen), "-c", OPEN, root, index])
        if result["samples"] != chosen.samples:
            raise Unavailable(f"has {result['samples']} samples, not {chosen.samples}")
        report.log(f"{name}: opened in {result['seconds']:.2f} s")
        return result["seconds"]

    first = start()
    again = report.spread([start() for _ in range(chosen.rounds)])
    found = {"samples": chosen.samples, "indexed_seconds": first, "opened_seconds": again}
    return found | {"met": OPENING_AIM.met(again["median"])}


def measure(name: str, part: Path, chosen: argparse.Namespace) -> dict:
    """Return all measurements of a layout, or the reason why it is omitted."""
    folder = chosen.data.parent / "layouts"
    images = len(datasets.jpegs(part))
    # There must be at least as many shards as workers.
    words = ["--shard-samples", max(1, min(500, images // (2 * chosen.threads)))]
    try:
        root = making.ensure(LAYOUTS[name].writer, part, folder / f"{name}-{images}", words, chosen.envs)
        programs.output_of([rounds.interpreter(None, chosen), "-W", "ignore", "-c", FIRST_BATCH, root])
    except Unavailable as reason:
        report.log(f"{name}: left out: {reason}")
        return {"skipped": str(reason)}
    entry = {}
    if "speed" in chosen.parts:
        entry["speed"] = speed(name, root, images, chosen)
    if "opening" in chosen.parts:
        entry["opening"] = {"met": False} | rounds.attempt(lambda: opening(name, folder, chosen))
    return entry


def as_text(result: dict) -> str:
    chosen = result["settings"]
    parts = [report.machine_line(result["machine"])]
    for name, entry in result["layouts"].items():
        parts.append(f"## {LAYOUTS[name].title}")
        if entry.get("skipped"):
            parts.append(f"Left out, as Foreload does not read it: {entry['skipped']}")
            continue
        if judged := entry.get("speed"):
            parts.append(
                f"{chosen['images']} JPEGs in the page cache, RandomResizedCrop 224 + flip + normalise, NCHW, batch "
                f"{chosen['batch_size']}, {chosen['threads']} cores; {chosen['rounds']} rounds, median (range)"
            )
            head = ["loader", "images/s", "CPU s per 1 000"]
            parts.append(report.table(head, [report.loader(peer) for peer in judged["peers"].values()]))
            if "less_cpu" in judged:
                told = f"{judged['less_cpu']:.2f} times less CPU than {judged['best_peer']}"
                parts.append(f"{told}, asked {CPU_AIM.bound:g}: {aims.word(judged['met'])}")
        if seconds := entry.get("opening"):
            if "failure" in seconds:
                parts.append(f"Opening: not measured: {seconds['failure']}")
                continue
            parts.append(
                f"{seconds['samples']} samples: indexed in {seconds['indexed_seconds']:.1f} s, then opened in "
                f"{report.show(seconds['opened_seconds'], 2)} s, asked {OPENING_AIM.bound:g}: "
                f"{aims.word(seconds['met'])}"
            )
    return "\n\n".join(parts)


def main() -> int:
    """Write, measure, report; return 1 if Foreload failed, or missed a required target."""
    chosen = parse_arguments()
    rounds.use_cores(chosen.threads)
    if chosen.data.name == "folder":
        program = chosen.foreload_python.parent / "foreload"
        datasets.synthesise(program, chosen.data, "--images", datasets.IMAGES)
    part = datasets.part(chosen.data, chosen.images, chosen.envs / "scratch")
    result = {
        "benchmark": "layouts",
        "machine": report.machine(),
        "settings": options.settings(chosen, "rounds epochs warmup batch_size threads images"),
        "layouts": {name: measure(name, part, chosen) for name in chosen.layouts},
    }
    report.deliver(result, as_text(result), chosen)
    judged = [
        part for entry in result["layouts"].values() for part in entry.values() if isinstance(part, dict)
    ]
    failed = any(part.get("peers", {}).get(OWN, {}).get("failure") for part in judged)
    return options.exit_code(chosen, failed, not all(part.get("met") for part in judged))


if __name__ == "__main__":
    sys.exit(main())
