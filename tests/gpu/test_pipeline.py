"""The loader on a device: the same pictures as on the CPU, from the right backend; its failures and its end."""

from __future__ import annotations

import gc
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import driver
import foreload
import images
import numpy as np
import pytest
from resemblance import compare

pytestmark = pytest.mark.usefixtures("gpu")

SETTINGS = {"batch_size": 4, "image_size": 32, "device": "cuda", "last_batch": "partial"}
BACKENDS = ("decoded_hardware", "decoded_cuda_batched", "decoded_cuda", "decoded_cpu")


def pictures(loader: foreload.ImageLoader) -> dict[int, np.ndarray]:
    """Return the images of the first epoch by sample id."""
    seen = {}
    for batch in loader.batches(0):
        seen |= dict(
            zip(driver.to_host(batch.sample_ids).tolist(), driver.to_host(batch.images), strict=True)
        )
    return seen


def backends(loader: foreload.ImageLoader) -> dict[str, int]:
    """Return the number of images of an epoch by the backend that decoded them."""
    batches = iter(loader)
    for _ in batches:
        pass
    gpu = batches.stats()["gpu"]
    return {name: gpu[name] for name in BACKENDS}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("decode", ["fast", "exact"])
def test_the_same_pictures_as_on_the_cpu(mixed: Path, on_cpu: Callable, train: bool, decode: str) -> None:
    chosen = {"train": train, "decode": decode, "seed": 5}
    seen = pictures(foreload.ImageLoader(mixed, **SETTINGS, **chosen, dtype="uint8"))
    assert len(seen) == 64
    compare(seen, on_cpu(mixed, **chosen))


def test_epochs_and_order_are_those_of_the_cpu(dataset: Path) -> None:
    def order(device: str, epoch: int) -> list[int]:
        loader = foreload.ImageLoader(dataset, **{**SETTINGS, "device": device}, seed=9)
        loader.set_epoch(epoch)
        return [int(sample) for batch in loader for sample in driver.to_host(batch.sample_ids)]

    assert order("cuda", 0) == order("cpu", 0)
    assert order("cuda", 3) == order("cpu", 3) != order("cpu", 0)


def test_the_default_device_is_the_gpu(dataset: Path) -> None:
    batch = next(iter(foreload.ImageLoader(dataset, batch_size=4, image_size=32)))
    assert batch.images.__dlpack_device__()[0] == 2


def test_no_image_is_lost_between_the_backends(mixed: Path) -> None:
    counted = backends(foreload.ImageLoader(mixed, **SETTINGS))
    assert sum(counted.values()) == 64
    assert counted["decoded_cpu"] >= images.count(64, images.HOST_ONLY)


@pytest.mark.parametrize("kind", images.KINDS)
def test_kinds_of_files_go_to_the_right_backend(
    tmp_path: Path, on_cpu: Callable, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Without the CPU's help, only images that the GPU cannot decode at all go to the CPU."""
    root = images.make(tmp_path / kind, (kind,), samples=12)
    if kind not in images.HOST_ONLY:
        monkeypatch.setenv("FORELOAD_GPU_BACKEND", "cuda")
    loader = foreload.ImageLoader(root, **SETTINGS, cpu_decode="fallback", dtype="uint8")
    counted = backends(loader)
    expected = "decoded_cpu" if kind in images.HOST_ONLY else "decoded_cuda"
    assert sum(counted.values()) == 12
    assert counted[expected] == 12 or kind in images.ANY_BACKEND, counted
    compare(pictures(loader), on_cpu(root))


def test_the_hardware_engine_takes_baseline_files_alone(
    tmp_path: Path, on_cpu: Callable, backend: Callable[[str], None]
) -> None:
    backend("hardware")
    root = images.make(tmp_path / "some", ("s420", "progressive"), samples=24)
    loader = foreload.ImageLoader(root, **SETTINGS, cpu_decode="fallback", dtype="uint8")
    counted = backends(loader)
    baseline = 12 if driver.has_jpeg_engine() else 0
    assert counted["decoded_hardware"] == baseline, counted
    assert counted["decoded_cuda"] + counted["decoded_cpu"] == 24 - baseline, counted
    compare(pictures(loader), on_cpu(root))


def test_never_means_never(mixed: Path) -> None:
    with pytest.raises(foreload.SampleError) as raised:
        list(foreload.ImageLoader(mixed, **SETTINGS, cpu_decode="never"))
    refused = images.KINDS[raised.value.sample_id % len(images.KINDS)]
    assert refused in images.HOST_ONLY + images.ANY_BACKEND
    assert "cpu_decode" in f"{raised.value} {raised.value.__cause__}"


@pytest.mark.filterwarnings("ignore::foreload.Warning")
@pytest.mark.parametrize("forced", ["cuda", "cpu"])
def test_a_damaged_file(own_dataset: Path, backend: Callable[[str], None], forced: str) -> None:
    backend(forced)
    images.damage(images.paths(own_dataset)[33])
    with pytest.raises(foreload.SampleError, match=r"sample 33 .*00033\.jpg") as raised:
        list(foreload.ImageLoader(own_dataset, **SETTINGS))
    assert raised.value.sample_id == 33

    skipping = foreload.ImageLoader(own_dataset, **SETTINGS, on_error="skip")
    ids = [int(sample) for batch in skipping for sample in driver.to_host(batch.sample_ids)]
    assert len(ids) == 60
    assert 33 not in ids
    assert [failure["sample_id"] for failure in skipping.errors] == [33]

    for batch in foreload.ImageLoader(own_dataset, **SETTINGS, on_error="zero"):
        ids, mask, pixels = map(driver.to_host, (batch.sample_ids, batch.mask, batch.images))
        assert np.array_equal(mask, ids != 33)
        assert not pixels[~mask].any()
        assert all(image.any() for image in pixels[mask])


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_damage_does_not_reach_its_neighbours(own_dataset: Path, on_cpu: Callable) -> None:
    broken = (3, 17, 33, 34, 59)
    expected = on_cpu(own_dataset)
    for sample in broken:
        images.damage(images.paths(own_dataset)[sample])
    seen = pictures(foreload.ImageLoader(own_dataset, **SETTINGS, on_error="zero", dtype="uint8"))
    compare({sample: seen[sample] for sample in seen if sample not in broken}, expected)


def own_threads() -> Counter[str]:
    """Return the number of this process's threads that Foreload named, by name."""
    names: Counter[str] = Counter()
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except OSError:
            continue
        if name.startswith("foreload"):
            names[name] += 1
    return names


def test_dropping_the_loader_ends_its_threads(dataset: Path) -> None:
    gc.collect()
    before = own_threads()
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    batches = iter(loader)
    next(batches)
    assert own_threads() - before
    del loader, batches
    gc.collect()
    until = time.monotonic() + 10
    while own_threads() - before and time.monotonic() < until:
        time.sleep(0.01)
    # A thread of an earlier test's loader may have been counted while it ended, so fewer threads are no failure.
    assert not own_threads() - before


def test_iterations_dropped_again_and_again(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    for _ in range(50):
        next(iter(loader))
    assert sum(len(batch) for batch in loader) == 60


def test_two_loaders_at_once(dataset: Path, mixed: Path, on_cpu: Callable) -> None:
    one = iter(foreload.ImageLoader(dataset, **SETTINGS, dtype="uint8"))
    two = iter(foreload.ImageLoader(mixed, **SETTINGS, dtype="uint8"))
    seen_one, seen_two = {}, {}
    for first, second in zip(one, two, strict=False):
        for batch, seen in ((first, seen_one), (second, seen_two)):
            ids = driver.to_host(batch.sample_ids).tolist()
            seen |= dict(zip(ids, driver.to_host(batch.images), strict=True))
    compare(seen_one, on_cpu(dataset))
    compare(seen_two, on_cpu(mixed))


def test_the_forced_cpu_backend_gives_the_cpus_bits(mixed: Path, on_cpu: Callable, backend: Callable) -> None:
    backend("cpu")
    loader = foreload.ImageLoader(mixed, **SETTINGS, dtype="uint8")
    assert backends(loader) == dict.fromkeys(BACKENDS, 0) | {"decoded_cpu": 64}
    expected = on_cpu(mixed)
    assert all(np.array_equal(pixels, expected[sample]) for sample, pixels in pictures(loader).items())


def test_what_the_stages_did_is_counted(dataset: Path) -> None:
    batches = iter(foreload.ImageLoader(dataset, **SETTINGS))
    for _ in batches:
        pass
    gpu = batches.stats()["gpu"]
    assert gpu["h2d_bytes"] > 0
    for stage in ("decode_seconds", "augment_seconds", "copy_seconds", "idle_seconds"):
        assert gpu[stage] >= 0
    assert gpu["augment_seconds"] > 0


def test_too_little_device_memory_names_the_setting(dataset: Path) -> None:
    with pytest.raises(foreload.Error, match="device_memory"):
        list(
            foreload.ImageLoader(
                dataset, **{**SETTINGS, "batch_size": 60, "image_size": 224}, device_memory="1MB"
            )
        )


def test_batches_that_are_all_kept_name_the_setting(dataset: Path) -> None:
    size = 4 * 3 * 224 * 224 * 4
    settings = {**SETTINGS, "image_size": 224, "device_memory": (64 << 20) + 4 * size}
    loader = foreload.ImageLoader(dataset, **settings)
    kept = []

    def keep_all() -> None:
        for epoch in range(200):
            loader.set_epoch(epoch)
            kept.extend(loader)

    with pytest.raises(
        foreload.Error, match=r"device_memory: .* raise device_memory to at least (\d+)"
    ) as raised:
        keep_all()
    assert len(kept) >= 4

    # The size that the message recommends is enough for at least one more batch.
    settings["device_memory"] = int(re.search(r"at least (\d+)", str(raised.value)).group(1))
    before = len(kept)
    kept.clear()
    del loader
    loader = foreload.ImageLoader(dataset, **settings)
    with pytest.raises(foreload.Error, match="device_memory"):
        keep_all()
    assert len(kept) > before


@pytest.mark.parametrize("name", ["cuda:0", "cuda"])
def test_devices_by_name(dataset: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    batch = next(iter(foreload.ImageLoader(dataset, **{**SETTINGS, "device": name})))
    assert batch.images.__dlpack_device__() == (2, 0)


LOCAL_RANKS = [
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
]


@pytest.mark.parametrize("variable", LOCAL_RANKS)
def test_local_rank_chooses_the_device(
    dataset: Path, gpu: int, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    # Slurm's variable is also set in a batch script, where it does not give a rank. The more specific variable comes
    # first.
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    monkeypatch.setenv("SLURM_PROCID", "0")
    for later in LOCAL_RANKS[LOCAL_RANKS.index(variable) + 1 :]:
        monkeypatch.setenv(later, "0")
    monkeypatch.setenv(variable, str(gpu - 1))
    batch = next(iter(foreload.ImageLoader(dataset, **SETTINGS)))
    assert batch.images.__dlpack_device__() == (2, gpu - 1)


def test_a_batch_script_has_no_local_rank(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_STEP_NUM_TASKS", raising=False)
    monkeypatch.setenv("SLURM_LOCALID", "99")
    batch = next(iter(foreload.ImageLoader(dataset, **SETTINGS)))
    assert batch.images.__dlpack_device__() == (2, 0)


def test_a_device_that_is_not_there(dataset: Path) -> None:
    with pytest.raises(foreload.Error, match="cuda:99"):
        foreload.ImageLoader(dataset, **{**SETTINGS, "device": "cuda:99"})


def test_a_local_rank_beyond_the_devices(dataset: Path, gpu: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "99")
    if gpu > 1:
        with pytest.raises(foreload.Error, match="LOCAL_RANK"):
            foreload.ImageLoader(dataset, **SETTINGS)
    else:
        # If the launcher shows each process only its own GPU, the local rank does not matter.
        batch = next(iter(foreload.ImageLoader(dataset, **SETTINGS)))
        assert batch.images.__dlpack_device__() == (2, 0)
