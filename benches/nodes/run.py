"""Measures several nodes on one machine that share a slow storage, with caches that peers read and with private ones.

A node is a process in a network namespace, with a cache directory of its own. The storage is the dataset behind FUSE,
one for all nodes, which limits their bandwidth together and counts what it gives. It needs root, for namespaces.

make bench-nodes
.venv/bin/python benches/nodes/run.py --peers off --parts storage
"""

from __future__ import annotations

import argparse
import inspect
import json
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import foreload
import namespaces
import parts
import report
import storage
from environments import ROOT, Unavailable
from homes import hollow
from training import Cluster


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=list(parts.PARTS), default=list(parts.PARTS))
    parser.add_argument(
        "--peers",
        choices=["on", "off"],
        help="off measures private caches alone and judges no bound of peers; on where this Foreload has them",
    )
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rates", default="open=1ms,read=1ms,bandwidth=50MB", help="of the slow storage")
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "nodes", help="made where it is missing")
    parser.add_argument("--foreload", type=Path, default=Path(sys.executable).with_name("foreload"))
    parser.add_argument("--slow-fs", type=Path, default=ROOT / "target" / "release" / "slow-fs")
    parser.add_argument("--output", type=Path, help="keep the result in OUTPUT.json and OUTPUT.md too")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    return parser.parse_args()


def knows(setting: str) -> bool:
    """Return whether this Foreload has a setting."""
    return setting in inspect.signature(foreload.ImageLoader).parameters


def make_data(program: Path, folder: Path, images: int) -> None:
    """Make the dataset where it is missing."""
    if not folder.exists():
        report.log(f"making {folder.name}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        words = [program, "synth", folder, "--images", images]
        subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)


def measure(chosen: argparse.Namespace, scratch: Path, peers: bool) -> dict:
    """Return the results of all parts."""
    folder = chosen.data / f"images-{chosen.images}"
    make_data(chosen.foreload, folder, chosen.images)
    index = scratch / "index"
    words = [chosen.foreload, "index", folder, "--index-dir", index, "--json"]
    known = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
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
        found = {name: run_part(name, bench) for name in chosen.parts}
    return {
        "machine": report.machine(),
        "rates": chosen.rates,
        "samples": bench.samples,
        "bytes": bench.total,
        "peers": peers,
        "parts": found,
    }


def run_part(name: str, bench: parts.Bench) -> dict:
    """Return a part's result, or why there is none."""
    report.log(f"{name}: {parts.TITLES[name]}")
    started = time.perf_counter()
    try:
        return parts.PARTS[name](bench) | {"seconds": time.perf_counter() - started}
    except (parts.Skipped, namespaces.NotShaped) as reason:
        report.log(f"skipped: {reason}")
        return {"skipped": str(reason)}
    except (Unavailable, namespaces.Refused, OSError, ValueError) as reason:
        report.log(f"failed: {reason!r}")
        return {"failure": f"{type(reason).__name__}: {reason}".replace(f"{ROOT}/", "")}


def as_text(result: dict) -> str:
    """Return the report in Markdown."""
    lines = ["# Nodes", "", report.machine_line(result["machine"]), ""]
    lines += [
        f"Slow storage, of all nodes together: {result['rates']}; {result['samples']} images, "
        f"{result['bytes'] / 1e6:.0f} MB.",
        "",
    ]
    if not result["peers"]:
        lines += ["Without peers: every cache is its node's own, and no bound of theirs is judged.", ""]
    for name, part in result["parts"].items():
        lines += [f"## {parts.TITLES[name]}", ""]
        if missing := part.get("failure") or part.get("skipped"):
            lines += [f"Not measured: {missing}", ""]
            continue
        lines += [parts.NOTES[name], ""]
        lines += [report.table(part["head"], part["rows"]), ""]
        lines += [f"- {'met' if check['met'] else '**missed**'}: {check['says']}" for check in part["checks"]]
        lines += [""] if part["checks"] else []
    return "\n".join(lines).rstrip()


def main() -> int:
    """Return 0 when everything was measured and every bound was met."""
    chosen = parse_arguments()
    # What is mounted and made is taken back when the program is asked to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # The caches' contents are found by what fails.
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
    report.deliver(result, as_text(result), chosen.json, chosen.output)
    found = result["parts"].values()
    failed = any("failure" in part for part in found)
    return int(failed or any(not check["met"] for part in found for check in part.get("checks", [])))


if __name__ == "__main__":
    sys.exit(main())
