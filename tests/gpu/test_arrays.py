"""Arrays on a device equal the CPU's, byte by byte: in files that NumPy writes, and in fixtures where these exist."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import driver
import foreload
import numpy as np
import pytest
from foreload import fields as F

pytestmark = [
    pytest.mark.usefixtures("gpu"),
    pytest.mark.filterwarnings("ignore:some samples are not cached"),
    pytest.mark.filterwarnings("ignore:last_batch is partial"),
]

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
"""The kit for GPU machines has none, and then the test of fixtures compares nothing."""
ROWS = 22
Batches = list[dict[str, Any]]


def on_host(value: Any) -> Any:
    """Return a field of a batch in host memory: the type, the shape and the bytes of each tensor, or the values."""
    if isinstance(value, (list, tuple)):
        return [on_host(one) for one in value]
    if not hasattr(value, "__dlpack__"):
        return value
    array = driver.to_host(value)
    return (str(array.dtype), array.shape, array.tobytes())


def made(root: Path, device: str, asked: list[Any], epochs: int = 2, **settings: Any) -> Batches:
    """Return the batches of some epochs in host memory."""
    settings = {"batch_size": 4, "seed": 3, "last_batch": "partial", **settings}
    loader = foreload.Loader(root, fields=asked, device=device, **settings)
    assert loader.device == ("cuda:0" if device == "cuda" else device)
    batches = []
    for batch in (batch for _ in range(epochs) for batch in loader):
        for tensor in (batch.sample_ids, batch.mask):
            assert (tensor.__dlpack_device__()[0] == driver.capsule.CUDA) == (device == "cuda")
        fields = {name: on_host(value) for name, value in batch.items()}
        batches.append({**fields, "ids": on_host(batch.sample_ids), "mask": on_host(batch.mask)})
    return batches


def fixtures(container: str) -> Iterator[tuple[Path, list[Any], dict[str, Any]]]:
    """Yield the fixtures of a container that are read: the dataset, its fields and the settings of the loader."""
    for path in sorted((FIXTURES / container).glob("*/expected.json")):
        expected = json.loads(path.read_text(encoding="utf-8"))
        names = [name for name in expected["kinds"] if name not in expected.get("refused", {})]
        asked = [F.Array(name, **expected.get("parameters", {}).get(name, {})) for name in names]
        for reading in expected["readings"]:
            yield path.parent / "files" / reading["path"], asked, expected.get("settings", {})


@pytest.mark.parametrize("container", ["hdf5", "netcdf", "zarr", "npy", "npz"])
def test_fixtures_are_the_cpus(container: str, tmp_path: Path) -> None:
    for number, (root, asked, settings) in enumerate(fixtures(container)):
        expected = made(root, "cpu", asked, **settings)
        assert made(root, "cuda", asked, **settings) == expected, root
        cache = foreload.Directory(tmp_path / str(number), "20MB")
        assert made(root, "cuda", asked, cache=cache, **settings) == expected, root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of 96 KiB, which a device copies from their slots, small rows, and numbers; the same as npz."""
    folder = tmp_path_factory.mktemp("arrays")
    rng = np.random.default_rng(7)
    arrays = {
        "x": rng.normal(size=(ROWS, 3, 64, 128)).astype(np.float32),
        "half": rng.normal(size=(ROWS, 8, 64, 128)).astype(np.float16),
        "big": rng.integers(-9, 9, size=(ROWS, 40, 1000)).astype(">i2"),
        "small": rng.integers(0, 9, size=(ROWS, 5)).astype(np.uint8),
        "y": np.arange(ROWS) % 10,
    }
    (folder / "npy").mkdir()
    (folder / "npz").mkdir()
    for name, array in arrays.items():
        np.save(folder / "npy" / f"{name}.npy", array)
    half = ROWS // 2
    for number, part in enumerate((slice(0, half), slice(half, None))):
        np.savez(folder / "npz" / f"{number}.npz", **{name: array[part] for name, array in arrays.items()})
    return folder


def fields(container: str) -> list[Any]:
    """Return all arrays as they are, converted, and windows of them."""
    of = (lambda name: f"{name}.npy") if container == "npy" else str
    windows = dict(window=(3, 48, None), pad=1.5)
    return [
        F.Array(of("x"), name="x"),
        F.Array(of("x"), name="converted", dtype="float16", mean=[1, 2, 3], std=[1, 2, 4], axis=0),
        F.Array(of("x"), name="brain", dtype="bfloat16"),
        F.Array(of("x"), name="window", window=(None, 40, 100)),
        F.Array(of("x"), name="slab", window=(2, None, None)),
        F.Array(of("half"), name="half"),
        F.Array(of("half"), name="padded", **(windows | {"window": (9, 64, None)}), at=(0, 0, 0)),
        F.Array(of("big"), name="big"),
        F.Array(of("small"), name="small"),
        F.Array(of("small"), name="ragged", ragged=True),
        F.Integer(of("y"), name="y"),
    ]


@pytest.mark.parametrize("container", ["npy", "npz"])
@pytest.mark.parametrize("cached", [False, True])
def test_large_rows_are_the_cpus(root: Path, container: str, cached: bool, tmp_path: Path) -> None:
    more = {"cache": foreload.Directory(tmp_path / "cache", "500MB")} if cached else {}
    asked = fields(container)
    assert made(root / container, "cuda", asked, **more) == made(root / container, "cpu", asked)


def test_files_as_samples_are_the_cpus(root: Path) -> None:
    asked = [F.Array("half"), F.Array("x", window=(4, None, None, None), at="random")]
    settings = dict(sample_axis="file", batch_size=1)
    assert made(root / "npz", "cuda", asked, **settings) == made(root / "npz", "cpu", asked, **settings)


@pytest.mark.filterwarnings("ignore::foreload.Warning")
@pytest.mark.parametrize("on_error", ["zero", "skip"])
def test_failed_samples_are_the_cpus(tmp_path: Path, on_error: str) -> None:
    """A number that does not fit fails a sample whose first field was already left to the device."""
    rows = np.random.default_rng(1).normal(size=(24, 40_000)).astype(np.float32)
    bad = np.arange(24, dtype=np.int32)
    bad[[3, 4, 17]] = 1000
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "bad.npy", bad)
    asked = [F.Array("x.npy", name="x"), F.Array("bad.npy", name="bad", dtype="uint8")]
    on_gpu, on_cpu = (
        made(tmp_path, device, asked, on_error=on_error, max_errors=100) for device in ("cuda", "cpu")
    )
    assert on_gpu == on_cpu
    assert len(on_cpu) == 12


def test_a_resumed_epoch_is_the_cpus(root: Path) -> None:
    def resumed(device: str) -> Any:
        settings = dict(fields=fields("npy"), batch_size=4, seed=3, device=device)
        loader = foreload.Loader(root / "npy", **settings)
        batches = iter(loader)
        next(batches)
        second = foreload.Loader(root / "npy", **settings)
        second.load_state_dict(loader.state_dict())
        return [{name: on_host(value) for name, value in batch.items()} for batch in second]

    assert resumed("cuda") == resumed("cpu")


@pytest.mark.parametrize(
    ("name", "typestr"), [("x", "<f4"), ("half", "<f2"), ("big", "<i2"), ("small", "|u1"), ("y", "<i8")]
)
def test_the_cuda_array_interface_has_arrays(root: Path, name: str, typestr: str) -> None:
    loader = foreload.Loader(
        root / "npy", fields=[F.Array(f"{name}.npy", name=name)], device="cuda", batch_size=4
    )
    batch = next(iter(loader))
    interface = batch[name].__cuda_array_interface__
    assert (interface["typestr"], interface["shape"]) == (typestr, driver.to_host(batch[name]).shape)
    assert interface["data"][0] % 256 == 0


def test_shared_batches_are_refused_by_name(root: Path) -> None:
    with pytest.raises(foreload.ConfigError, match="shared batches of arrays are not supported on a GPU"):
        foreload.Loader(root / "npy", fields=[F.Array("x.npy")], device="cuda", batch_size=2, shared=True)


def test_little_device_memory_is_refused(root: Path) -> None:
    asked = [F.Array("x.npy")]
    with pytest.raises(foreload.ConfigError, match=r"device_memory.*three batches"):
        foreload.Loader(root / "npy", fields=asked, device="cuda", batch_size=8, device_memory="1MB")


def test_torch_has_arrays_on_the_device(torch: ModuleType, root: Path) -> None:
    from foreload.torch import Dataset

    settings = dict(fields=fields("npy"), batch_size=4, seed=3)
    on_gpu, on_cpu = (Dataset(root / "npy", **settings, device=device) for device in ("cuda", "cpu"))
    for batch, expected in zip(on_gpu, on_cpu, strict=True):
        assert batch.keys() == expected.keys()
        for name, wanted in expected.items():
            if name == "ragged":
                continue
            assert batch[name].device == torch.device("cuda", 0)
            assert torch.equal(batch[name].cpu(), wanted), name


def test_dicts_of_torch_have_arrays_of_the_device(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only torch's own part is replaced, because torch without CUDA takes no tensors of a device."""
    torch = pytest.importorskip("torch")
    from foreload.torch import Dataset

    def on_host_from(tensor: Any) -> np.ndarray:
        assert tensor.__dlpack_device__()[0] == driver.capsule.CUDA
        return driver.to_host(tensor)

    asked = [F.Array("x.npy", name="x"), F.Integer("y.npy", name="y")]
    settings = dict(fields=asked, batch_size=4, seed=3)
    expected = list(Dataset(root / "npy", **settings, device="cpu"))
    monkeypatch.setattr(torch, "from_dlpack", on_host_from)
    for batch, wanted in zip(Dataset(root / "npy", **settings, device="cuda"), expected, strict=True):
        assert batch.keys() == wanted.keys()
        assert all(batch[name].tolist() == wanted[name].tolist() for name in wanted)
