"""Measures the tiers: bytes of the slow tier, staging during training, stalls, shared caches, overhead, predictions.

Every figure comes from the counters of `foreload bench --json` on generated data; the slow tier is the dataset's own
storage, slowed down by `--emulate-pfs`. LRU is computed for the same kind of order as a comparison. If a part fails,
its reason is reported and the others run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import datasets, options, programs, report
from harness import parts as harness_parts
from harness.environments import ROOT, Unavailable, last_lines
from parts import PARTS


@dataclass
class Bench:
    """The program, its data and the rates of the slow tier."""

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
        """Return the rates in the format of `--emulate-pfs`."""
        return f"open={self.open_ms}ms,read={self.read_ms}ms,bandwidth={self.bandwidth}"

    def json(self, *arguments: object) -> dict:
        return self.wait(self.start(*arguments))

    def start(self, *arguments: object) -> subprocess.Popen:
        """Start the program in a new process, for which `wait` waits."""
        command = [self.program, *arguments, "--index-dir", self.scratch / "index", "--json"]
        words = [str(word) for word in command]
        report.log(" ".join(words[1:]))
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait(self, process: subprocess.Popen) -> dict:
        """Return the output of a started process."""
        out, err = process.communicate()
        if process.returncode != 0:
            raise Unavailable(f"exit code {process.returncode}: {last_lines(err or out)}")
        return programs.last_object(out)

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

    def epochs(self, data: Path, **settings: object) -> list[dict]:
        return self.json(*self.arguments(data, **settings))["epochs"]

    def size(self, data: Path) -> int:
        return int(self.json("index", data)["total_bytes"])

    @contextmanager
    def cache(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(
            prefix="cache-", dir=self.scratch, ignore_cleanup_errors=True
        ) as path:
            yield Path(path)


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__, "tiers")
    harness_parts.add_option(parser, PARTS)
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
    parser.add_argument("--foreload", type=Path, default=ROOT / ".venv" / "bin" / "foreload")
    return parser.parse_args()


def make_data(chosen: argparse.Namespace) -> list[Path]:
    made = []
    for layout, more in (("folder", []), ("tar", ["--shard-size", chosen.shard_size])):
        target = chosen.data / f"{layout}-{chosen.images}-{chosen.shard_size}"
        words = ["--images", chosen.images, "--layout", layout, *more]
        datasets.synthesise(chosen.foreload, target, *words)
        made.append(target)
    return made


def as_text(result: dict) -> str:
    about = f"Slow tier: {result['slow_tier']}; {result['images']} images, {result['bytes'] / 1e6:.0f} MB."
    return harness_parts.as_text("Tiers", [about], result, PARTS)


def main() -> int:
    chosen = parse_arguments()
    folder, tar = make_data(chosen)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=chosen.data) as scratch:
        asked = options.settings(chosen, "image_size rounds open_ms read_ms bandwidth")
        bench = Bench(chosen.foreload, folder, tar, Path(scratch), chosen.batch_size, **asked)
        bench.facts = {"images": chosen.images, "folder": bench.size(folder), "tar": bench.size(tar)}
        result = {
            "machine": report.machine(),
            "slow_tier": bench.spec,
            "images": chosen.images,
            "bytes": bench.facts["tar"],
            "parts": harness_parts.run(PARTS, chosen.parts, bench),
        }
    report.deliver(result, as_text(result), chosen)
    failed = harness_parts.failed(result)
    return options.exit_code(chosen, False, failed or harness_parts.missed(result))


if __name__ == "__main__":
    sys.exit(main())
