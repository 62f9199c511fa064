"""Foreload itself: batches through NumPy (DLPack, no copy)."""

from __future__ import annotations

import itertools

import foreload
import numpy as np
import recipes
from foreload import transforms as T
from harness import measure
from harness.measure import MEAN, RATIO, STD, Epoch, Options
from recipes import Recipe, View


def steps(view: View, erasing: float) -> list:
    listed = [
        T.RandomResizedCrop(view.side, view.scale, RATIO, view.interpolation),
        T.RandomHorizontalFlip(recipes.FLIP),
    ]
    if view.jitter:
        jitter = T.ColorJitter(*view.jitter.strengths)
        listed.append(jitter if view.jitter.p == 1 else T.RandomApply([jitter], view.jitter.p))
    if view.grey:
        listed.append(T.RandomGrayscale(view.grey))
    if view.blur:
        blur = T.GaussianBlur(view.blur_kernel, recipes.BLUR_SIGMA)
        listed.append(blur if view.blur == 1 else T.RandomApply([blur], view.blur))
    if view.solarise:
        listed.append(T.RandomSolarize(recipes.SOLARISE_FROM, view.solarise))
    if view.policy == "RandAugment":
        listed.append(T.RandAugment(**recipes.RAND_AUGMENT, interpolation=view.warp))
    elif view.policy == "TrivialAugmentWide":
        listed.append(T.TrivialAugmentWide(interpolation=view.warp))
    listed += [T.ToDtype("float32"), T.Normalize(MEAN, STD)]
    if erasing:
        listed.append(T.RandomErasing(erasing, recipes.ERASED_SCALE, recipes.ERASED_RATIO))
    return listed


def mixing(recipe: Recipe) -> dict:
    if not recipe.mixing:
        return {}
    mixup = T.MixUp(alpha=recipes.MIXUP_ALPHA, num_classes=recipes.CLASSES)
    cutmix = T.CutMix(alpha=recipes.CUTMIX_ALPHA, num_classes=recipes.CLASSES)
    return {"mix": [T.RandomChoice([mixup, cutmix])]}


def prepare(options: Options) -> Epoch:
    recipe = recipes.chosen(options)
    several = len(recipe.views) > 1
    views = [
        T.Views(len(list(alike)), steps(view, recipe.erasing))
        for view, alike in itertools.groupby(recipe.views)
    ]
    loader = foreload.ImageLoader(
        str(options.data),
        batch_size=options.batch_size,
        seed=options.seed,
        threads=options.threads,
        last_batch="drop",
        transforms=views if several else views[0].transforms,
        **mixing(recipe),
    )

    def arrays(batch: foreload.Batch) -> list[np.ndarray]:
        return [np.from_dlpack(view) for view in (batch["image"] if several else (batch.images,))]

    return measure.foreload_epochs(loader, arrays)


if __name__ == "__main__":
    measure.main(prepare, recipes.sides)
