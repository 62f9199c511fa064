"""Loads images while a cost changes by three, and compares what the tuner makes of it with fixed settings.

The tuner loads alone, the cost changes, and it has some seconds for that. Then it and fixed settings take turns in this
process, epoch by epoch. `run.py` starts it; what it prints is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
from foreload import ImageLoader
from program import ObjectStore, hogs, take_turns

SHORT, LONG = 0.01, 0.03
"""Seconds that an object takes to come, before and after, or the other way about."""
FAST, SLOW = 0.012, 0.036
"""Seconds that the training takes for a batch."""


class Scene:
    """What costs what at the moment."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        """Nothing costs anything."""
        self.chosen = chosen
        self.data = str(chosen.data)
        self.pause = 0.0
        self.change: Callable[[], None] = lambda: None


@contextmanager
def storage(scene: Scene, before: float, after: float) -> Iterator[None]:
    """Let storage be slower or faster in the middle."""
    with ObjectStore(scene.chosen.range_server, scene.chosen.data) as store:
        store.delay(before)
        scene.data = store.url
        scene.change = lambda: store.delay(after)
        yield


@contextmanager
def training(scene: Scene, before: float, after: float) -> Iterator[None]:
    """Let the training be slower or faster in the middle."""
    scene.pause = before

    def change() -> None:
        scene.pause = after

    scene.change = change
    yield


@contextmanager
def neighbours(scene: Scene, count: int) -> Iterator[None]:
    """Let others take the processors in the middle."""
    with ExitStack() as crowd:
        scene.change = lambda: crowd.enter_context(hogs(count))
        yield


CHANGES = {
    "storage three times slower": lambda scene: storage(scene, SHORT, LONG),
    "storage three times faster": lambda scene: storage(scene, LONG, SHORT),
    "training three times faster": lambda scene: training(scene, SLOW, FAST),
    "training three times slower": lambda scene: training(scene, FAST, SLOW),
    "four neighbours on two processors": lambda scene: neighbours(scene, 4),
}


class Load:
    """A loader with its settings, and a training that takes its batches."""

    def __init__(self, scene: Scene, index: str, **settings: Any) -> None:
        """Make the loader."""
        self.scene = scene
        usual = {"batch_size": 64, "image_size": 96, "device": "cpu", "index_dir": index}
        self.loader = ImageLoader(scene.data, **usual, **settings)
        self.epochs = 0
        self.stats: dict = {}

    def epoch(self) -> float:
        """Take an epoch; return its images a second."""
        self.loader.set_epoch(self.epochs)
        self.epochs += 1
        began, images = time.perf_counter(), 0
        batches = iter(self.loader)
        for batch in batches:
            images += len(batch)
            time.sleep(self.scene.pause)
        seconds = time.perf_counter() - began
        self.stats = batches.stats()
        return images / seconds

    def last(self, seconds: float) -> None:
        """Take epochs until so many seconds are over, but none that would take longer than what is left."""
        until, took = time.perf_counter() + seconds, 0.0
        while (began := time.perf_counter()) + took / 2 < until:
            self.epoch()
            took = time.perf_counter() - began


def main() -> None:
    """Load, change, load on, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("change", choices=list(CHANGES))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--range-server", type=Path, required=True)
    parser.add_argument(
        "--grid", type=json.loads, required=True, help="names, with threads and reads, as JSON"
    )
    parser.add_argument("--before", type=float, required=True, help="seconds until the change")
    parser.add_argument("--after", type=float, required=True, help="seconds that the tuner has then")
    parser.add_argument("--glances", type=int, required=True, help="epochs of each of the grid, for its best")
    parser.add_argument("--rounds", type=int, required=True, help="epochs that are compared")
    chosen = parser.parse_args()
    scene = Scene(chosen)
    with CHANGES[chosen.change](scene), tempfile.TemporaryDirectory() as index:
        tuned, began = Load(scene, index), time.perf_counter()
        tuned.last(chosen.before)
        before, passed = tuned.stats["tuner"], time.perf_counter() - began
        scene.change()
        tuned.last(chosen.after)
        print(json.dumps(made(before, tuned.stats["tuner"], passed) | compared(scene, index, tuned)))


def made(before: dict, after: dict, changed: float) -> dict:
    """Return what the tuner has made of costs that changed so many seconds after the beginning."""
    changes = after["changes"] - before["changes"]
    latest = after["decisions"][-1]["seconds"] - changed if changes else 0.0
    values = {name: after[name] for name in ("threads", "queue_depth", "prefetch")}
    return {"changes": changes, "latest": latest, "values": values}


def compared(scene: Scene, index: str, tuned: Load) -> dict:
    """Return the best of the grid after the change, and the tuner's images a second in those of this one."""
    chosen = scene.chosen
    loads = {
        name: Load(scene, index, threads=threads, queue_depth=depth, tune=False)
        for name, (threads, depth) in chosen.grid.items()
    }
    rates: dict[str, list[float]] = {name: [] for name in loads}
    for load in loads.values():
        load.epoch()
    for turn in range(chosen.glances):
        take_turns({name: load.epoch for name, load in loads.items()}, rates, turn)
    best = max(rates, key=lambda name: statistics.median(rates[name]))
    pair: dict[str, list[float]] = {"tuned": [], "best": []}
    for turn in range(chosen.rounds):
        take_turns({"tuned": tuned.epoch, "best": loads[best].epoch}, pair, turn)
    return {"best": best, "ratios": [ours / its for ours, its in zip(*pair.values(), strict=True)]}


if __name__ == "__main__":
    main()
