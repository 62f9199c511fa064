"""The common code of the peers with torch's DataLoader: several views of an image, batches with erasing and mixing."""

from __future__ import annotations

from collections.abc import Callable

import recipes
import torch
from harness.measure import Epoch, Options
from harness.torch_peers import Files, epochs_of, normalised
from recipes import Recipe, View
from torchvision.transforms import v2


class Finish:
    """Makes the batches of a recipe from the stacked views that workers send."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.erase = v2.RandomErasing(
            recipe.erasing, recipes.ERASED_SCALE, recipes.ERASED_RATIO, inplace=True
        )
        mixup = v2.MixUp(alpha=recipes.MIXUP_ALPHA, num_classes=recipes.CLASSES)
        cutmix = v2.CutMix(alpha=recipes.CUTMIX_ALPHA, num_classes=recipes.CLASSES)
        self.mix = v2.RandomChoice([mixup, cutmix])

    def __call__(
        self, sent: list[torch.Tensor], labels: torch.Tensor
    ) -> tuple[torch.Tensor | list[torch.Tensor], torch.Tensor]:
        views = [normalised(stacked) for stacked in sent]
        if self.recipe.erasing:
            for image in (image for view in views for image in view):
                self.erase(image)
        if self.recipe.mixing:
            mixed, labels = self.mix(views[0], labels)
            views = [mixed]
        return views, labels


def epochs(options: Options, read: Callable[[str], object], transform: Callable[[View], Callable]) -> Epoch:
    """Return the epochs of a recipe: all views of each image are made from one image that `read` decodes."""
    recipe = recipes.chosen(options)
    transforms = [transform(view) for view in recipe.views]

    def load(path: str) -> list[torch.Tensor]:
        image = read(path)
        return [transform(image) for transform in transforms]

    return epochs_of(Files(options, load), options, Finish(recipe))
