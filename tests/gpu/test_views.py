"""Several views of each image on a device, and the masks that follow them: they have the bits of the CPU, as torch's
tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import driver
import foreload
import images
import numpy as np
import pytest
from foreload import transforms as T

pytestmark = pytest.mark.usefixtures("gpu")

SAMPLES = 32
TWO = T.Views(2, [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToDtype("uint8")])
TEN = [
    T.Views(2, [T.RandomResizedCrop((33, 21), scale=(0.3, 1)), T.ToDtype("float16")]),
    T.Views(8, [T.RandomResizedCrop(15, scale=(0.05, 0.3)), T.RandomHorizontalFlip()]),
]
GREY = T.Views(
    2,
    [
        T.RandomResizedCrop(32),
        T.Grayscale(),
        T.ToDtype("float16"),
        T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)),
    ],
)
SHAPES = {2: [(32, 32)] * 2, 10: [(33, 21)] * 2 + [(15, 15)] * 8}


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of images, each with a mask of its classes."""
    root = tmp_path_factory.mktemp("shard")
    rng = np.random.default_rng(11)

    def sample() -> dict[str, bytes]:
        photograph = images.photograph(rng)
        return {"jpg": images.encode(photograph, "s420"), "seg.png": images.mask(rng, photograph.size)}

    images.write_shard(root / "000.tar", (sample() for _ in range(SAMPLES)))
    return root


def made(root: Path, device: str, transforms: object, **settings: object) -> list[dict[str, list]]:
    """Return the batches of an epoch in host memory, with a list of views for each field."""
    settings = {"batch_size": 8, "seed": 3, "fields": ["jpg", "seg.png"], **settings}
    loader = foreload.ImageLoader(root, transforms=transforms, device=device, **settings)
    batches = []
    for batch in loader:
        assert all(view.__dlpack_device__()[0] == (2 if device == "cuda" else 1) for view in batch["jpg"])
        batches.append({name: [driver.to_host(view) for view in batch[name]] for name in ("jpg", "seg.png")})
        batches[-1]["ids"] = [driver.to_host(batch.sample_ids)]
    return batches


@pytest.mark.parametrize(("transforms", "views"), [(TWO, 2), (TEN, 10), (GREY, 2)])
def test_views_and_their_masks_are_the_cpus(
    shard: Path, backend: Callable[[str], None], transforms: object, views: int
) -> None:
    backend("cpu")
    on_gpu, on_cpu = (made(shard, device, transforms) for device in ("cuda", "cpu"))
    assert len(on_gpu) == len(on_cpu) == SAMPLES // 8
    for batch, expected in zip(on_gpu, on_cpu, strict=True):
        assert [view.shape for view in batch["jpg"]] == [(8, 3, *shape) for shape in SHAPES[views]]
        assert [view.shape for view in batch["seg.png"]] == [(8, *shape) for shape in SHAPES[views]]
        for name, tensors in expected.items():
            for view, (seen, wanted) in enumerate(zip(batch[name], tensors, strict=True)):
                assert np.array_equal(seen, wanted), f"{name}, view {view}"
        assert not np.array_equal(batch["jpg"][0], batch["jpg"][1]), "each view is a draw of its own"


def test_views_that_the_gpu_decodes_come_near_the_cpus(shard: Path) -> None:
    on_gpu, on_cpu = (made(shard, device, TWO) for device in ("cuda", "cpu"))
    for batch, expected in zip(on_gpu, on_cpu, strict=True):
        assert np.array_equal(batch["ids"], expected["ids"])
        for seen, wanted in zip(batch["seg.png"], expected["seg.png"], strict=True):
            assert np.array_equal(seen, wanted), "masks are the CPU's work"
        for seen, wanted in zip(batch["jpg"], expected["jpg"], strict=True):
            assert np.abs(seen.astype(int) - wanted.astype(int)).mean() <= 1.5


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_a_failed_sample_is_zero_in_every_view(own_dataset: Path) -> None:
    images.damage(images.paths(own_dataset)[33])
    loader = foreload.ImageLoader(
        own_dataset, batch_size=4, transforms=TEN, device="cuda", on_error="zero", fields=["image"]
    )
    zero = 0
    for batch in loader:
        ids, mask = map(driver.to_host, (batch.sample_ids, batch.mask))
        assert np.array_equal(mask, ids != 33)
        for view in map(driver.to_host, batch["image"]):
            assert not view[~mask].any()
            assert all(image.any() for image in view[mask])
            zero += int((~mask).sum())
    assert zero == 10


def test_torch_has_a_tensor_for_each_view(
    torch: ModuleType, shard: Path, backend: Callable[[str], None]
) -> None:
    from foreload.torch import ImageDataset

    backend("cpu")
    settings = dict(batch_size=8, fields=["jpg", "seg.png"], transforms=TEN)
    on_gpu, on_cpu = (ImageDataset(shard, **settings, device=device) for device in ("cuda", "cpu"))
    for batch, expected in zip(on_gpu, on_cpu, strict=True):
        assert len(batch["jpg"]) == len(batch["seg.png"]) == 10
        for name in ("jpg", "seg.png"):
            for view, wanted in zip(batch[name], expected[name], strict=True):
                assert view.device == torch.device("cuda", 0)
                assert view.dtype == wanted.dtype
                assert torch.equal(view.cpu(), wanted)
