"""The common code of the loaders of the GPU comparison: a process that keeps one loader and times it on request.

A peer program provides `open_feed(options, setting)`, which returns a `Feed`: an endless sequence of batches in device
memory. `serve` answers each JSON line on stdin with one JSON line on stdout:

    {"do": "tune", "seconds": 1}    tries the peer's settings, keeps the fastest.
    {"do": "feed", "seconds": 3}    takes batches as fast as they come.
    {"do": "train", "seconds": 5}   trains a ResNet-50 on the batches.
    {"do": "point", "seconds": 2, "threads": 4}   like feed, with other settings from here on.

A process runs through all rounds, so that no round pays for imports, worker processes or CUDA contexts. Before the
clock starts, as many batches are thrown away as can be queued, because loaders fill their queues while they are idle.
CPU time is that of the process and all its descendants while the clock runs; the time of its threads is reported by
their names.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from harness.accounting import thread_cpu_seconds, tree_cpu_seconds

DEVICE = "cuda"
DTYPES = {"f16": torch.float16, "f32": torch.float32}
IN_FLIGHT = 2
"""The steps that the host may be ahead of the device, as in a training loop that never reads its loss."""
EPOCHS = 100
"""The passes over the files per epoch here: with some thousand images, the end of a single pass would take a fifth of
the time.
"""
CHECKED = 4
"""The number of batches whose values are described."""


@dataclass(frozen=True)
class Options:
    """The options of a peer."""

    data: Path
    """An image folder with one sub-folder per class."""
    batch_size: int
    image_size: int
    threads: int
    seed: int
    dtype: str
    """The data type, f16 or f32."""
    variant: str
    """A choice that is specific to the peer."""
    cpu_decode: str = "fallback"
    """Foreload's setting of the same name."""

    @property
    def torch_dtype(self) -> torch.dtype:
        """Return the torch type of the batches."""
        return DTYPES[self.dtype]


Batch = tuple[torch.Tensor, torch.Tensor]


class Feed:
    """An endless sequence of (images, labels) on the device. A peer implements `batches`."""

    ready = 2
    """The number of batches that can be queued while none is taken."""
    note = ""
    """A note for readers of the result about this loader."""

    def batches(self) -> Iterator[Batch]:
        raise NotImplementedError

    def counters(self) -> dict[str, float]:
        """Return the loader's counters since it was opened; differences are reported."""
        return {}

    def facts(self) -> dict[str, object]:
        return {}

    def close(self) -> None:
        """End threads and processes."""


OpenFeed = Callable[[Options, object], Feed]


class Server:
    """One peer with its loader."""

    def __init__(self, options: Options, open_feed: OpenFeed, settings: tuple[object, ...]) -> None:
        self.options, self.open_feed, self.settings = options, open_feed, settings
        self.setting = settings[0]
        self.feed: Feed | None = None
        self.run: Iterator[Batch] = iter(())
        self.sink = torch.zeros((), device=DEVICE)
        self.pending: deque[torch.cuda.Event] = deque()
        self.training: Training | None = None

    def open(self, setting: object) -> None:
        if self.feed:
            # The feed is None meanwhile: a loader that cannot be opened must not be closed twice.
            self.run, closed, self.feed = iter(()), self.feed, None
            closed.close()
        self.feed = self.open_feed(self.options, setting)
        self.run = self.feed.batches()
        self.setting = setting

    def consume(self, batch: Batch) -> int:
        """Read some of a batch on the device, without waiting for it; return its number of images."""
        images, labels = batch
        self.sink += images[:, :, ::32, ::32].sum(dtype=torch.float32) + labels.sum()
        done = torch.cuda.Event(blocking=True)
        done.record()
        self.pending.append(done)
        if len(self.pending) > IN_FLIGHT:
            self.pending.popleft().synchronize()
        return len(images)

    def timed(self, seconds: float, step: Callable[[Batch], int], skip: int) -> dict:
        """Throw away `skip` batches, then take batches for some seconds."""
        for _ in range(skip):
            step(next(self.run))
        torch.cuda.synchronize()
        images = steps = 0
        counted, threads = self.feed.counters(), thread_cpu_seconds()
        cpu, began = tree_cpu_seconds(), time.perf_counter()
        while time.perf_counter() - began < seconds:
            images += step(next(self.run))
            steps += 1
        torch.cuda.synchronize()
        took, used = time.perf_counter() - began, tree_cpu_seconds() - cpu
        by_thread = {name: value - threads.get(name, 0.0) for name, value in thread_cpu_seconds().items()}
        counters = {name: value - counted.get(name, 0) for name, value in self.feed.counters().items()}
        result = {"images": images, "steps": steps, "seconds": took, "cpu_seconds": used}
        return result | {"counters": counters, "threads": {k: v for k, v in by_thread.items() if v > 0}}

    def feed_for(self, seconds: float) -> dict:
        """Take batches as fast as they come, after the queues are in their steady state."""
        return self.timed(seconds, self.consume, self.feed.ready + IN_FLIGHT)

    def describe(self) -> dict:
        """Return shape, type and per-channel mean and deviation of some batches, which must agree among peers."""
        total, squares, pixels = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64), 0
        side = self.options.image_size
        for _ in range(CHECKED):
            images, labels = next(self.run)
            if images.device.type != DEVICE or images.dtype != self.options.torch_dtype:
                raise ValueError(f"a batch of {images.dtype} on {images.device}")
            if tuple(images.shape) != (len(labels), 3, side, side):
                raise ValueError(f"a batch of shape {tuple(images.shape)}")
            wide = images.double()
            total += wide.sum(dim=(0, 2, 3)).cpu()
            squares += wide.square().sum(dim=(0, 2, 3)).cpu()
            pixels += len(images) * side * side
        mean = total / pixels
        deviation = (squares / pixels - mean.square()).sqrt()
        found = {"shape": list(images.shape), "mean": mean.tolist(), "std": deviation.tolist()}
        return found | {"nvjpeg": mapped("libnvjpeg"), "facts": self.feed.facts()}

    def tune(self, seconds: float, only: str | None) -> dict:
        """Keep the setting that gives the most images/s; try `only` one of them if it is known."""
        tried = {}
        settings = [setting for setting in self.settings if only in (None, str(setting))]
        for setting in settings:
            self.open(setting)
            result = self.feed_for(seconds)
            tried[str(setting)] = result["images"] / result["seconds"]
        best = max(settings, key=lambda setting: tried[str(setting)])
        if best != self.setting:
            self.open(best)
        return {"setting": str(best), "tried": tried, "note": self.feed.note, **self.describe()}

    def point(self, asked: dict) -> dict:
        """Take batches as fast as they come with other settings; a refused setting is a valid answer, not the end."""
        given = {name: asked[name] for name in ("threads", "batch_size", "cpu_decode") if asked.get(name)}
        usual = self.options
        os.environ.pop("FORELOAD_GPU_BACKEND", None)
        if asked.get("backend"):
            os.environ["FORELOAD_GPU_BACKEND"] = asked["backend"]
        self.options = replace(usual, **given)
        try:
            self.open(self.setting)
            return self.feed_for(asked["seconds"]) | self.describe()
        except Exception as error:
            traceback.print_exc()
            return {"refused": f"{type(error).__name__}: {error}"}
        finally:
            self.options = usual

    def train(self, seconds: float) -> dict:
        """Train a ResNet-50 on the loader's batches, and on one batch repeatedly for comparison."""
        if self.training is None:
            self.training = Training(self.options)
            self.training.alone(next(self.run))
        # The model is slower than the loaders, so queues are full before and after.
        self.timed(0.5, self.training.step, IN_FLIGHT)
        self.training.forget()
        result = self.timed(seconds, self.training.step, 0)
        return result | self.training.idle() | {"step_alone_seconds": self.training.alone_seconds}

    def answer(self, asked: dict) -> dict:
        if asked["do"] == "tune":
            return self.tune(asked["seconds"], asked.get("only"))
        if asked["do"] == "feed":
            return self.feed_for(asked["seconds"])
        if asked["do"] == "train":
            return self.train(asked["seconds"])
        if asked["do"] == "point":
            return self.point(asked)
        raise ValueError(f"unknown request {asked}")


class Training:
    """A ResNet-50 in mixed precision, and device timers that show when it was idle."""

    def __init__(self, options: Options) -> None:
        from torchvision.models import resnet50

        torch.manual_seed(options.seed)
        self.model = resnet50().cuda().to(memory_format=torch.channels_last).train()
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.spans: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self.pending: deque[torch.cuda.Event] = deque()
        self.alone_seconds = 0.0

    def step(self, batch: Batch) -> int:
        """Do one optimiser step; return the number of images."""
        images, labels = batch
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True, blocking=True)
        begin.record()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(
                self.model(images.contiguous(memory_format=torch.channels_last)), labels.long()
            )
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        end.record()
        self.spans.append((begin, end))
        self.pending.append(end)
        if len(self.pending) > IN_FLIGHT:
            self.pending.popleft().synchronize()
        return len(images)

    def alone(self, batch: Batch, steps: int = 16) -> None:
        """Time steps on one batch that is already on the device."""
        kept = batch[0].clone(), batch[1].clone()
        for _ in range(8):
            self.step(kept)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            self.step(kept)
        torch.cuda.synchronize()
        self.alone_seconds = (time.perf_counter() - began) / steps

    def forget(self) -> None:
        self.spans.clear()

    def idle(self) -> dict:
        """Return the share of the time between first and last step in which the device waited for a batch."""
        gaps = [
            before[1].elapsed_time(after[0])
            for before, after in zip(self.spans, self.spans[1:], strict=False)
        ]
        whole = self.spans[0][0].elapsed_time(self.spans[-1][1])
        return {"idle_share": sum(max(gap, 0.0) for gap in gaps) / whole}


def mapped(name: str) -> list[str]:
    """Return libraries of this name that the process has loaded: torchvision has its own nvJPEG."""
    files = (line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines())
    return sorted({file for file in files if Path(file).name.startswith(name)})


def parse_options() -> Options:
    parser = argparse.ArgumentParser(description="Keeps one loader and times it when asked on stdin.")
    parser.add_argument("data", type=Path, help="image folder, one sub-folder a class")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=16, help="worker threads or processes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=DTYPES, default="f16")
    parser.add_argument("--variant", default="", help="peer-specific choice")
    return Options(**vars(parser.parse_args()))


def serve(open_feed: OpenFeed, settings: tuple[object, ...] = (None,)) -> None:
    """Answer requests until stdin ends; a failure is reported as the last answer."""
    # Libraries may print; their output goes to stderr, because stdout has only answers.
    answers = sys.stdout
    sys.stdout = sys.stderr
    options = parse_options()
    torch.cuda.init()
    server = Server(options, open_feed, settings)
    for line in sys.stdin:
        try:
            reply = server.answer(json.loads(line))
        except Exception as error:
            traceback.print_exc()
            reply = {"failure": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=answers, flush=True)
        if "failure" in reply:
            break
    if server.feed:
        server.run = iter(())
        server.feed.close()
