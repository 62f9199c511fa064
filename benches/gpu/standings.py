"""The loaders of the GPU comparison: their names and requirements, their processes and their measurements."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from harness import report
from harness.environments import Unavailable
from harness.programs import Worker

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable
GRACE = 90
"""The extra time of a request in seconds: imports, CUDA contexts, first kernels."""


@dataclass(frozen=True)
class Peer:
    """One line of the table."""

    title: str
    program: str
    dtype: str
    variant: str = ""
    needs: tuple[str, ...] = ("torch",)
    """The Python modules without which it cannot run."""


OURS, DALI, VISION = ("torch", "foreload"), ("torch", "nvidia.dali"), ("torch", "torchvision")
PEERS = {
    "foreload-f16": Peer("**Foreload**, float16", "foreload_gpu", "f16", "cuda", OURS),
    "foreload-packed-f16": Peer("**Foreload**, packed files, float16", "foreload_gpu", "f16", "packed", OURS),
    "foreload-indexed-f16": Peer(
        "**Foreload**, indexed copies, float16", "foreload_gpu", "f16", "indexed", OURS
    ),
    "dali-f16": Peer("DALI mixed, float16", "dali_mixed", "f16", needs=DALI),
    "torchvision-f16": Peer("torchvision CUDA, float16", "torchvision_cuda", "f16", needs=VISION),
    "foreload-f32": Peer("**Foreload**, float32", "foreload_gpu", "f32", "cuda", OURS),
    "dali-f32": Peer("DALI mixed, float32", "dali_mixed", "f32", needs=DALI),
    "torchvision-f32": Peer("torchvision CUDA, float32", "torchvision_cuda", "f32", needs=VISION),
    "torch-f16": Peer("torch DataLoader, CPU decode", "torch_loader", "f16", needs=VISION),
    "foreload-cpu-f16": Peer("**Foreload** on the CPU, copied", "foreload_gpu", "f16", "cpu", OURS),
}


@dataclass(frozen=True)
class Point:
    """A peer that is measured again with other settings; None stands for those of the whole comparison."""

    peer: str
    backend: str | None = None
    """The backend with which Foreload decodes, if it can be used."""
    cpu_decode: str | None = None
    """For Foreload: whether the CPU decodes as well."""
    threads: int | None = None
    batch_size: int | None = None

    def told(self) -> str:
        given = {key: value for key, value in asdict(self).items() if value is not None and key != "peer"}
        return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in given.items())


POINTS = (
    *(Point("foreload-f16", backend=backend) for backend in ("hardware", "cuda_batched", "cuda", "cpu")),
    Point("foreload-f16", cpu_decode="auto"),
    Point("dali-f16", threads=4),
    *(Point("foreload-f16", threads=threads) for threads in (2, 4, 8)),
    *(Point("foreload-f16", batch_size=size) for size in (64, 128, 512)),
    Point("dali-f16", threads=8),
    Point("torchvision-f16", threads=4),
    Point("foreload-f16", backend="cuda_batched", batch_size=512),
    Point("foreload-f16", cpu_decode="auto", threads=8),
    Point("dali-f16", batch_size=128),
    Point("dali-f16", threads=2),
)
"""The points, the most valuable first."""


@dataclass
class Standing:
    """A peer's process and its measurements."""

    name: str
    worker: Worker | None = None
    failure: str | None = None
    tuned: dict = field(default_factory=dict)
    rounds: list[dict] = field(default_factory=list)
    training: dict | None = None
    points: list[dict] = field(default_factory=list)

    def start(self, chosen: argparse.Namespace, logs: object) -> None:
        peer = PEERS[self.name]
        options = [str(chosen.data), "--dtype", peer.dtype, "--variant", peer.variant]
        options += ["--threads", str(chosen.threads), "--batch-size", str(chosen.batch_size)]
        options += ["--image-size", str(chosen.image_size)]
        if chosen.recorded:
            command = [PYTHON, str(HERE / "peers" / "recorded.py"), str(chosen.recorded), self.name]
        elif reason := missing(peer.needs):
            self.fail(reason)
            return
        else:
            command = [PYTHON, str(HERE / "peers" / f"{peer.program}.py"), *options]
        path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
        self.worker = Worker(command, os.environ | {"PYTHONPATH": path}, logs)

    def ask(self, request: dict, limit: float = GRACE) -> dict | None:
        """Send a request and wait for its answer; a peer that fails or hangs is excluded."""
        if self.failure:
            return None
        try:
            self.worker.send(json.dumps(request))
            answer = json.loads(self.worker.read(request["seconds"] * request.get("parts", 1) + limit))
        except Unavailable as reason:
            return self.fail(f"{request['do']}: {reason}; see its log")
        return self.fail(answer["failure"]) if "failure" in answer else answer

    def fail(self, reason: str) -> None:
        """Exclude the peer from the run."""
        self.failure = reason.replace(f"{report.ROOT}/", "")
        report.log(f"{self.name}: {self.failure}")
        self.end()

    def end(self) -> None:
        if self.worker:
            self.worker.end()


def missing(modules: tuple[str, ...]) -> str | None:
    """Return the first module that cannot be imported, with the reason; this is tested in another process."""
    for module in modules:
        asked = subprocess.run(
            [PYTHON, "-c", f"import {module}"], capture_output=True, text=True, check=False
        )
        if asked.returncode:
            said = asked.stderr.strip().splitlines() or ["no reason given"]
            return f"{module} cannot be imported: {said[-1]}"
    return None
