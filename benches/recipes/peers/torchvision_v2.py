"""torchvision at its fastest on the CPU: torchvision.io, v2 transforms on uint8 tensors, batched normalise."""

from __future__ import annotations

import recipes
import torch_batches
from harness import measure
from harness.measure import RATIO, Epoch, Options
from harness.torch_peers import read_image
from recipes import View
from torchvision.transforms import InterpolationMode, v2


def sometimes(p: float, transform: v2.Transform) -> v2.Transform:
    """Return a transform that is applied with probability `p`."""
    return transform if p == 1 else v2.RandomApply([transform], p)


def transform(view: View) -> v2.Transform:
    interpolation = InterpolationMode(view.interpolation)
    steps = [
        v2.RandomResizedCrop(view.side, view.scale, RATIO, interpolation, antialias=True),
        v2.RandomHorizontalFlip(recipes.FLIP),
    ]
    if view.jitter:
        steps.append(sometimes(view.jitter.p, v2.ColorJitter(*view.jitter.strengths)))
    if view.grey:
        steps.append(v2.RandomGrayscale(view.grey))
    if view.blur:
        steps.append(sometimes(view.blur, v2.GaussianBlur(view.blur_kernel, recipes.BLUR_SIGMA)))
    if view.solarise:
        steps.append(v2.RandomSolarize(recipes.SOLARISE_FROM, view.solarise))
    if view.policy == "RandAugment":
        warp = InterpolationMode(view.warp)
        steps.append(v2.RandAugment(**recipes.RAND_AUGMENT, interpolation=warp))
    elif view.policy == "TrivialAugmentWide":
        steps.append(v2.TrivialAugmentWide(interpolation=InterpolationMode(view.warp)))
    return v2.Compose(steps)


def prepare(options: Options) -> Epoch:
    return torch_batches.epochs(options, read_image, transform)


if __name__ == "__main__":
    measure.main(prepare, recipes.sides)
