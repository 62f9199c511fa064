"""Measures several nodes on one machine that share a slow storage, with caches that peers can read and with private
ones.

A node is a process in a network namespace, with its own cache directory. The storage is the dataset through FUSE, one
mount for all nodes, which limits their total bandwidth and counts its bytes. Namespaces need root.

make bench-nodes
.venv/bin/python benches/nodes/run.py --peers off --parts storage
"""

from __future__ import annotations

import argparse
import inspect
import signal
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import foreload
import namespaces
import parts
import storage
from harness import datasets, options, programs, report
from harness import parts as harness_parts
from harness.environments import Unavailable
from harness.storage import SLOW_FS
from homes import hollow
from training import Cluster


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__, "nodes", targets=False)
    harness_parts.add_option(parser, parts.PARTS)
    parser.add_argument(
        "--peers",
        choices=["on", "off"],
        help="off measures private caches alone and judges no bound of peers; on where this Foreload has them",
    )
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rates", default="open=1ms,read=1ms,bandwidth=50MB", help="of the slow storage")
    parser.add_argument("--foreload", type=Path, default=Path(sys.executable).with_name("foreload"))
    parser.add_argument("--slow-fs", type=Path, default=SLOW_FS)
    return parser.parse_args()


def knows(setting: str) -> bool:
    return setting in inspect.signature(foreload.ImageLoader).parameters


def measure(chosen: argparse.Namespace, scratch: Path, peers: bool) -> dict:
    folder, index = chosen.data / f"images-{chosen.images}", scratch / "index"
    datasets.synthesise(chosen.foreload, folder, "--images", chosen.images)
    known = programs.json_of([chosen.foreload, "index", folder, "--index-dir", index, "--json"])
    empty = hollow(folder, scratch / "hollow")
    with (
        storage.mounted(chosen.slow_fs, folder, scratch / "shared", chosen.rates) as slow,
        storage.mounted(chosen.slow_fs, empty, scratch / "empty", "open=0ms") as bare,
    ):
        bench = parts.Bench(
            cluster=Cluster(slow, index, scratch),
            program=chosen.foreload,
            folder=folder,
            empty=bare.path,
            samples=known["samples"],
            total=known["total_bytes"],
            largest=known["largest"],
            peers=peers,
        )
        found = harness_parts.run(parts.PARTS, chosen.parts, bench)
    return {
        "machine": report.machine(),
        "rates": chosen.rates,
        "samples": bench.samples,
        "bytes": bench.total,
        "peers": peers,
        "parts": found,
    }


def as_text(result: dict) -> str:
    about = [
        f"Slow storage, of all nodes together: {result['rates']}; {result['samples']} images, "
        f"{result['bytes'] / 1e6:.0f} MB."
    ]
    if not result["peers"]:
        about.append("Without peers: every cache is its node's own, and no bound of theirs is judged.")
    return harness_parts.as_text("Nodes", about, result, parts.PARTS)


def main() -> int:
    chosen = parse_arguments()
    # Mounts and namespaces are removed if the program is asked to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Reading a hollow dataset warns; failures show which samples the caches contain.
    warnings.simplefilter("ignore", foreload.Warning)
    peers = chosen.peers == "on" if chosen.peers else knows("peers")
    if peers and not knows("peers"):
        print(
            "this Foreload has no setting `peers`: see private caches alone by --peers off", file=sys.stderr
        )
        return 1
    if not peers:
        report.log("without peers: private caches alone")
    scratch = (chosen.data / "scratch").absolute()
    try:
        with namespaces.alone(), storage.workplace(scratch):
            result = measure(chosen, scratch, peers)
    except (namespaces.Refused, Unavailable) as reason:
        print(f"not measured: {reason}", file=sys.stderr)
        return 1
    report.deliver(result, as_text(result), chosen)
    return int(harness_parts.failed(result) or harness_parts.missed(result))


if __name__ == "__main__":
    sys.exit(main())
