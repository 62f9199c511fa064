"""Measures the tiers: bytes of the slow tier, staging beside training, stalls, shared caches, overhead, predictions.

Every figure comes from the counters of `foreload bench --json` on generated data; the slow tier is the dataset's own
storage slowed down by `--emulate-pfs`. LRU is computed on the same kind of order for comparison. A part that fails says
why, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import parts
import report
from environments import ROOT, Unavailable, last_lines


@dataclass
class Bench:
    """The program, its data and how slow the slow tier is."""

    program: Path
    folder: Path
    tar: Path
    scratch: Path
    batch: int
    image_size: int
    rounds: int
    open_ms: float
    read_ms: float
    bandwidth: int
    facts: dict = field(default_factory=dict)

    @property
    def spec(self) -> str:
        """Return the rates as `--emulate-pfs` takes them."""
        return f"open={self.open_ms}ms,read={self.read_ms}ms,bandwidth={self.bandwidth}"

    def json(self, *arguments: object) -> dict:
        """Run the program; return the JSON object that it prints."""
        return self.wait(self.start(*arguments))

    def start(self, *arguments: object) -> subprocess.Popen:
        """Start the program as a process of its own, for which `wait` waits."""
        command = [
            str(self.program),
            *map(str, arguments),
            "--index-dir",
            str(self.scratch / "index"),
            "--json",
        ]
        report.log(" ".join(command[1:]))
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait(self, process: subprocess.Popen) -> dict:
        """Return what a started process prints."""
        out, err = process.communicate()
        if process.returncode != 0:
            raise Unavailable(f"exit code {process.returncode}: {last_lines(err or out)}")
        return json.loads(out[out.index("{") :])

    def arguments(
        self, data: Path, *, slow: bool = True, consume_ms: float = 0, epochs: int = 1, **more: object
    ) -> list:
        """Return options of `foreload bench` for every sample in every epoch."""
        found = ["bench", data, "--epochs", epochs, "--batch-size", self.batch, "--last-batch", "partial"]
        more.setdefault("image_size", self.image_size)
        if slow:
            found += ["--emulate-pfs", self.spec]
        if consume_ms:
            found += ["--consume", f"{consume_ms:.3f}ms"]
        for name, value in more.items():
            found += [f"--{name.replace('_', '-')}", value]
        return found

    def epochs(self, data: Path, **options: object) -> list[dict]:
        """Return the epochs of one run."""
        return self.json(*self.arguments(data, **options))["epochs"]

    def size(self, data: Path) -> int:
        """The bytes of all samples."""
        return int(self.json("index", data)["total_bytes"])

    @contextmanager
    def cache(self) -> Iterator[Path]:
        """Make an empty cache directory, which is removed afterwards."""
        path = Path(tempfile.mkdtemp(prefix="cache-", dir=self.scratch))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=list(parts.PARTS), default=list(parts.PARTS))
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--shard-size", type=int, default=100, help="samples of a shard")
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument(
        "--image-size", type=int, default=96, help="small: storage is measured, not arithmetic"
    )
    parser.add_argument("--open-ms", type=float, default=2.0)
    parser.add_argument("--read-ms", type=float, default=1.0)
    parser.add_argument("--bandwidth", type=int, default=100_000_000, help="of the slow tier, bytes a second")
    parser.add_argument("--rounds", type=int, default=5, help="of what is compared by its speed")
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "tiers", help="made where it is missing")
    parser.add_argument("--foreload", type=Path, default=ROOT / ".venv" / "bin" / "foreload")
    parser.add_argument("--require-targets", action="store_true", help="exit code 1 when a target is missed")
    parser.add_argument("--output", type=Path, help="keep the result in OUTPUT.json and OUTPUT.md too")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    return parser.parse_args()


def make_data(chosen: argparse.Namespace) -> tuple[Path, Path]:
    """Make the folder and the shards, of the same images."""
    made = []
    for layout in ("folder", "tar"):
        target = chosen.data / f"{layout}-{chosen.images}-{chosen.shard_size}"
        if not target.exists():
            command = [chosen.foreload, "synth", target, "--images", chosen.images, "--layout", layout]
            if layout == "tar":
                command += ["--shard-size", chosen.shard_size]
            report.log(f"making {target.name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
        made.append(target)
    return made[0], made[1]


def run_part(part: Callable[[Bench], dict], bench: Bench) -> dict:
    """Return a part's result, or why there is none."""
    try:
        return part(bench)
    except (Unavailable, KeyError, ValueError, OSError) as reason:
        report.log(f"failed: {reason!r}")
        return {"failure": f"{type(reason).__name__}: {reason}".replace(f"{ROOT}/", "")}


def as_text(result: dict) -> str:
    """Return the report in Markdown."""
    lines = ["# Tiers", "", report.machine_line(result["machine"]), ""]
    lines += [
        f"Slow tier: {result['slow_tier']}; {result['images']} images, {result['bytes'] / 1e6:.0f} MB.",
        "",
    ]
    for name, part in result["parts"].items():
        lines += [f"## {parts.TITLES[name]}", ""]
        if "failure" in part:
            lines += [f"Not measured: {part['failure']}", ""]
            continue
        if part.get("rows"):
            lines += [report.table(part["head"], part["rows"]), ""]
        lines += [f"- {'met' if check['met'] else '**missed**'}: {check['says']}" for check in part["checks"]]
        lines.append("")
    return "\n".join(lines).rstrip()


def main() -> int:
    """Measure and report."""
    chosen = parse_arguments()
    folder, tar = make_data(chosen)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=chosen.data) as scratch:
        bench = Bench(
            chosen.foreload,
            folder,
            tar,
            Path(scratch),
            chosen.batch_size,
            chosen.image_size,
            chosen.rounds,
            chosen.open_ms,
            chosen.read_ms,
            chosen.bandwidth,
        )
        bench.facts = {"images": chosen.images, "folder": bench.size(folder), "tar": bench.size(tar)}
        result = {
            "machine": report.machine(),
            "slow_tier": bench.spec,
            "images": chosen.images,
            "bytes": bench.facts["tar"],
            "parts": {name: run_part(parts.PARTS[name], bench) for name in chosen.parts},
        }
    report.deliver(result, as_text(result), chosen.json, chosen.output)
    missed = [
        check for part in result["parts"].values() for check in part.get("checks", []) if not check["met"]
    ]
    failed = any("failure" in part for part in result["parts"].values())
    return int(chosen.require_targets and (bool(missed) or failed))


if __name__ == "__main__":
    sys.exit(main())
