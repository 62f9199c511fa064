"""Compares each transform with torchvision's functions, which get the same levels and draws.

It runs in an environment with torchvision: `ops.py DATA --sizes 224 96 --seed 0` prints a line of JSON for each
transform and size. In each comparison, Foreload makes an image without the transform, and again with it. Each drawn
operation is then run on the same levels by Foreload and by torchvision, and the levels after the last one must equal
those of the image. So no error of an operation affects the comparison of later ones. In addition, the result of the
whole list is compared if torchvision runs all operations on its own levels.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import replay
import torch
from cases import EXACT, FLOATS, PIXELS, Allowed, allowed, placements
from foreload import ImageLoader
from foreload import transforms as T
from foreload._core import replay_operations
from replay import Drawn
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

CLASSES = 1000
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Images = dict[int, torch.Tensor]
"""Images by sample id."""


class Difference:
    """The difference of values from torchvision's."""

    def __init__(self, rule: Allowed) -> None:
        self.rule = rule
        self.images = self.values = self.differing = self.beyond = 0
        self.largest = 0.0

    def add(self, ours: torch.Tensor, theirs: torch.Tensor, scale: float = 1.0) -> None:
        """Add an image, (channels, height, width), whose levels are `scale` times its values."""
        assert ours.shape == theirs.shape, f"{tuple(ours.shape)}, torchvision's is {tuple(theirs.shape)}"
        found = (ours.float() - theirs.float()).abs() * scale
        if self.rule.of_pixels:
            found = found.amax(0)
        self.images += 1
        self.values += found.numel()
        self.differing += int((found > 0).sum())
        self.beyond += int((found > 1).sum())
        self.largest = max(self.largest, float(found.max()))

    def figures(self) -> dict[str, Any]:
        share, beyond = self.differing / self.values, self.beyond / self.values
        rule = self.rule
        return {
            "images": self.images,
            "largest": self.largest,
            "share": share,
            "share_beyond_1": beyond,
            "allowed": dataclasses.asdict(rule),
            "met": self.largest <= rule.largest and share <= rule.share and beyond <= rule.beyond,
        }


def load(
    data: Path, transforms: Sequence[T.Transform], seed: int, **settings: Any
) -> tuple[ImageLoader, Images]:
    loader = ImageLoader(
        data,
        batch_size=20,
        seed=seed,
        last_batch="partial",
        device="cpu",
        transforms=list(transforms),
        **settings,
    )
    found = {}
    for batch in loader:
        samples = torch.from_dlpack(batch.sample_ids).tolist()
        images = batch["image"]
        # Images of different sizes are a list.
        images = images if isinstance(images, list) else torch.from_dlpack(images)
        for sample, image in zip(samples, images, strict=True):
            image = image if isinstance(image, torch.Tensor) else torch.from_dlpack(image)
            found[sample] = image.clone()
    return loader, found


def ours(image: torch.Tensor, drawn: Drawn) -> torch.Tensor:
    _, height, width = image.shape
    made = replay_operations(json.dumps([drawn]), image.contiguous().numpy().tobytes(), width, height)
    return torch.frombuffer(bytearray(made), dtype=torch.uint8).reshape(image.shape)


Step = tuple[Drawn, torch.Tensor, torch.Tensor]
"""An operation, and the results of Foreload and torchvision for the same image."""


def steps(image: torch.Tensor, ops: Sequence[Drawn]) -> Iterator[Step]:
    """Yield each operation with both results; each operates on Foreload's result of the previous one."""
    for drawn in ops:
        if drawn["op"] == "augmix":
            made = []
            for chain in drawn["chains"]:
                last = image
                for step in steps(image, chain):
                    last = step[1]
                    yield step
                made.append(last)
            step = drawn, ours(image, drawn), replay.weighted(image, drawn["weights"], made)
        else:
            step = drawn, ours(image, drawn), replay.replayed(image, drawn)
        yield step
        image = step[1]


def pixels(
    data: Path, size: int | tuple[int, int], seed: int, names: Sequence[str] = tuple(PIXELS)
) -> Iterator[dict[str, Any]]:
    """Compare operations on pixels: a line for each kind of arithmetic, and one for the whole list."""
    geometry = [T.RandomResizedCrop(size), T.RandomHorizontalFlip()]
    # Adding a transform does not change the draws of the others.
    _, before = load(data, geometry, seed)
    for name in names:
        loader, behind = load(data, [*geometry, PIXELS[name]], seed)
        assert before.keys() == behind.keys()
        by_rule: dict[Allowed, Difference] = {}
        whole = Difference(EXACT)
        for sample, image in before.items():
            ops, last = loader.view(sample, epoch=0)["ops"], image
            for drawn, last, theirs in steps(image, ops):
                rule = allowed(drawn)
                by_rule.setdefault(rule, Difference(rule)).add(last, theirs)
            assert torch.equal(last, behind[sample]), f"{name}, sample {sample}: {ops} make another image"
            whole.add(behind[sample], replay.in_order(image, ops))
        figures = whole.figures()
        kept = {key: figures[key] for key in ("images", "largest", "share", "share_beyond_1")}
        yield {"name": name, "steps": [found.figures() for found in by_rule.values()], "whole": kept}


def geometry(data: Path, size: int, seed: int) -> Iterator[dict[str, Any]]:
    """Compare crops, resizes, padding and flips of decoded pixels, which `transforms=[]` returns."""
    _, decoded = load(data, [], seed, decode="exact")
    for name, case in placements(size).items():
        loader, behind = load(data, case.transforms, seed, decode="exact")
        found = Difference(case.allowed)
        # torchvision supports `lanczos` only for Pillow's images.
        of = replay.pillow_resize if case.interpolation == "lanczos" else F.resize
        resize = functools.partial(of, interpolation=InterpolationMode(case.interpolation))
        for sample, image in decoded.items():
            found.add(
                behind[sample], replay.placed(image, loader.view(sample, epoch=0), resize, **case.padding)
            )
        yield {"name": name, "steps": [found.figures()]}


def finished(data: Path, size: int, seed: int) -> Iterator[dict[str, Any]]:
    """Compare the conversion of levels to floats, and operations on floats, in units of 8-bit levels."""
    changed = [T.RandomResizedCrop(size), T.RandomInvert(0.5)]
    normalised = [*changed, T.ToDtype("float32"), T.Normalize(MEAN, STD)]
    _, levels = load(data, changed, seed)
    _, floats = load(data, normalised, seed)
    scale = 255 * min(STD)
    found = Difference(FLOATS)
    for sample, image in levels.items():
        theirs = F.normalize(F.to_dtype(image, torch.float32, scale=True), list(MEAN), list(STD))
        found.add(floats[sample], theirs, scale)
    yield {"name": "ToDtype, Normalize", "steps": [found.figures()]}
    loader, behind = load(data, [*normalised, T.RandomErasing(1.0, value=(0.5, -1, 2))], seed)
    found = Difference(EXACT)
    for sample, image in floats.items():
        for erased in loader.view(sample, epoch=0)["erasures"]:
            value = torch.tensor(erased["v"]["values"])[:, None, None]
            image = F.erase(image, *(erased[name] for name in "ijhw"), value)
        found.add(behind[sample], image, scale)
    yield {"name": "RandomErasing behind Normalize", "steps": [found.figures()]}
    for mix in (T.MixUp(alpha=0.4, num_classes=CLASSES), T.CutMix(alpha=1.0, num_classes=CLASSES)):
        found = Difference(EXACT)
        settings = {"transforms": normalised, "batch_size": 4, "seed": seed, "device": "cpu"}
        loader, plain = (ImageLoader(data, mix=asked, **settings) for asked in (mix, None))
        for batch, unmixed in zip(loader.batches(0), plain.batches(0), strict=True):
            drawn = replay.mixing(loader.mix(4 * batch.step, 0), CLASSES)
            images, labels = (torch.from_dlpack(what) for what in (unmixed.images, unmixed.labels))
            theirs, soft = drawn(images, labels)
            assert torch.equal(torch.from_dlpack(batch.labels), soft)
            for image, other in zip(torch.from_dlpack(batch.images), theirs, strict=True):
                found.add(image, other, scale)
        yield {"name": type(mix).__name__, "steps": [found.figures()]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="image folder")
    parser.add_argument("--sizes", type=int, nargs="+", required=True, help="sides of the outputs")
    parser.add_argument("--seed", type=int, required=True)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for size in chosen.sizes:
        for compared in (geometry, pixels, finished):
            for entry in compared(chosen.data, size, chosen.seed):
                print(json.dumps({"kind": compared.__name__, "size": size, **entry}), flush=True)


if __name__ == "__main__":
    main()
