"""Measures how many ranges per second one thread reads from a server, and the reading process's CPU time per range.

The server is the tests' range server on this machine, with its own processor; the reader, alone and at full speed in
the order of training, has another. The samples are in tar shards, about 110 KB each, in the page cache.

.venv/bin/python benches/limits/remote.py --data data/folder --output benches/results/remote
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

# This folder comes after that one, whose run.py is imported below.
sys.path.insert(1, str(Path(__file__).resolve().parents[1]))
import run as limits
from harness import aims, datasets, options, programs, report
from harness.aims import at_least, at_most
from harness.environments import ROOT
from harness.rounds import Standing

READS = at_least(5000)
"""Reads per second over http."""
CPU = {"http": at_most(80.0), "https": at_most(160.0)}
"""Microseconds of CPU per read."""
SERVER = ROOT / "target" / "release" / "range-server"


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__, targets=False)
    parser.add_argument("--shards", type=Path, help="tar shards of it (default: `tar` next to the folder)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4, help="epochs in each round")
    parser.add_argument("--depth", type=int, default=64, help="requests in flight, and so connections")
    chosen = parser.parse_args()
    chosen.shards = chosen.shards or datasets.shards_beside(chosen.data)
    return chosen


@contextmanager
def served(shards: Path, tls: Path | None):
    """Serve the shards from a server on the second processor; yields its URL."""
    command = ["taskset", "-c", "1", SERVER, shards, *(["--tls", tls] if tls else [])]
    with programs.Worker(command) as server:
        yield server.read().strip()


def entry(standing: Standing, scheme: str) -> dict:
    """Return the medians of one way to read, and whether they meet the aims."""
    found = limits.reader_entry(standing)
    if found["failure"] is None:
        cpu, reads = (aims.median(found, key) for key in ("cpu_microseconds_per_read", "reads_per_s"))
        found["target_met"] = (scheme != "http" or READS.met(reads)) and CPU[scheme].met(cpu)
    return found


def main() -> int:
    chosen = parse_arguments()
    if not any(chosen.shards.glob("*.tar")):
        raise SystemExit(f"{chosen.shards}: no tar shards; `foreload synth DIR --layout tar` makes some")
    command = ["cargo", "build", "--release", "--locked", "-p", "range-server"]
    programs.output_of(command, cwd=ROOT)
    reader = limits.build_reader()
    datasets.warm(list(chosen.shards.glob("*.tar")))
    with tempfile.TemporaryDirectory(prefix="foreload-remote-") as scratch:
        tls = Path(scratch) / "tls"
        tls.mkdir()
        with served(chosen.shards, None) as http, served(chosen.shards, tls) as https:
            trusted = os.environ | {"SSL_CERT_FILE": str(tls / "ca.pem"), "FORELOAD_INDEX_DIR": scratch}
            flags = ["--epochs", chosen.epochs, "--depth", chosen.depth, "--cache", "auto"]

            def read(url: str) -> dict:
                return programs.json_of(["taskset", "-c", "0", reader, url, *flags], trusted)

            runs = {"http": lambda: read(http), "https": lambda: read(https)}
            results = limits.alternate(runs, chosen.rounds)
    entries = {scheme: entry(rounds, scheme) for scheme, rounds in results.items()}
    result = {"benchmark": "remote", "machine": report.machine(), "programs": entries}
    head = ["source", "reads/s", "MB/s", "CPU µs a read", ""]
    plain, secure = (f"{CPU[scheme].bound:.0f} µs" for scheme in ("http", "https"))
    asked = f"Asked: {READS.bound} reads/s by http, at most {plain} a read, by https {secure}."
    text = "\n\n".join(
        [
            report.machine_line(result["machine"]),
            f"Ranges of tar shards from a server on the same machine, {chosen.depth} connections: median (range)",
            report.table(head, limits.rows(result, limits.reader_row)),
            asked,
        ]
    )
    report.deliver(result, text, chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
