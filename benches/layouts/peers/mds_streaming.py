"""MDS through MosaicML Streaming, torchvision v2 and torch's DataLoader.

Streaming returns images that Pillow has opened but not decoded; torchvision.io decodes their bytes, which is the
fastest way. With the variant `pil`, Pillow decodes them.
"""

from __future__ import annotations

import torch
from harness import measure
from harness.measure import Epoch, Options
from harness.torch_peers import crop_and_flip, decoded, normalised
from streaming import StreamingDataset
from torch.utils.data import DataLoader


class Views(StreamingDataset):
    """A dataset of views and labels."""

    def __init__(self, options: Options) -> None:
        super().__init__(
            local=str(options.data), shuffle=True, shuffle_seed=options.seed, batch_size=options.batch_size
        )
        self.by_pillow = options.variant == "pil"
        self.transform = crop_and_flip(options.image_size)

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        sample = super().__getitem__(at)
        image = sample["image"]
        pixels = decoded(image.convert("RGB") if self.by_pillow else image.fp.getvalue())
        return self.transform(pixels), sample["label"]


def prepare(options: Options) -> Epoch:
    """Batches are stacked in the workers; Streaming assigns samples to each worker."""
    torch.set_num_threads(1)
    loader = DataLoader(
        Views(options),
        batch_size=options.batch_size,
        num_workers=options.threads,
        persistent_workers=True,
        drop_last=True,
    )

    def epoch(_number: int, _batches: int | None) -> measure.Batches:
        # An epoch that is stopped early would count as started, so the warm-up is a whole epoch.
        for images, labels in loader:
            yield normalised(images).numpy(), labels.numpy()

    return epoch


if __name__ == "__main__":
    measure.main(prepare)
