"""Samples with several images on a device, compared with the CPU: secondary images, which follow the primary image's
transforms, and images with their own transforms.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import driver
import foreload
import images
import numpy as np
import pytest
from foreload import fields
from foreload import transforms as T

pytestmark = pytest.mark.usefixtures("gpu")

SAMPLES = 24
LIST = [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToDtype("float16")]
FIELDS = ["left.jpg", "right.jpg", "seg.png"]
EACH = {
    "left.jpg": T.Views(2, [T.RandomResizedCrop((33, 21)), T.RandomHorizontalFlip()]),
    "right.jpg": [T.RandomResizedCrop(15), T.Grayscale(), T.ToDtype("float16")],
}


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs of photographs of one size, with a mask; every fourth pair lacks the second."""
    root = tmp_path_factory.mktemp("pairs")
    rng = np.random.default_rng(5)

    def sample(number: int) -> dict[str, bytes]:
        one = images.photograph(rng)
        other = images.photograph(rng).resize(one.size)
        seg = images.mask(rng, one.size)
        members = {"left.jpg": images.encode(one, "s420"), "right.jpg": images.encode(other, "s444")}
        if number % 4 == 3:
            del members["right.jpg"]
        return {**members, "seg.png": seg}

    images.write_shard(root / "000.tar", map(sample, range(SAMPLES)))
    return root


def made(root: Path, device: str, asked: list[Any], **settings: Any) -> list[dict[str, list[np.ndarray]]]:
    """Return the batches of an epoch in host memory, with a list of views for each field."""
    settings = {"batch_size": 8, "seed": 3, "on_error": "skip", "max_errors": 100, **settings}
    loader = foreload.ImageLoader(root, fields=asked, device=device, **settings)
    batches = []
    for batch in loader:
        views = {name: field if isinstance(field, tuple) else (field,) for name, field in batch.items()}
        batches.append({name: [driver.to_host(view) for view in of] for name, of in views.items()})
        batches[-1]["ids"] = [driver.to_host(batch.sample_ids)]
    return batches


@pytest.mark.filterwarnings("ignore::foreload.Warning")
@pytest.mark.parametrize(
    ("asked", "transforms"),
    [
        (FIELDS, LIST),
        (FIELDS, EACH),
        (["right.jpg", "left.jpg", fields.Mask("seg.png", follows="left.jpg")], EACH),
        (["left.jpg", fields.Image("right.jpg", optional=True), "seg.png"], LIST),
    ],
    ids=["following", "by field", "in another order", "optional"],
)
def test_images_and_masks_are_the_cpus(
    shard: Path, backend: Callable[[str], None], asked: list[Any], transforms: Any
) -> None:
    backend("cpu")
    on_gpu, on_cpu = (made(shard, device, asked, transforms=transforms) for device in ("cuda", "cpu"))
    assert len(on_gpu) == len(on_cpu) == SAMPLES // 8
    for batch, expected in zip(on_gpu, on_cpu, strict=True):
        assert batch.keys() == expected.keys()
        for name, tensors in expected.items():
            for view, (seen, wanted) in enumerate(zip(batch[name], tensors, strict=True)):
                assert np.array_equal(seen, wanted), f"{name}, view {view}"


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_images_that_the_gpu_decodes_come_near_the_cpus(shard: Path) -> None:
    levels = [*LIST[:2], T.ToDtype("uint8")]
    on_gpu, on_cpu = (made(shard, device, FIELDS, transforms=levels) for device in ("cuda", "cpu"))
    for batch, expected in zip(on_gpu, on_cpu, strict=True):
        assert np.array_equal(batch["ids"], expected["ids"])
        assert np.array_equal(batch["seg.png"], expected["seg.png"])
        for name in ("left.jpg", "right.jpg"):
            difference = np.abs(batch[name][0].astype(int) - expected[name][0].astype(int)).mean()
            assert difference <= 1.5, name


def test_torch_has_every_image_on_the_device(
    torch: ModuleType, shard: Path, backend: Callable[[str], None]
) -> None:
    from foreload.torch import ImageDataset

    backend("cpu")
    asked = ["left.jpg", fields.Image("right.jpg", optional=True)]
    settings = dict(batch_size=8, fields=asked, transforms=EACH)
    on_gpu, on_cpu = (ImageDataset(shard, **settings, device=device) for device in ("cuda", "cpu"))
    for batch, expected in zip(on_gpu, on_cpu, strict=True):
        assert len(batch["left.jpg"]) == 2
        images_of = lambda of: (*of["left.jpg"], of["right.jpg"])  # noqa: E731
        for seen, wanted in zip(images_of(batch), images_of(expected), strict=True):
            assert seen.device == torch.device("cuda", 0)
            assert torch.equal(seen.cpu(), wanted)
