"""Parquet through `datasets`, torchvision v2 and torch's DataLoader.

`datasets` returns the files' bytes, which torchvision.io decodes: the fastest way. With the variant `pil`, `datasets`
decodes them with Pillow, as it does by default.
"""

from __future__ import annotations

from typing import Any

import datasets
import torch
from harness import measure
from harness.measure import Epoch, Options
from harness.torch_peers import crop_and_flip, decoded, epochs_of, normalise
from PIL import Image


def prepare(options: Options) -> Epoch:
    """Open the files as one dataset; `datasets` makes its Arrow copy in the scratch folder."""
    by_pillow = options.variant == "pil"
    transform = crop_and_flip(options.image_size)

    def views(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        images = [
            transform(decoded(image.convert("RGB") if isinstance(image, Image.Image) else image["bytes"]))
            for image in rows["image"]
        ]
        return {"image": images, "label": rows["label"]}

    paths = sorted(str(path) for path in options.data.glob("*.parquet"))
    dataset = datasets.load_dataset(
        "parquet", data_files=paths, split="train", cache_dir=str(options.scratch / "datasets")
    )
    if not by_pillow:
        dataset = dataset.cast_column("image", datasets.Image(decode=False))
    return epochs_of(Rows(dataset.with_transform(views)), options, normalise)


class Rows(torch.utils.data.Dataset):
    """Rows as pairs of image and label."""

    def __init__(self, dataset: datasets.Dataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        row = self.dataset[number]
        return row["image"], row["label"]

    def __getitems__(self, numbers: list[int]) -> list[tuple[torch.Tensor, int]]:
        """Return the rows of a batch, which `datasets` reads in one call."""
        rows = self.dataset[numbers]
        return list(zip(rows["image"], rows["label"], strict=True))


if __name__ == "__main__":
    measure.main(prepare)
