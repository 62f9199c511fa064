"""Thousands of small batches, held and dropped at random: no byte of a held batch may change, no memory may grow.

Consumers read on their own streams and release batches at once, iterations are dropped in the middle, loaders are
replaced. The seed is printed, and it repeats the run. It needs a driver, but no torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "gpu"))
import capsule
import driver
import foreload
import images
import numpy as np
from harness import accounting, options, report

SAMPLES_OF_MEMORY = 200
WARM_UP = 0.25
"""The share of the run in which pools may still grow."""
GROWTH_LIMIT = {"device_bytes": 4 << 20, "host_bytes": 32 << 20}
"""The largest growth over the whole run, by the slope of memory between loaders, when nothing is held: the noise of an
allocator is below it, and a leak of one batch in a hundred is above.
"""
DROP_LIMIT = 1.0
"""The time limit in seconds until the threads of a dropped loader have ended."""
DTYPES = ("uint8", "float16", "float32", "bfloat16")


@dataclass
class Run:
    """The state of the run so far."""

    batches: int = 0
    checked: int = 0
    dropped_iterations: int = 0
    loaders: int = 0
    drop_seconds: list[float] = field(default_factory=list)
    kept_threads: int | None = None
    """The threads with a lane's name that stayed after the first loader: those of nvJPEG's cached decoders."""
    memory: list[tuple[int, int, int]] = field(default_factory=list)
    """Samples of (batches, device bytes in use, resident bytes of this process), in the middle of the run."""
    between: list[tuple[int, int, int]] = field(default_factory=list)
    """The same samples, taken when no loader exists and no batch is held."""
    interrupted: bool = False

    def sample(self) -> tuple[int, int, int]:
        return self.batches, device_bytes(), accounting.resident_bytes()


def device_bytes() -> int:
    """Return the bytes in use on the device, by any process."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return total.value - free.value


def own_threads() -> tuple[int, int]:
    """Return the number of threads that Foreload named, and of other threads with a lane's name.

    nvJPEG starts threads on the lane that makes a decoder. They inherit its name and live as long as the decoder, which
    the next loader uses.
    """
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            names.append((task / "comm").read_text())
    lanes = sum(name.startswith("foreload-lane") for name in names)
    return sum(name.startswith("foreload") for name in names) - lanes, lanes


def make_loader(draws: random.Random, root: Path) -> foreload.ImageLoader:
    return foreload.ImageLoader(
        root,
        device="cuda:0",
        batch_size=draws.randint(1, 12),
        image_size=draws.choice((16, 32, 48)),
        dtype=draws.choice(DTYPES),
        memory_format=draws.choice(("nchw", "nhwc")),
        seed=draws.randrange(1 << 32),
        train=draws.random() < 0.8,
    )


class Consumer:
    """Keeps some batches and checks that they do not change."""

    def __init__(self, draws: random.Random, streams: list[int], run: Run) -> None:
        self.draws, self.streams, self.run = draws, streams, run
        self.held: list[tuple[foreload.Tensor, np.ndarray]] = []
        self.scratch = {stream: driver.Pinned(1 << 20) for stream in streams}

    def take(self, batch: foreload.Batch) -> None:
        self.run.batches += 1
        chance = self.draws.random()
        if chance < 0.5:
            self.glance(batch.images)
        elif chance < 0.55 and len(self.held) < 24:
            self.held.append((batch.images, driver.to_host(batch.images)))
        elif chance < 0.6:
            # This capsule is never consumed.
            batch.images.__dlpack__(stream=self.draws.choice(self.streams))
        if self.held and self.draws.random() < 0.05:
            self.release()

    def glance(self, images: foreload.Tensor) -> None:
        """Queue a read on a stream and release the batch at once, while the read may still wait."""
        stream = self.draws.choice(self.streams)
        with capsule.consumed(images.__dlpack__(stream=stream, max_version=(1, 0))) as described:
            scratch = self.scratch[stream]
            size = min(described.bytes, len(scratch.bytes))
            driver.copy_to_host(scratch.address, described.address, size, stream)

    def release(self) -> None:
        images, before = self.held.pop(self.draws.randrange(len(self.held)))
        self.run.checked += 1
        if not np.array_equal(driver.to_host(images), before, equal_nan=True):
            raise AssertionError(f"a held batch changed: {images!r}")

    def release_all(self) -> None:
        while self.held:
            self.release()
        for stream in self.streams:
            driver.synchronize(stream)

    def close(self) -> None:
        self.release_all()
        for scratch in self.scratch.values():
            scratch.close()


def stress(root: Path, wanted: int, seconds: float, seed: int, run: Run, kept: report.Lines) -> None:
    """Run until `wanted` batches have passed, or time is up; print a line for each loader."""
    draws = random.Random(seed)
    every = max(wanted // SAMPLES_OF_MEMORY, 1)
    until = time.monotonic() + seconds
    with driver.context():
        consumer = Consumer(draws, [driver.stream(1), driver.stream(2)], run)
        while run.batches < wanted and time.monotonic() < until:
            loader = make_loader(draws, root)
            run.loaders += 1
            for epoch in range(draws.randint(1, 60)):
                loader.set_epoch(epoch)
                stop = draws.randint(0, 6) if draws.random() < 0.3 else None
                for step, batch in enumerate(loader):
                    consumer.take(batch)
                    if run.batches % every == 0:
                        run.memory.append(run.sample())
                    if step == stop:
                        run.dropped_iterations += 1
                        break
                if run.batches >= wanted or time.monotonic() >= until:
                    break
            batch = None
            began = time.monotonic()
            del loader
            gc.collect()
            while time.monotonic() - began < 10:
                others, lanes = own_threads()
                if not others and (run.kept_threads is None or lanes <= run.kept_threads):
                    break
                time.sleep(0.001)
            run.drop_seconds.append(time.monotonic() - began)
            if run.kept_threads is None:
                time.sleep(DROP_LIMIT)
                run.kept_threads = own_threads()[1]
            if draws.random() < 0.7:  # Otherwise batches stay held while the next loader works.
                consumer.release_all()
                run.between.append(run.sample())
            now = dict(zip(("batches", "device_bytes", "host_bytes"), run.sample(), strict=True))
            kept.add({**now, "loaders": run.loaders, "checked": run.checked, "drop_s": run.drop_seconds[-1]})
        consumer.close()


def slopes(run: Run) -> dict[str, float]:
    """Return the least-squares growth of memory over the whole run in bytes, from the samples after the warm-up."""
    samples = np.array(run.between[int(len(run.between) * WARM_UP) :], dtype=float)
    if len(samples) < 8:
        return {}
    steps = samples[:, 0]
    return {
        name: float(np.polyfit(steps, samples[:, column], 1)[0] * run.batches)
        for column, name in ((1, "device_bytes"), (2, "host_bytes"))
    }


def problems(run: Run, grown: dict[str, float], wanted: int) -> list[str]:
    found = [
        f"{name} grew by {grown[name] / 2**20:.1f} MiB, at most {limit / 2**20:.0f}"
        for name, limit in GROWTH_LIMIT.items()
        if grown.get(name, 0) > limit
    ]
    if run.interrupted:
        found.append("it was interrupted")
    if run.batches < wanted:
        found.append(f"only {run.batches} of {wanted} batches in the time given")
    if run.drop_seconds and max(run.drop_seconds) > DROP_LIMIT:
        found.append(f"threads lived {max(run.drop_seconds):.2f} s after their loader, at most {DROP_LIMIT}")
    return found


def main() -> int:
    """Run and print; return 1 if something is wrong, 2 without a GPU."""
    parser = options.parser(__doc__, data=None, targets=False)
    parser.add_argument("--batches", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=600, help="give up after this long")
    parser.add_argument("--seed", type=int, help="repeat a run; a new one by default")
    parser.add_argument(
        "--no-limits", action="store_true", help="no limits of time and growth, for a checker"
    )
    parser.add_argument("--lines", type=Path, help="keep a line for each loader here, as soon as it is gone")
    chosen = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed
    try:
        driver.device_count()
    except (OSError, driver.DriverError) as reason:
        report.log(f"no GPU to stress: {reason}")
        return 2
    report.log(f"seed {seed}")
    run = Run()
    kept = report.Lines(chosen.lines)
    with tempfile.TemporaryDirectory() as scratch:
        kept.add({"seed": seed})
        os.environ.setdefault("FORELOAD_INDEX_DIR", f"{scratch}/index")
        root = images.make(Path(scratch) / "data", images.KINDS, samples=96, seed=seed)
        began = time.monotonic()
        try:
            stress(root, chosen.batches, chosen.seconds, seed, run, kept)
        except KeyboardInterrupt:
            run.interrupted = True
        seconds = time.monotonic() - began
    grown = slopes(run)
    found = [] if chosen.no_limits else problems(run, grown, chosen.batches)
    result = {
        "benchmark": "gpu-stress",
        "machine": report.machine(),
        "seed": seed,
        "batches": run.batches,
        "seconds": seconds,
        "held_and_checked": run.checked,
        "iterations_dropped": run.dropped_iterations,
        "loaders": run.loaders,
        "drop_seconds_max": max(run.drop_seconds, default=0.0),
        "threads_of_kept_decoders": run.kept_threads,
        "growth_bytes": grown,
        "memory": run.memory,
        "memory_between_loaders": run.between,
        "problems": found,
    }
    growth = ", ".join(f"{name.split('_')[0]} memory {size / 2**20:+.2f} MiB" for name, size in grown.items())
    text = (
        f"{run.batches} batches in {seconds:.1f} s (seed {seed}): {run.checked} held and unchanged, "
        f"{run.dropped_iterations} iterations and {run.loaders} loaders dropped (threads gone within "
        f"{result['drop_seconds_max']:.2f} s); over the run {growth or 'too few samples for a slope'}: "
        + ("; ".join(found) or "ok")
    )
    report.deliver(result, text, chosen)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
