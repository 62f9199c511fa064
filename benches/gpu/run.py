"""Times Foreload on a GPU beside the loaders a user would pick instead: same files and output, one run, rounds in turn.

Every peer keeps one process through all rounds (`serve.py`); only the one being timed is asked for batches. After the
rounds each trains a ResNet-50 on its batches, which shows how long the device waits for the next batch. Peers that
cannot run stay in the table with their reason.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import datasets
import judge
import report

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable
GRACE = 90
"""Seconds that a request may take beyond its own: imports, CUDA contexts, first kernels."""


@dataclass(frozen=True)
class Peer:
    """One line of the table."""

    title: str
    program: str
    dtype: str
    variant: str = ""
    needs: tuple[str, ...] = ("torch",)
    """Python modules without which it cannot run."""


PEERS = {
    "foreload-f16": Peer("**Foreload**, float16", "foreload_gpu", "f16", "cuda", ("torch", "foreload")),
    "dali-f16": Peer("DALI mixed, float16", "dali_mixed", "f16", needs=("torch", "nvidia.dali")),
    "torchvision-f16": Peer(
        "torchvision CUDA, float16", "torchvision_cuda", "f16", needs=("torch", "torchvision")
    ),
    "foreload-f32": Peer("**Foreload**, float32", "foreload_gpu", "f32", "cuda", ("torch", "foreload")),
    "dali-f32": Peer("DALI mixed, float32", "dali_mixed", "f32", needs=("torch", "nvidia.dali")),
    "torchvision-f32": Peer(
        "torchvision CUDA, float32", "torchvision_cuda", "f32", needs=("torch", "torchvision")
    ),
    "torch-f16": Peer("torch DataLoader, CPU decode", "torch_loader", "f16", needs=("torch", "torchvision")),
    "foreload-cpu-f16": Peer(
        "**Foreload** on the CPU, copied", "foreload_gpu", "f16", "cpu", ("torch", "foreload")
    ),
}


@dataclass
class Standing:
    """A peer's process and what is known of it."""

    name: str
    process: subprocess.Popen | None = None
    failure: str | None = None
    tuned: dict = field(default_factory=dict)
    rounds: list[dict] = field(default_factory=list)
    training: dict | None = None

    def ask(self, request: dict) -> dict | None:
        """Send a request and wait for its answer; a peer that fails or hangs is out."""
        if self.failure:
            return None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except OSError:
            return self.fail(f"it ended with code {self.process.wait()}")
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(request["seconds"] * request.get("parts", 1) + GRACE):
                return self.fail(f"no answer to {request['do']} within {GRACE} s")
        line = self.process.stdout.readline()
        if not line:
            return self.fail(f"it ended with code {self.process.wait()}; see its log")
        answer = json.loads(line)
        return self.fail(answer["failure"]) if "failure" in answer else answer

    def fail(self, reason: str) -> None:
        """Take it out of the run."""
        self.failure = reason.replace(f"{report.ROOT}/", "")
        report.log(f"{self.name}: {self.failure}")
        self.end()

    def end(self) -> None:
        """End the process, kindly at first."""
        if self.process and self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=report.ROOT / "data" / "folder", help="image folder")
    parser.add_argument("--peers", nargs="+", choices=PEERS, metavar="PEER", help=f"from: {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of every peer")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a timed round")
    parser.add_argument("--train-seconds", type=float, default=4.0, help="of the ResNet-50; 0 leaves it out")
    parser.add_argument("--budget", type=float, help="seconds for all: fewer rounds if need be, at least 1")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument(
        "--threads", type=int, default=min(16, os.cpu_count() or 1), help="threads or workers"
    )
    parser.add_argument("--require-targets", action="store_true", help="exit code 1 when a target is missed")
    parser.add_argument("--output", type=Path, help="keep the result in OUTPUT.json and OUTPUT.md too")
    parser.add_argument("--logs", type=Path, help="file for what the peers print (default: stderr)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    chosen = parser.parse_args()
    chosen.peers = chosen.peers or list(PEERS)
    return chosen


def missing(modules: tuple[str, ...]) -> str | None:
    """The first module that cannot be imported, with the reason; asked in a process of its own."""
    for module in modules:
        asked = subprocess.run(
            [PYTHON, "-c", f"import {module}"], capture_output=True, text=True, check=False
        )
        if asked.returncode:
            said = asked.stderr.strip().splitlines() or ["no reason given"]
            return f"{module} cannot be imported: {said[-1]}"
    return None


def device_facts() -> dict:
    """Name, memory and driver of the first GPU, and the versions around it; raises where there is none."""
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


def start(name: str, chosen: argparse.Namespace, logs: object, known: dict[str, str]) -> Standing:
    """Start a peer's process and let it find its best setting, once for each program and variant (`known`)."""
    peer, standing = PEERS[name], Standing(name)
    if reason := missing(peer.needs):
        standing.fail(reason)
        return standing
    command = [PYTHON, str(HERE / "peers" / f"{peer.program}.py"), str(chosen.data), "--dtype", peer.dtype]
    command += ["--variant", peer.variant, "--threads", str(chosen.threads)]
    command += ["--batch-size", str(chosen.batch_size), "--image-size", str(chosen.image_size)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": logs}
    standing.process = subprocess.Popen(command, env=environment, text=True, **pipes)
    kind = f"{peer.program} {peer.variant}"
    standing.tuned = standing.ask({"do": "tune", "seconds": 1.0, "parts": 4, "only": known.get(kind)}) or {}
    if standing.tuned:
        known[kind] = standing.tuned["setting"]
        report.log(f"{name}: ready, setting {standing.tuned['setting']}")
    return standing


def measure(standings: list[Standing], chosen: argparse.Namespace, deadline: float) -> None:
    """The rounds, then the training, as far as time allows."""
    # A training step takes float16 or float32 all the same: once is enough.
    trained = [standing for standing in standings if PEERS[standing.name].dtype == "f16"]
    reserve = len(trained) * (2 * chosen.train_seconds + 4) if chosen.train_seconds else 0
    turn = len(standings) * (chosen.seconds + 3)
    for number in range(1, chosen.rounds + 1):
        if number > 1 and time.monotonic() + turn + reserve > deadline:
            report.log(f"no time for more than {number - 1} rounds")
            break
        for standing in standings:
            if answer := standing.ask({"do": "feed", "seconds": chosen.seconds}):
                standing.rounds.append(answer)
                rate = answer["images"] / answer["seconds"]
                cpu = 1000 * answer["cpu_seconds"] / answer["images"]
                report.log(f"round {number}: {standing.name}: {rate:.0f} images/s, {cpu:.2f} CPU s per 1000")
    for standing in trained:
        if chosen.train_seconds and time.monotonic() + chosen.train_seconds < deadline:
            standing.training = standing.ask({"do": "train", "seconds": chosen.train_seconds})


def main() -> int:
    """Measure, report; 1 when Foreload failed, or missed a target that was required; 2 without a GPU."""
    chosen = parse_arguments()
    deadline = time.monotonic() + (chosen.budget or 24 * 3600)
    try:
        gpu = device_facts()
    except RuntimeError as reason:
        report.log(f"{reason}: nothing to measure")
        return 2
    files = datasets.jpegs(chosen.data)
    size = sum(len(path.read_bytes()) for path in files)
    logs = chosen.logs.open("a") if chosen.logs else sys.stderr
    standings: list[Standing] = []
    known: dict[str, str] = {}
    try:
        for name in chosen.peers:
            standings.append(start(name, chosen, logs, known))
        measure(standings, chosen, deadline)
    finally:
        for standing in standings:
            standing.end()
    keys = ("rounds", "seconds", "train_seconds", "batch_size", "image_size", "threads")
    result = {
        "benchmark": "gpu",
        "machine": report.machine() | gpu,
        "settings": {key: getattr(chosen, key) for key in keys},
        "data": {"images": len(files), "mean_bytes": size / len(files), "page_cache": "warm"},
        "peers": judge.summarise(standings, PEERS, size / len(files)),
    }
    report.deliver(result, judge.as_text(result), chosen.json, chosen.output)
    own = [entry for name, entry in result["peers"].items() if name.startswith("foreload")]
    missed = any(not met for entry in own for met in entry.get("targets", {}).values())
    return 1 if any(entry["failure"] for entry in own) or (missed and chosen.require_targets) else 0


if __name__ == "__main__":
    sys.exit(main())
