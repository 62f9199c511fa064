"""SSD's recipe on a device: canvases, crops that boxes determine, and later transforms, compared with the CPU."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import driver
import foreload
import images
import numpy as np
import pytest
from foreload import fields
from foreload import transforms as T

pytestmark = pytest.mark.usefixtures("gpu")

SAMPLES = 64
SSD = [
    *(T.RandomZoomOut(fill=(123, 117, 104)), T.RandomIoUCrop(), T.RandomHorizontalFlip()),
    *(T.Resize((40, 36)), T.RandomPhotometricDistort(), T.ToDtype("float16")),
]
CUT = [T.RandomIoUCrop(), T.Resize((40, 36))]


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of images, each with a mask of its classes and up to three boxes."""
    root = tmp_path_factory.mktemp("shard")
    rng = np.random.default_rng(12)

    def sample(number: int) -> dict[str, bytes]:
        photograph, array = images.photograph(rng), io.BytesIO()
        corners = np.sort(rng.uniform(0, 1, (number % 4, 2, 2)), axis=1) * photograph.size
        np.save(array, corners.reshape(-1, 4).astype(np.float32))
        mask = images.mask(rng, photograph.size)
        return {"jpg": images.encode(photograph, "s420"), "seg.png": mask, "boxes.npy": array.getvalue()}

    images.write_shard(root / "000.tar", (sample(number) for number in range(SAMPLES)))
    return root


def made(root: Path, device: str, transforms: list[T.Transform]) -> list[list[np.ndarray]]:
    """Return the batches of an epoch in host memory: images, masks, boxes and their offsets."""
    loader = foreload.ImageLoader(
        root,
        batch_size=16,
        seed=4,
        fields=["jpg", "seg.png", fields.Boxes("boxes.npy", shares=True)],
        transforms=transforms,
        device=device,
    )
    return [
        [driver.to_host(part) for part in (batch["jpg"], batch["seg.png"], *batch["boxes.npy"])]
        for batch in loader
    ]


@pytest.mark.parametrize("transforms", [SSD, CUT])
def test_images_masks_and_boxes_are_the_cpus(
    shard: Path, backend: Callable[[str], None], transforms: list[T.Transform]
) -> None:
    backend("cpu")
    for batch, expected in zip(made(shard, "cuda", transforms), made(shard, "cpu", transforms), strict=True):
        for seen, wanted in zip(batch, expected, strict=True):
            assert np.array_equal(seen, wanted)


def test_crops_of_what_the_gpu_decodes_are_the_cpus(shard: Path) -> None:
    dropped = 0
    for batch, expected in zip(made(shard, "cuda", CUT), made(shard, "cpu", CUT), strict=True):
        assert np.abs(batch[0].astype(int) - expected[0].astype(int)).mean() <= 1.5
        for seen, wanted in zip(batch[1:], expected[1:], strict=True):
            assert np.array_equal(seen, wanted)
        dropped += int((batch[2] == 0).all(axis=1).sum())
    assert dropped > 0
