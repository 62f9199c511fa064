"""A real torch takes batches on the device: the values it sees, on which streams, and when buffers are reused. @@t 53
The pixels are the same each time, so that only the conversion differs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import driver
import foreload
import numpy as np
import pytest
from resemblance import compare

pytestmark = pytest.mark.usefixtures("torch")

SETTINGS = {"batch_size": 4, "image_size": 32, "device": "cuda"}
LONG = 400_000_000
"""The clock cycles that a kernel spins: about 0.2 s, in which many batches pass."""


def numbers(batch: foreload.Batch) -> list[int]:
    """Return sample ids without torch."""
    return driver.to_host(batch.sample_ids).tolist()


def check(copies: list[tuple[list[int], object]], expected: dict[int, np.ndarray]) -> None:
    """Compare uint8 NCHW copies with the CPU's pixels."""
    seen: dict[int, np.ndarray] = {}
    for ids, copy in copies:
        seen |= dict(zip(ids, copy.cpu().numpy(), strict=True))
    compare(seen, expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
@pytest.mark.parametrize("memory_format", ["nchw", "nhwc"])
def test_torch_takes_it_without_a_copy(
    torch: ModuleType, dataset: Path, dtype: str, memory_format: str
) -> None:
    batch = next(iter(foreload.ImageLoader(dataset, **SETTINGS, dtype=dtype, memory_format=memory_format)))
    one, two = torch.from_dlpack(batch.images), torch.from_dlpack(batch.images)
    assert one.device == torch.device("cuda", 0)
    assert one.dtype == getattr(torch, dtype)
    assert tuple(one.shape) == batch.images.shape
    assert one.is_contiguous()
    assert one.data_ptr() == two.data_ptr()
    assert torch.from_dlpack(batch.labels).dtype == torch.int64
    assert float(one.float().std()) > 0.1


def test_dtypes_agree(torch: ModuleType, dataset: Path, backend: Callable[[str], None]) -> None:
    backend("cpu")  # The pixels are the same each time, so that only the conversion differs.
    settings = {**SETTINGS, "seed": 2}
    exact = [torch.from_dlpack(b.images).clone() for b in foreload.ImageLoader(dataset, **settings)]
    for dtype, bound in (("float16", 2e-3), ("bfloat16", 1.6e-2)):
        for wide, batch in zip(exact, foreload.ImageLoader(dataset, **settings, dtype=dtype), strict=True):
            assert float((torch.from_dlpack(batch.images).float() - wide).abs().max()) < bound


def test_consumers_on_side_streams_see_whole_batches(
    torch: ModuleType, mixed: Path, on_cpu: Callable
) -> None:
    streams = [torch.cuda.Stream() for _ in range(3)]
    copies = []
    for step, batch in enumerate(foreload.ImageLoader(mixed, **SETTINGS, dtype="uint8")):
        with torch.cuda.stream(streams[step % 3]):
            copies.append((numbers(batch), torch.from_dlpack(batch.images).clone()))
    torch.cuda.synchronize()
    check(copies, on_cpu(mixed))


def test_a_buffer_is_not_reused_while_a_kernel_still_reads_it(
    torch: ModuleType, dataset: Path, on_cpu: Callable
) -> None:
    """The copy waits for a long kernel. The batch is dropped at once, and many batches pass while the copy waits. @@t
    81 A loader that is iterated again begins the next epoch. @@t 96 This is work on the default stream, which must not
    touch ours.
    """
    side = torch.cuda.Stream()
    loader = foreload.ImageLoader(dataset, **SETTINGS, dtype="uint8")
    copies = []
    for epoch in range(3):
        loader.set_epoch(epoch)  # A loader that is iterated again begins the next epoch.
        batch = next(iter(loader))
        ids = numbers(batch)
        with torch.cuda.stream(side):
            images = torch.from_dlpack(batch.images)
            torch.cuda._sleep(LONG)
            copy = torch.empty_like(images)
            copy.copy_(images)
        copies.append((epoch, ids, copy))
        del batch, images
        gc.collect()
        for _ in range(3):
            for other in loader:
                torch.from_dlpack(other.images).add_(
                    1
                )  # This is work on the default stream, which must not touch ours.
            del other
    side.synchronize()
    for epoch, ids, copy in copies:
        check([(ids, copy)], on_cpu(dataset, epoch=epoch))


def test_hundreds_of_batches_pass_while_the_device_is_busy(
    torch: ModuleType, dataset: Path, on_cpu: Callable
) -> None:
    """Every batch is dropped while its copy is still queued after a kernel that spins."""
    stream = torch.cuda.Stream()
    loader = foreload.ImageLoader(dataset, **SETTINGS, dtype="uint8", device_memory="256MB")
    for epoch in range(20):
        loader.set_epoch(epoch)
        copies = []
        for batch in loader:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(LONG // 100)
                copies.append((numbers(batch), torch.from_dlpack(batch.images).clone()))
            del batch
        stream.synchronize()
        check(copies, on_cpu(dataset, epoch=epoch))


def test_a_kept_tensor_stays_as_it_was(torch: ModuleType, dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    kept = []
    for epoch in range(4):
        loader.set_epoch(epoch)
        kept += [(images, images.clone()) for images in (torch.from_dlpack(b.images) for b in loader)]
    del loader
    gc.collect()
    assert len(kept) == 60
    assert all(torch.equal(images, clone) for images, clone in kept)


def test_writing_into_a_batch_harms_no_other(torch: ModuleType, dataset: Path, on_cpu: Callable) -> None:
    loader = foreload.ImageLoader(dataset, **SETTINGS, dtype="uint8")
    for epoch in range(5):
        loader.set_epoch(epoch)
        copies = []
        for batch in loader:
            images = torch.from_dlpack(batch.images)
            copies.append((numbers(batch), images.clone()))
            images.fill_(77)
        check(copies, on_cpu(dataset, epoch=epoch))


def test_it_shares_the_device_with_torchs_allocator(torch: ModuleType, dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    for epoch in range(3):
        loader.set_epoch(epoch)
        for batch in loader:
            torch.from_dlpack(batch.images).square().sum().item()
    held = torch.cuda.mem_get_info()[0]
    for epoch in range(20):
        loader.set_epoch(epoch)
        for _ in loader:
            pass
    assert held - torch.cuda.mem_get_info()[0] < 64 << 20


def test_the_dataset_yields_cuda_tensors(torch: ModuleType, dataset: Path, on_cpu: Callable) -> None:
    from foreload.torch import ImageDataset

    data = ImageDataset(
        dataset, batch_size=12, image_size=32, device="cuda", dtype=torch.uint8, with_mask=True
    )
    assert len(data) == 5
    for images, labels, mask in data:
        assert images.device == labels.device == mask.device == torch.device("cuda", 0)
        assert images.dtype == torch.uint8
        assert images.shape == (12, 3, 32, 32)
        assert labels.dtype == torch.int64
        assert mask.dtype == torch.bool
        assert bool(mask.all())


def test_channels_last(torch: ModuleType, dataset: Path) -> None:
    from foreload.torch import ImageDataset

    settings = {"batch_size": 12, "image_size": 32, "device": "cuda", "train": False}
    images, _ = next(iter(ImageDataset(dataset, memory_format=torch.channels_last, **settings)))
    assert images.shape == (12, 3, 32, 32)
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_a_training_step_on_the_device(torch: ModuleType, dataset: Path) -> None:
    from foreload.torch import ImageDataset

    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 8, 3, stride=4), torch.nn.Flatten(), torch.nn.Linear(8 * 8 * 8, 3)
    model = torch.nn.Sequential(*layers).cuda()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    data = ImageDataset(dataset, batch_size=12, image_size=32, device="cuda")
    for epoch in range(3):
        data.set_epoch(epoch)
        for images, labels in data:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    assert bool(torch.isfinite(loss))


def test_cupy_takes_the_array_interface(torch: ModuleType, cupy: ModuleType, dataset: Path) -> None:
    for dtype in ("float32", "float16", "uint8"):
        batch = next(iter(foreload.ImageLoader(dataset, **SETTINGS, dtype=dtype)))
        array = cupy.asarray(batch.images)
        assert array.dtype == dtype
        assert array.shape == batch.images.shape
        assert array.data.ptr == torch.from_dlpack(batch.images).data_ptr()
        assert np.array_equal(cupy.asnumpy(array), driver.to_host(batch.images))
        assert np.array_equal(cupy.asnumpy(cupy.from_dlpack(batch.labels)), driver.to_host(batch.labels))


@pytest.fixture(scope="module")
def cupy_stream(cupy: ModuleType) -> object:
    """Return a stream that outlives the batches: CuPy destroys streams without owners."""
    return cupy.cuda.Stream(non_blocking=True)


@pytest.mark.parametrize("way", ["dlpack", "array interface"])
def test_cupy_on_a_stream_of_its_own(
    cupy: ModuleType, cupy_stream: object, dataset: Path, on_cpu: Callable, way: str
) -> None:
    copies, kept = [], []
    for batch in foreload.ImageLoader(dataset, **SETTINGS, dtype="uint8"):
        with cupy_stream:
            if way == "dlpack":
                array = cupy.from_dlpack(batch.images)
            else:
                # The interface does not tell the producer which stream reads, so the consumer keeps the array until it
                # has read it.
                array = cupy.asarray(batch.images)
                kept.append(array)
            copies.append((numbers(batch), array.copy()))
        del array, batch
    cupy_stream.synchronize()
    seen: dict[int, np.ndarray] = {}
    for ids, copy in copies:
        seen |= dict(zip(ids, cupy.asnumpy(copy), strict=True))
    compare(seen, on_cpu(dataset))
