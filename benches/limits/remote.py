"""Measures how many ranges a second one thread reads from a server, and the CPU time of the reading process for each.

The server is the tests' Range server on this machine, with one processor of its own; the reader, alone and at full
speed in the order of training, has another. Its samples are of tar shards of about 110 KB each, in the page cache.

.venv/bin/python benches/limits/remote.py --data data/folder --output benches/results/remote
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

# Behind this folder, whose run.py is meant below.
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "compare"))
import photographs
import report
import run as limits
from environments import ROOT, Unavailable

READS_TARGET = 5000
CPU_TARGETS = {"http": 80.0, "https": 160.0}
SERVER = ROOT / "target" / "release" / "range-server"


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "folder", help="image folder")
    parser.add_argument("--shards", type=Path, help="tar shards of it (default: `tar` beside the folder)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4, help="epochs in each round")
    parser.add_argument("--depth", type=int, default=64, help="requests in flight, and so connections")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--output", type=Path, help="keep the result in OUTPUT.json and OUTPUT.md too")
    chosen = parser.parse_args()
    chosen.shards = chosen.shards or photographs.shards_beside(chosen.data)
    return chosen


def build_server() -> None:
    """Build the server."""
    command = ["cargo", "build", "--release", "--locked", "-p", "range-server"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        raise Unavailable("cargo build of the Range server failed")


@contextmanager
def served(shards: Path, tls: Path | None):
    """Serve the shards by a server on the second processor; yields its URL."""
    command = ["taskset", "-c", "1", SERVER, shards, *(["--tls", tls] if tls else [])]
    server = subprocess.Popen(
        [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield server.stdout.readline().strip()
    finally:
        server.stdin.close()
        server.wait()


def entry(rounds: list[dict], scheme: str) -> dict:
    """Return the medians of one way to read, and whether they are what was asked."""
    found = limits.reader_entry(rounds)
    if found["failure"] is None:
        cpu = found["cpu_microseconds_per_read"]["median"]
        enough = scheme != "http" or found["reads_per_s"]["median"] >= READS_TARGET
        found["target_met"] = enough and cpu <= CPU_TARGETS[scheme]
    return found


def main() -> int:
    """Measure and report."""
    chosen = parse_arguments()
    if not any(chosen.shards.glob("*.tar")):
        raise SystemExit(f"{chosen.shards}: no tar shards; `foreload synth DIR --layout tar` makes some")
    build_server()
    reader = limits.build_reader()
    for shard in chosen.shards.glob("*.tar"):
        shard.read_bytes()
    with tempfile.TemporaryDirectory(prefix="foreload-remote-") as scratch:
        tls = Path(scratch) / "tls"
        tls.mkdir()
        with served(chosen.shards, None) as http, served(chosen.shards, tls) as https:
            trusted = os.environ | {"SSL_CERT_FILE": str(tls / "ca.pem"), "FORELOAD_INDEX_DIR": scratch}
            flags = ["--epochs", chosen.epochs, "--depth", chosen.depth, "--cache", "auto"]

            def read(url: str) -> dict:
                return limits.run_json(["taskset", "-c", "0", reader, url, *flags], trusted)

            runs = {"http": lambda: read(http), "https": lambda: read(https)}
            results = limits.alternate(runs, chosen.rounds, lambda: None)
    entries = {scheme: entry(rounds, scheme) for scheme, rounds in results.items()}
    result = {"benchmark": "remote", "machine": report.machine(), "programs": entries}
    head = ["source", "reads/s", "MB/s", "CPU µs a read", ""]
    plain, secure = (f"{CPU_TARGETS[scheme]:.0f} µs" for scheme in ("http", "https"))
    asked = f"Asked: {READS_TARGET} reads/s by http, at most {plain} a read, by https {secure}."
    text = "\n\n".join(
        [
            report.machine_line(result["machine"]),
            f"Ranges of tar shards from a server beside the reader, {chosen.depth} connections: median (range)",
            report.table(head, limits.rows(result, limits.reader_row)),
            asked,
        ]
    )
    report.deliver(result, text, chosen.json, chosen.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
