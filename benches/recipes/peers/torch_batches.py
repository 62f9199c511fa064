"""What the peers in torch's DataLoader share: several views of an image, and batches that are erased and mixed."""

from __future__ import annotations

from collections.abc import Callable

import measure
import recipes
import torch
from measure import Epoch, Options
from recipes import Recipe, View
from torch.utils.data import Dataset
from torch_common import epochs_of, normalised
from torchvision.transforms import v2

Sample = tuple[list[torch.Tensor], int]
"""The views of an image, uint8 (3, side, side), and its label."""


class Views(Dataset):
    """All views of each image, made from one decoded image."""

    def __init__(
        self, options: Options, read: Callable[[str], object], transform: Callable[[View], Callable]
    ) -> None:
        """List the images; `transform` makes what turns a read image into a tensor."""
        self.paths, self.labels = measure.list_images(options.data)
        self.read = read
        self.transforms = [transform(view) for view in recipes.chosen(options).views]

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.paths)

    def __getitem__(self, index: int) -> Sample:
        """Return the views of an image and its label."""
        image = self.read(self.paths[index])
        return [transform(image) for transform in self.transforms], self.labels[index]


class Finish:
    """Makes the batches of a recipe from the stacked views that workers send."""

    def __init__(self, recipe: Recipe) -> None:
        """Make what erases and mixes."""
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
        """Normalise each view; erase in each image; mix the batch."""
        views = [normalised(stacked) for stacked in sent]
        if self.recipe.erasing:
            for image in (image for view in views for image in view):
                self.erase(image)
        if self.recipe.mixing:
            mixed, labels = self.mix(views[0], labels)
            views = [mixed]
        return views, labels


def epochs(options: Options, read: Callable[[str], object], transform: Callable[[View], Callable]) -> Epoch:
    """Return the epochs of a recipe."""
    return epochs_of(Views(options, read, transform), options, Finish(recipes.chosen(options)))
