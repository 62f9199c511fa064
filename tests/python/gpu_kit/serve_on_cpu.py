"""Runs a loader of the GPU comparison with a torch that has no CUDA; Foreload's batches come from the stand-ins.

    serve_on_cpu.py PEER.py OPTIONS...

The calls of torch.cuda are replaced by the CPU and the wall clock, and the network is a small one. So the scripts run
from end to end, but their figures mean nothing.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
import time
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benches" / "gpu"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "gpu"))
import driver
import serve
import torch


class Event:
    """An event that has passed as soon as it is made."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False) -> None:
        self.at = 0.0

    def record(self) -> None:
        """Record the time."""
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        """Do nothing, because the event has already passed."""

    def elapsed_time(self, later: Event) -> float:
        """Return the milliseconds until another event."""
        return 1000 * (later.at - self.at)


def small_network() -> torch.nn.Module:
    """A small network in place of a ResNet-50."""
    layers = (
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 10),
    )
    return torch.nn.Sequential(*layers)


# NumPy arrays go through DLPack, too: `torch.from_numpy` needs the NumPy version that torch was built with.
by_dlpack = torch.from_dlpack


def from_stand_in(tensor: object) -> torch.Tensor:
    """Return a copy of a batch's tensor in host memory."""
    return by_dlpack(driver.to_host(tensor))


torch.cuda.Event = Event
torch.cuda.init = torch.cuda.synchronize = torch.cuda.Stream = lambda: None
torch.cuda.stream = contextlib.nullcontext
torch.nn.Module.cuda = torch.Tensor.cuda = torch.Tensor.pin_memory = lambda self, **_options: self
torch.from_dlpack = from_stand_in
serve.DEVICE = "cpu"
if Path(sys.argv[1]).stem != "foreload_gpu":
    from torchvision import models
else:
    # A real torchvision loads a real nvJPEG, which Foreload would use instead of the stand-in.
    models = types.ModuleType("torchvision.models")
    sys.modules["torchvision"] = types.ModuleType("torchvision")
    sys.modules["torchvision.models"] = models
models.resnet50 = small_network

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
