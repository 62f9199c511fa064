"""Continual learning: classes arrive two at a time and never again, and a small network is to keep all of them.

python examples/continual_learning.py --seeds 3 --compare

The images are drawn here, as JPEG files of 32 pixels: ten kinds of shapes, of any colour, place, size and angle, before
clutter and under noise. They arrive once, as a stream. A network that sees only what is new forgets the earlier
classes; with a `foreload.Rehearsal` that holds a twentieth of all images, half of each batch are earlier ones.
`--compare` does the same with a reservoir in plain Python.
"""

import argparse
import io
import json
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import foreload
import numpy as np
import torch
from foreload import Rehearsal, StreamLoader, streams, transforms
from PIL import Image, ImageDraw
from torch import nn

CLASSES, TASKS, SIDE, NEW = 10, 5, 32, 16
"""Classes, tasks of so many classes each, pixels of a side, and new images of a batch."""
SCALE = [
    transforms.CenterCrop(SIDE),
    transforms.ToDtype("float32"),
    transforms.Normalize(mean=(0.5,) * 3, std=(0.25,) * 3),
]
KINDS = ("without rehearsal", "with rehearsal", "plain reservoir")
Sample = tuple[bytes, int]
Batches = Iterator[tuple[torch.Tensor, torch.Tensor, int]]
"""Images, labels, and how many of them are new."""


def draw(label: int, chance: random.Random) -> bytes:
    """Return the JPEG of an image of a class, four times as large while it is drawn."""
    side = 4 * SIDE
    colour = lambda: tuple(chance.randrange(256) for _ in range(3))  # noqa: E731
    image = Image.new("RGB", (side, side), colour())
    canvas = ImageDraw.Draw(image)
    for _ in range(4):  # Clutter, which is no shape of any class.
        canvas.line([chance.randrange(side) for _ in range(4)], fill=colour(), width=chance.randrange(2, 8))
    shape = Image.new("L", (side, side))
    pen, r = ImageDraw.Draw(shape), side * chance.uniform(0.2, 0.36)
    c = side / 2
    left, right = c - r, c + r
    bars = [(left, c - r / 4, right, c + r / 4), (c - r / 4, left, c + r / 4, right)]
    match label:
        case 0:
            pen.ellipse((left, left, right, right), fill=255)
        case 1:
            pen.rectangle((left, left, right, right), fill=255)
        case 2:
            pen.polygon([(c, left), (right, right), (left, right)], fill=255)
        case 3:
            pen.ellipse((left, left, right, right), outline=255, width=int(r / 3))
        case 4:
            pen.rectangle((left, left, right, right), outline=255, width=int(r / 3))
        case 5:
            for bar in bars:
                pen.rectangle(bar, fill=255)
        case 6:
            pen.rectangle(bars[0], fill=255)
        case 7:
            pen.rectangle((left, left, right, c - r / 3), fill=255)
            pen.rectangle((left, c + r / 3, right, right), fill=255)
        case 8:
            pen.pieslice((left, left, right, right), 0, 180, fill=255)
        case 9:
            pen.rectangle((left, left, c - r / 3, right), fill=255)
            pen.rectangle((left, c + r / 3, right, right), fill=255)
    shift = [chance.uniform(-0.12, 0.12) * side for _ in range(2)]
    shape = shape.rotate(chance.uniform(-25, 25), translate=shift)
    image.paste(Image.new("RGB", image.size, colour()), mask=shape)
    small = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.int16)
    noise = np.random.default_rng(chance.getrandbits(32)).integers(-30, 31, small.shape)
    file = io.BytesIO()
    Image.fromarray(np.clip(small + noise, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def arrivals(each: int, seed: int) -> list[Sample]:
    """Return the images of all classes in the order of their arrival: task by task, mixed within a task."""
    chance, found = random.Random(seed), []
    for task in range(TASKS):
        labels = [label for label in range(CLASSES) if label * TASKS // CLASSES == task] * each
        chance.shuffle(labels)
        found += [(draw(label, chance), label) for label in labels]
    return found


def by_foreload(samples: list[Sample], kept: int, seed: int) -> Batches:
    """Yield batches of a stream, with as many earlier images as new ones if some are kept."""
    source = streams.Iterator(({"jpg": image, "cls": label} for image, label in samples), name="shapes")
    rehearsal = Rehearsal(kept, share=0.5) if kept else None
    size = 2 * NEW if kept else NEW
    loader = StreamLoader(
        source,
        batch_size=size,
        seed=seed,
        rehearsal=rehearsal,
        transforms=SCALE,
        decode="exact",
        device="cpu",
    )
    for batch in loader:
        new = int((np.from_dlpack(batch.occurrences) == 0).sum())
        yield torch.from_dlpack(batch.images), torch.from_dlpack(batch.labels), new


def by_hand(samples: list[Sample], kept: int, seed: int) -> Batches:
    """Yield the same from a reservoir of decoded images in plain Python (algorithm R)."""
    chance, reservoir = random.Random(seed), []
    for first in range(0, len(samples), NEW):
        new = [
            (torch.from_numpy(np.array(Image.open(io.BytesIO(image)).convert("RGB"))), label)
            for image, label in samples[first : first + NEW]
        ]
        batch = new + chance.sample(reservoir, min(NEW, len(reservoir)))
        for number, sample in enumerate(new, start=first):
            if len(reservoir) < kept:
                reservoir.append(sample)
            elif (place := chance.randrange(number + 1)) < kept:
                reservoir[place] = sample
        images, labels = zip(*batch, strict=True)
        yield normalised(torch.stack(images)), torch.tensor(labels), len(new)


def normalised(images: torch.Tensor) -> torch.Tensor:
    """Return images (n, H, W, 3) of bytes as the network takes them."""
    return (images.permute(0, 3, 1, 2) / 255 - 0.5) / 0.25


def network() -> nn.Module:
    """Return three convolutions and a classifier of all classes."""
    layers = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, padding=1), nn.GroupNorm(8, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * (SIDE // 8) ** 2, CLASSES))


def train(
    batches: Batches, tests: tuple[torch.Tensor, torch.Tensor], each: int, seed: int
) -> list[list[float]]:
    """Train on a stream; return after each task the accuracy, in percent, of each class that came until then."""
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    per_task, seen, found = CLASSES // TASKS, 0, []
    for images, labels, new in batches:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += new
        if seen >= (len(found) + 1) * per_task * each:
            with torch.no_grad():
                right = torch.cat([model(part).argmax(1) for part in tests[0].split(500)]) == tests[1]
            come = range((len(found) + 1) * per_task)
            found.append([100 * right[tests[1] == label].float().mean().item() for label in come])
    return found


def old(accuracies: list[float]) -> float:
    """Return the mean accuracy of the classes of earlier tasks."""
    return statistics.mean(accuracies[: -CLASSES // TASKS])


def slow_stream(seconds: float, share: float | tuple[float, float]) -> tuple[float, int]:
    """Train for a while from a stream that is slower than the training; return seconds of waiting, and steps."""
    chance, step = random.Random(0), 0.01

    def slow() -> Iterator[dict]:
        began, images = time.monotonic(), [(draw(label, chance), label) for label in range(CLASSES)] * 20
        for number in range(10**9):
            # First a rush that fills the buffer, then a quarter of what the training could take.
            if number >= 400:
                time.sleep(4 * step / NEW)
            if time.monotonic() - began > seconds:
                return
            image, label = images[number % len(images)]
            yield {"jpg": image, "cls": label}

    rehearsal = Rehearsal(200, share=share)
    source = streams.Iterator(slow(), name="slow")
    batches = iter(
        StreamLoader(source, batch_size=2 * NEW, rehearsal=rehearsal, transforms=SCALE, device="cpu")
    )
    next(batches)
    waited, steps = 0.0, 0
    while True:
        asked = time.monotonic()
        if next(batches, None) is None:
            return waited, steps
        waited, steps = waited + time.monotonic() - asked, steps + 1
        time.sleep(step)


def plot(curves: dict[str, list[float]], path: Path) -> None:
    """Write a drawing of the mean accuracy over old classes after each task."""
    width, height, edge, colours = 480, 300, 40, ("#c0392b", "#2471a3", "#7d8a2e")
    x = lambda task: edge + (width - 2 * edge) * (task - 2) / (TASKS - 2)  # noqa: E731
    y = lambda percent: height - edge - (height - 2 * edge) * percent / 100  # noqa: E731
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="white"/>'
    ]
    for percent in range(0, 101, 20):
        parts.append(f'<path d="M{edge} {y(percent):.0f}H{width - edge}" stroke="#ddd"/>')
        parts.append(f'<text x="{edge - 6}" y="{y(percent) + 4:.0f}" text-anchor="end">{percent}</text>')
    for task in range(2, TASKS + 1):
        parts.append(f'<text x="{x(task):.0f}" y="{height - edge + 16}" text-anchor="middle">{task}</text>')
    parts.append(f'<text x="{width / 2}" y="{height - 6}" text-anchor="middle">tasks so far</text>')
    parts.append(f'<text x="{edge}" y="16">accuracy over the classes of earlier tasks, %</text>')
    for number, (name, values) in enumerate(curves.items()):
        points = " ".join(f"{x(task):.1f},{y(value):.1f}" for task, value in enumerate(values, start=2))
        colour = colours[number]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{width - 150}" y="{30 + 14 * number}" fill="{colour}">{name}</text>')
    path.write_text("\n".join([*parts, "</svg>\n"]))


def main() -> None:
    """Train with each kind of memory by each seed, print the tables, draw the plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--each", type=int, default=1000, help="images of each class")
    parser.add_argument("--kept", type=float, default=0.05, help="share of all images that is kept")
    parser.add_argument("--compare", action="store_true", help="a reservoir in plain Python, too")
    parser.add_argument("--slow", type=float, default=5, help="seconds of a stream that is slow; 0: none")
    parser.add_argument("--plot", type=Path, help="an SVG file to be written")
    parser.add_argument("--json", type=Path, help="a file for what was measured")
    chosen = parser.parse_args()
    torch.set_num_threads(1)  # Small networks gain nothing by more, and the loader has threads of its own.
    kept = int(chosen.kept * CLASSES * chosen.each)
    runs: dict[str, list[list[list[float]]]] = {}
    for seed in range(chosen.seeds):
        samples = arrivals(chosen.each, seed)
        tests = arrivals(max(1, chosen.each // 5), 1000 + seed)
        pixels = [torch.from_numpy(np.array(Image.open(io.BytesIO(image)))) for image, _ in tests]
        judged = normalised(torch.stack(pixels)), torch.tensor([label for _, label in tests])
        ways = (by_foreload(samples, 0, seed), by_foreload(samples, kept, seed), by_hand(samples, kept, seed))
        for name, batches in list(zip(KINDS, ways, strict=True))[: 3 if chosen.compare else 2]:
            began = time.monotonic()
            found = train(batches, judged, chosen.each, seed)
            runs.setdefault(name, []).append(found)
            everything = statistics.mean(found[-1])
            told = f"accuracy over all classes {everything:.1f} %, over old classes {old(found[-1]):.1f} %"
            print(f"seed {seed}, {name}: {told}, {time.monotonic() - began:.0f} s", flush=True)
    print(f"\nforeload {foreload.__version__}, {chosen.seeds} seeds, {kept} of {len(samples)} images kept")
    print("\n| after task | " + " | ".join(runs) + " |\n| --- |" + " ---: |" * len(runs))
    for task in range(TASKS):
        cells = [
            f"{statistics.mean(statistics.mean(run[task]) for run in of_kind):.1f}"
            + (f", old {statistics.mean(old(run[task]) for run in of_kind):.1f}" if task else "")
            for of_kind in runs.values()
        ]
        print(f"| {task + 1} | " + " | ".join(cells) + " |")
    last = {name: [old(run[-1]) for run in of_kind] for name, of_kind in runs.items()}
    for name in [name for name in runs if name != "with rehearsal"]:
        by_seed = [own - other for own, other in zip(last["with rehearsal"], last[name], strict=True)]
        spread = f"{min(by_seed):+.1f} to {max(by_seed):+.1f} by seed"
        print(f"old classes, with rehearsal less {name}: {statistics.mean(by_seed):+.1f} points, {spread}")
    if chosen.plot:
        after = range(1, TASKS)
        curves = {
            name: [statistics.mean(old(run[task]) for run in of_kind) for task in after]
            for name, of_kind in runs.items()
        }
        plot(curves, chosen.plot)
    slow = {share: slow_stream(chosen.slow, share) for share in (0.5, (0.5, 0.95)) if chosen.slow}
    for share, (waited, steps) in slow.items():
        print(f"slow stream, share={share}: {steps} steps, {waited:.1f} s of {chosen.slow:.1f} s waiting")
    if chosen.json:
        told = {
            "kept": kept,
            "images": len(samples),
            "runs": runs,
            "slow": {str(each): slow[each] for each in slow},
        }
        chosen.json.write_text(json.dumps(told))


if __name__ == "__main__":
    main()
