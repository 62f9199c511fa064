"""Shards that the real webdataset writes, with an image, its mask, caption and JSON, train a network in torch.

The masks must equal the result of torchvision v2 for `tv_tensors.Mask` with the parameters that were drawn.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shards
from conftest import need
from PIL import Image

with need("torchvision", "webdataset"):
    import foreload
    import torch
    import webdataset
    from foreload import transforms as T
    from foreload.torch import ImageDataset
    from torchvision import tv_tensors
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional as F

SIZE = 48
SAMPLES = 96
FIELDS = ["jpg", "seg.png", "txt", "json"]
NEAREST = InterpolationMode.NEAREST


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards, written by webdataset itself."""
    root = tmp_path_factory.mktemp("webdataset")
    with webdataset.ShardWriter(str(root / "%03d.tar"), maxcount=SAMPLES // 3, verbose=0) as writer:
        for number in range(SAMPLES):
            members = shards.sample(number)
            # Members are written by its own encoders, except images, which must not lose precision.
            writer.write(
                {
                    "__key__": f"{number:06}",
                    "jpg": members["jpg"],
                    "seg.png": members["seg.png"],
                    "txt": members["txt"].decode(),
                    "json": json.loads(members["json"]),
                }
            )
    return root


def values(number: int) -> np.ndarray:
    """Return the class numbers of a sample's mask, as Pillow reads them."""
    return np.asarray(Image.open(io.BytesIO(shards.sample(number)["seg.png"])))


def torchvisions(number: int, view: dict[str, Any]) -> np.ndarray:
    """Return torchvision's result for a sample's mask with the crop, resize and flip that were drawn."""
    mask = tv_tensors.Mask(torch.from_numpy(values(number).copy()))
    size = [view["resized_height"], view["resized_width"]]
    mask = F.resized_crop(mask, view["y"], view["x"], view["height"], view["width"], size, NEAREST)
    top, left = view["top"], view["left"]
    mask = F.crop(mask, top, left, view["output_height"], view["output_width"])
    return np.asarray(F.horizontal_flip(mask) if view["flip"] else mask)


RECIPES = {
    "random resized crop": [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()],
    "resize and centre crop": [T.Resize(60), T.CenterCrop(SIZE)],
    "resize and random crop": [
        T.Resize(64, interpolation="bicubic"),
        T.RandomCrop(SIZE),
        T.RandomHorizontalFlip(),
    ],
    "padding and random crop": [T.Resize(52), T.RandomCrop(SIZE, padding=6)],
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_masks_are_torchvisions(root: Path, recipe: str) -> None:
    transforms = [*RECIPES[recipe], T.ToDtype("uint8")]
    loader = foreload.ImageLoader(root, batch_size=16, seed=7, fields=FIELDS, transforms=transforms)
    pixels = other = 0
    for epoch in range(2):
        for batch in loader:
            ids = np.from_dlpack(batch.sample_ids).tolist()
            assert batch["txt"] == [shards.sample(number)["txt"].decode() for number in ids]
            assert [of["id"] for of in batch["json"]] == ids
            for number, found in zip(ids, np.from_dlpack(batch["seg.png"]), strict=True):
                # All values are in the source, except the padding's.
                assert set(found.ravel()) <= set(values(number).ravel()) | {0}
                other += int((found != torchvisions(number, loader.view(number, epoch))).sum())
                pixels += found.size
    print(f"{other} of {pixels} values are others than torchvision's")
    assert other <= 1e-4 * pixels


# webdataset leaves its files to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "keys", [("jpg;png;webp", "txt;json"), ("png;jpg", "json;txt"), ("webp;png;jpg", "cls")]
)
def test_the_first_of_several_keys_is_webdataset_s(tmp_path: Path, keys: tuple[str, str]) -> None:
    def members(number: int) -> shards.Members:
        usual = shards.sample(number)
        png = shards.saved(Image.open(io.BytesIO(usual["jpg"])), "png")
        kinds: list[shards.Members] = [{"jpg": usual["jpg"]}, {"png": png}, {"jpg": usual["jpg"], "png": png}]
        texts = {key: usual[key] for key in ("txt", "json") if number % 2 or key == "json"}
        return {**kinds[number % 3], **texts, "cls": usual["cls"]}

    root = shards.make(tmp_path, 30, 2, members)
    shard_names = sorted(str(path) for path in root.glob("*.tar"))
    theirs = list(webdataset.WebDataset(shard_names, shardshuffle=False).to_tuple(*keys))
    asked = [foreload.fields.Bytes(key) for key in keys]
    loader = foreload.ImageLoader(root, batch_size=10, shuffle=False, fields=asked)
    ours = [pair for batch in loader for pair in zip(*(batch[key] for key in keys), strict=True)]
    assert ours == theirs


def test_two_views_have_their_masks(root: Path) -> None:
    transforms = T.Views(2, [T.RandomResizedCrop(32), T.RandomHorizontalFlip()])
    dataset = ImageDataset(root, batch_size=8, fields=FIELDS, transforms=transforms, with_ids=True)
    for batch in dataset:
        (one, other), (mask, other_mask) = batch["jpg"], batch["seg.png"]
        assert one.shape == other.shape == (8, 3, 32, 32)
        assert mask.shape == other_mask.shape == (8, 32, 32)
        assert not torch.equal(one, other)
        assert not torch.equal(mask, other_mask)
    labelled = ImageDataset(root, batch_size=8, transforms=transforms, labels=np.arange(SAMPLES))
    (one, other), labels = next(iter(labelled))
    assert one.shape == other.shape
    assert labels.shape == (8,)


def test_a_segmentation_learns(root: Path) -> None:
    """A toy model learns which pixels have an even class; it must be far better than chance."""

    def painted(number: int) -> shards.Members:
        rng = np.random.default_rng(number)
        classes = np.kron(rng.integers(0, 8, (6, 8), dtype=np.uint8), np.ones((12, 12), np.uint8))
        shade = np.where(classes % 2 == 0, 200, 60).astype(np.uint8)
        picture = np.stack([shade, np.full_like(shade, 128), 255 - shade], axis=-1)
        return {
            "jpg": shards.saved(Image.fromarray(picture), "jpeg", quality=95),
            "seg.png": shards.mask(classes),
        }

    shards.make(root / "toy", 64, 2, painted)
    dataset = ImageDataset(
        root / "toy",
        batch_size=16,
        seed=1,
        fields=["jpg", foreload.fields.Mask("seg.png", dtype="int64")],
        transforms=[
            T.RandomResizedCrop(32, scale=(0.5, 1)),
            T.RandomHorizontalFlip(),
            T.ToDtype(torch.float32),
            T.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
        ],
    )
    torch.manual_seed(0)
    network = torch.nn.Conv2d(3, 2, 3, padding=1)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    right = 0.0
    for _ in range(6):
        for batch in dataset:
            even = (batch["seg.png"] % 2 == 0).long()
            scores = network(batch["jpg"])
            loss = torch.nn.functional.cross_entropy(scores, even)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right = (scores.argmax(1) == even).float().mean().item()
    assert right > 0.95
