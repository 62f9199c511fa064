"""Loads images while a cost changes by three in the middle, and prints the rate of every quarter of a second as JSON.

`run.py` starts it, once with the tuner and once with each of several fixed settings.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
from foreload import ImageLoader
from program import ObjectStore, hogs

SHORT, LONG = 0.01, 0.03
"""Seconds that an object takes to come, before and after, or the other way about."""
FAST, SLOW = 0.012, 0.036
"""Seconds that the training takes for a batch."""
BATCH = 64
WINDOW = 0.25


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


def main() -> None:
    """Load, change, load on, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("change", choices=list(CHANGES))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--range-server", type=Path, required=True)
    parser.add_argument("--before", type=float, required=True, help="seconds until the change")
    parser.add_argument("--after", type=float, required=True, help="seconds after it")
    parser.add_argument("--settings", type=json.loads, default={}, help="of the loader, as JSON")
    chosen = parser.parse_args()
    scene = Scene(chosen)
    with CHANGES[chosen.change](scene), tempfile.TemporaryDirectory() as index:
        settings = {"batch_size": BATCH, "image_size": 96, "device": "cpu", "index_dir": index}
        print(json.dumps(run(scene, ImageLoader(scene.data, **settings, **chosen.settings))))


def run(scene: Scene, loader: ImageLoader) -> dict:
    """Take batches until the time is over; return the images of each window after the change."""
    chosen = scene.chosen
    began, changed, taken = time.perf_counter(), None, []
    for epoch in range(1 << 30):
        loader.set_epoch(epoch)
        batches = iter(loader)
        for _ in batches:
            now = time.perf_counter() - began
            if changed is None and now >= chosen.before:
                scene.change()
                changed = time.perf_counter() - began
            if changed is not None:
                if now - changed >= chosen.after:
                    return {
                        "images": counted(taken, chosen.after),
                        "tuner": batches.stats()["tuner"],
                        "at": changed,
                    }
                taken.append(now - changed)
            time.sleep(scene.pause)
    raise AssertionError("time never ends")


def counted(taken: list[float], seconds: float) -> list[int]:
    """Return the images that came in each window."""
    windows = [0] * round(seconds / WINDOW)
    for moment in taken:
        windows[min(int(max(moment, 0.0) / WINDOW), len(windows) - 1)] += BATCH
    return windows


if __name__ == "__main__":
    main()
