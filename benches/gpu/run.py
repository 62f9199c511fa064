"""Times Foreload on a GPU and the loaders that a user might choose instead: same files and output, one run, alternating
rounds.

Every peer keeps one process through all rounds (`serve.py`), and only one peer is asked for batches at a time. After
the rounds each peer trains a ResNet-50 on its batches, which shows how long the device waits for the next batch. Then
some peers are measured with other settings: each gives a point of images/s against CPU time. Peers that cannot run stay
in the table with the reason. The result is rewritten after each round and each point.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import judge
from harness import datasets, options, report
from standings import PEERS, POINTS, PYTHON, Standing

ROUNDS_SHARE = 0.5
"""The share of the remaining time for rounds and training, after all loaders run; the rest is for other settings."""
POINT_LIMIT = 40
"""The time limit in seconds for a loader to restart with other settings."""


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--peers", nargs="+", choices=PEERS, metavar="PEER", help=f"from: {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of every peer")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a timed round")
    parser.add_argument("--train-seconds", type=float, default=4.0, help="of the ResNet-50; 0 leaves it out")
    parser.add_argument("--budget", type=float, help="seconds for all: fewer rounds if need be, at least 1")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=224)
    threads = min(16, os.cpu_count() or 1)
    parser.add_argument("--threads", type=int, default=threads, help="threads or workers")
    parser.add_argument("--recorded", type=Path, help="answers of all loaders, to try the comparison itself")
    parser.add_argument("--logs", type=Path, help="file for what the peers print (default: stderr)")
    chosen = parser.parse_args()
    chosen.peers = chosen.peers or list(PEERS)
    return chosen


def device_facts() -> dict:
    """Return name, memory and driver of the first GPU, and the versions around it; raise an error if there is none."""
    query = "import json, torch; p = torch.cuda.get_device_properties(0); print(json.dumps(dict(" + ", ".join(
        [
            "gpu=p.name",
            "gpu_memory_bytes=p.total_memory",
            "multiprocessors=p.multi_processor_count",
            "torch=torch.__version__",
            "cuda=torch.version.cuda",
        ]
    )
    asked = subprocess.run([PYTHON, "-c", query + ")))"], capture_output=True, text=True, check=False)
    if asked.returncode:
        said = asked.stderr.strip().splitlines() or ["no reason given"]
        raise RuntimeError(f"no GPU that torch can use: {said[-1]}")
    facts = json.loads(asked.stdout)
    try:
        smi = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        facts["driver"] = subprocess.run(smi, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        facts["driver"] = "unknown"
    return facts


def recorded_facts(recording: Path) -> dict:
    return json.loads(recording.read_text())["device"]


def tune(standing: Standing, known: dict[str, str]) -> None:
    """Make a peer find its best setting, once per program and variant (`known`)."""
    peer = PEERS[standing.name]
    kind = f"{peer.program} {peer.variant}"
    standing.tuned = standing.ask({"do": "tune", "seconds": 1.0, "parts": 4, "only": known.get(kind)}) or {}
    if standing.tuned:
        known[kind] = standing.tuned["setting"]
        report.log(f"{standing.name}: ready, setting {standing.tuned['setting']}")


class Comparison:
    """All loaders, and their measurements so far."""

    def __init__(self, chosen: argparse.Namespace, gpu: dict, began: float) -> None:
        self.chosen, self.gpu = chosen, gpu
        self.deadline = began + (chosen.budget or 24 * 3600)
        files = datasets.jpegs(chosen.data)
        self.images = len(files)
        self.mean_bytes = sum(path.stat().st_size for path in files) / len(files)
        self.standings: list[Standing] = []

    def start(self, logs: object) -> None:
        known: dict[str, str] = {}
        for name in self.chosen.peers:
            standing = Standing(name)
            self.standings.append(standing)
            standing.start(self.chosen, logs)
            tune(standing, known)

    def measure(self) -> None:
        chosen, standings = self.chosen, self.standings
        # A training step takes equally long with float16 and float32, so one of them is enough.
        trained = [standing for standing in standings if PEERS[standing.name].dtype == "f16"]
        reserve = len(trained) * (2 * chosen.train_seconds + 4) if chosen.train_seconds else 0
        turn = len(standings) * (chosen.seconds + 3)
        until = time.monotonic() + ROUNDS_SHARE * (self.deadline - time.monotonic())
        for number in range(1, chosen.rounds + 1):
            if number > 1 and time.monotonic() + turn + reserve > until:
                report.log(f"no time for more than {number - 1} rounds")
                break
            for standing in standings:
                if answer := standing.ask({"do": "feed", "seconds": chosen.seconds}):
                    standing.rounds.append(answer)
                    report.log(f"round {number}: {standing.name}: {told(answer)}")
            self.keep()
        for standing in trained:
            if chosen.train_seconds and time.monotonic() + chosen.train_seconds < self.deadline:
                standing.training = standing.ask({"do": "train", "seconds": chosen.train_seconds})
                self.keep()

    def points(self) -> None:
        """Measure other settings, one after another, while time allows."""
        by_name = {standing.name: standing for standing in self.standings}
        for point in POINTS:
            standing = by_name.get(point.peer)
            if not standing or standing.failure:
                continue
            if time.monotonic() + 2 * self.chosen.seconds + 4 > self.deadline:
                report.log(f"no time for {point.peer} with {point.told()} and what follows")
                break
            given = {key: value for key, value in asdict(point).items() if key != "peer"}
            asked = {"do": "point", "seconds": self.chosen.seconds, **given}
            if answer := standing.ask(asked, POINT_LIMIT):
                standing.points.append({"told": point.told(), "backend": point.backend, **answer})
                report.log(f"{point.peer}, {point.told()}: {answer.get('refused') or told(answer)}")
                self.keep()

    def result(self) -> dict:
        keys = "rounds seconds train_seconds batch_size image_size threads"
        return {
            "benchmark": "gpu",
            "machine": report.machine() | self.gpu,
            "settings": options.settings(self.chosen, keys),
            "data": {"images": self.images, "mean_bytes": self.mean_bytes, "page_cache": "warm"},
            "peers": judge.summarise(self.standings, PEERS, self.mean_bytes),
        }

    def keep(self) -> None:
        if self.chosen.output:
            report.keep(result := self.result(), judge.as_text(result), self.chosen.output)

    def end(self) -> None:
        for standing in self.standings:
            standing.end()


def told(answer: dict) -> str:
    rate = answer["images"] / answer["seconds"]
    return f"{rate:.0f} images/s, {1000 * answer['cpu_seconds'] / answer['images']:.2f} CPU s per 1000"


def main() -> int:
    """Measure and report; return 1 if Foreload failed, or missed a required target; 2 without a GPU."""
    chosen, began = parse_arguments(), time.monotonic()
    try:
        gpu = recorded_facts(chosen.recorded) if chosen.recorded else device_facts()
    except RuntimeError as reason:
        report.log(f"{reason}: nothing to measure")
        return 2
    comparison = Comparison(chosen, gpu, began)
    try:
        comparison.start(chosen.logs.open("a") if chosen.logs else sys.stderr)
        comparison.measure()
        comparison.points()
    except KeyboardInterrupt:
        report.log("interrupted: what was measured until now follows")
    finally:
        comparison.end()
    result = comparison.result()
    report.deliver(result, judge.as_text(result), chosen)
    own = [entry for name, entry in result["peers"].items() if name.startswith("foreload")]
    missed = any(not met for entry in own for met in entry.get("targets", {}).values())
    return options.exit_code(chosen, any(entry["failure"] for entry in own), missed)


if __name__ == "__main__":
    sys.exit(main())
