"""Questions about the machine, and about the driver's calls that matter for Foreload's start, memory and threads."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import threading
from collections.abc import Callable, Iterator
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

import driver
import numpy as np

from . import library
from .decoding import Batch, Event
from .pictures import SIZES, drawn
from .speed import timed
from .steps import Cell, Context, Step

KERNELS = Path(__file__).resolve().parents[3] / "cuda" / "kernels"
ATTRIBUTES = {
    "multiprocessors": 16,
    "copy engines": 40,
    "shared memory of a block, opt-in": 97,
    "memory pools": 115,
    "host registration": 99,
}
"""CUdevice_attribute."""
PORTABLE = 1
GLOBAL, RELAXED = 0, 2
"""CUstreamCaptureMode."""
POOL_BYTES = 88


class PoolProperties(ctypes.Structure):
    """`CUmemPoolProps`: pinned memory of one device, no handles."""

    _fields_ = (
        ("kind", c_int),
        ("handles", c_int),
        ("location", c_int),
        ("device", c_int),
        ("security", c_void_p),
        ("most", c_size_t),
        ("reserved", ctypes.c_ubyte * 56),
    )


assert ctypes.sizeof(PoolProperties) == POOL_BYTES


def said(name: str, *arguments: object) -> str:
    """Return the driver's result of a call: `ok`, or the error's name with its number."""
    try:
        driver.call(name, *arguments)
    except driver.DriverError as error:
        return str(error).partition(": ")[2]
    return "ok"


def libraries(_context: Context) -> dict:
    """Return which nvJPEG was found, and which functions of Foreload or this probe it lacks."""
    told: dict[str, object] = {"candidates": library.candidates()}
    loaded = library.library()
    told["nvjpeg"], told["version"] = loaded._name, library.version(loaded)
    told["others"] = library.others()
    told["no_such_symbol"] = [name for name in library.NEEDED if not hasattr(loaded, name)]
    for name in ("libnvcuvid.so.1", "libcudart.so.13", "libcudart.so.12"):
        try:
            ctypes.CDLL(name)
            told[name] = "loads"
        except OSError as error:
            told[name] = str(error)
    told["NVIDIA_DRIVER_CAPABILITIES"] = os.environ.get("NVIDIA_DRIVER_CAPABILITIES")
    return told


def device(_context: Context) -> dict:
    version, handle, name = c_int(), c_int(), ctypes.create_string_buffer(100)
    driver.call("cuDriverGetVersion", byref(version))
    driver.call("cuDeviceGet", byref(handle), c_int(0))
    driver.call("cuDeviceGetName", name, c_int(100), handle)
    free, total = memory()
    told = {"name": name.value.decode(), "cuda": version.value, "free_bytes": free, "total_bytes": total}
    told["capability"] = ".".join(str(part) for part in driver.compute_capability())
    told["devices"] = driver.device_count()
    for attribute, number in ATTRIBUTES.items():
        value = c_int(-1)
        answer = said("cuDeviceGetAttribute", byref(value), c_int(number), handle)
        told[attribute] = value.value if answer == "ok" else answer
    return told


def memory() -> tuple[int, int]:
    free, total = c_size_t(), c_size_t()
    driver.call("cuMemGetInfo_v2", byref(free), byref(total))
    return free.value, total.value


def host(_context: Context) -> dict:
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK),
        "huge_pages": pages.read_text().strip() if pages.exists() else None,
        "devices": sorted(path.name for path in Path("/dev").glob("nvidia*")),
    }


def page_locking(context: Context, size: int) -> dict:
    """Register existing memory, and allocate memory that is page-locked."""
    block = np.zeros(size + 4096, np.uint8)
    start = c_void_p(-(-block.ctypes.data // 4096) * 4096)
    told: dict[str, object] = {}
    told["register_ms"], told["register"] = timed(
        lambda: said("cuMemHostRegister_v2", start, c_size_t(size), c_uint(PORTABLE))
    )
    if told["register"] == "ok":
        told["unregister_ms"], told["unregister"] = timed(lambda: said("cuMemHostUnregister", start))
    raw = c_void_p()
    told["allocate_ms"], told["allocate"] = timed(
        lambda: said("cuMemHostAlloc", byref(raw), c_size_t(size), c_uint(PORTABLE))
    )
    if told["allocate"] == "ok":
        told["free_ms"], _ = timed(lambda: said("cuMemFreeHost", raw))
    return told


def pool(context: Context, most: float) -> dict:
    """Make a memory pool with this largest size, as a share of the device's memory, and a block in it."""
    total = memory()[1]
    wanted = PoolProperties(kind=1, location=1, most=min(int(most * total), (1 << 63) - 1))
    made, block = c_void_p(), c_uint64()
    told: dict[str, object] = {"most": wanted.most, "device_bytes": total}
    told["create_ms"], told["create"] = timed(lambda: said("cuMemPoolCreate", byref(made), byref(wanted)))
    if told["create"] == "ok":
        stream = c_void_p(context.stream)
        told["allocate"] = said("cuMemAllocFromPoolAsync", byref(block), c_size_t(1 << 20), made, stream)
        if told["allocate"] == "ok":
            driver.call("cuMemFreeAsync", block, stream)
        driver.synchronize(context.stream)
        driver.call("cuMemPoolDestroy", made)
    return told


def load(_context: Context, image: bytes) -> dict:
    module = c_void_p()
    took, answer = timed(lambda: said("cuModuleLoadData", byref(module), image))
    if answer == "ok":
        driver.call("cuModuleUnload", module)
    return {"answer": answer, "load_ms": took}


def images() -> Iterator[tuple[str, bytes]]:
    """Load the kernels in their distributed form, and kernels that are damaged or newer than the driver."""
    files = {path.name: path.read_bytes() for path in sorted(KERNELS.iterdir())}
    for name, image in files.items():
        yield name, image + b"\0"
    for name, image in files.items():
        if name.endswith("sm_90.cubin"):
            yield f"{name}, its first half", image[: len(image) // 2] + bytes(len(image))
        if name.endswith(".ptx"):
            version = image.split(b".version ", 1)[1].split(b"\n", 1)[0]
            yield f"{name}, of version 99.0", image.replace(version, b"99.0", 1) + b"\0"
    yield "no module at all", b"no module at all" + bytes(4096)


def others(context: Context) -> dict[str, Callable[[], object]]:
    """Make the calls that Foreload's threads make while a training script may be capturing a graph."""
    stream, block, size = driver.stream(7), np.zeros(8192, np.uint8), c_size_t(4096)
    passed = Event(2).record(stream)
    driver.synchronize(stream)
    start = c_void_p(-(-block.ctypes.data // 4096) * 4096)
    pointer = c_void_p()

    def register() -> None:
        driver.call("cuMemHostRegister_v2", start, size, c_uint(PORTABLE))
        driver.call("cuMemHostUnregister", start)

    def allocate() -> None:
        driver.call("cuMemAlloc_v2", byref(pointer), size)
        driver.call("cuMemFree_v2", pointer)

    batch = Batch(context.handle("HARDWARE"), [drawn("420", SIZES["even"], 0)] * 2, "YUV")
    batch.initialise()
    batch.targets.poison(0, stream)

    def decode() -> None:
        if status := batch.decode("nvjpegDecodeBatchedEx", stream):
            raise library.NvjpegError("nvjpegDecodeBatchedEx", status)
        driver.synchronize(stream)

    return {
        "cuEventQuery": lambda: driver.call("cuEventQuery", passed.raw),
        "cuEventSynchronize": passed.wait,
        "cuStreamSynchronize": lambda: driver.synchronize(stream),
        "cuMemHostRegister": register,
        "cuMemAlloc": allocate,
        "a batch on the engine": decode,
    }


def beside_a_capture(context: Context, relaxed: bool) -> dict:
    """While this thread captures in the strictest mode, another thread calls the driver."""
    told = {}
    for name, act in others(context).items():
        stream, graph, answer = c_void_p(context.stream), c_void_p(), ["ok"]

        def call(act: Callable[[], object] = act, answer: list[str] = answer) -> None:
            try:
                with driver.context():
                    if relaxed:
                        driver.call("cuThreadExchangeStreamCaptureMode", byref(c_int(RELAXED)))
                    act()
            except (driver.DriverError, library.NvjpegError, AttributeError) as error:
                answer[0] = str(error)

        driver.call("cuStreamBeginCapture_v2", stream, c_int(GLOBAL))
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        ended = said("cuStreamEndCapture", stream, byref(graph))
        if graph.value:
            driver.call("cuGraphDestroy", graph)
        told[name] = {"call": answer[0], "capture": ended}
    return {"calls": told}


def first_steps(short: bool) -> Iterator[Step]:
    yield Step("machine", [Cell("host", host), Cell("libraries", libraries)], 30, on_device=False)
    yield Step("device", [Cell("device", device)], 30)


def steps(short: bool) -> Iterator[Step]:
    sizes = (1 << 20,) if short else (1 << 20, 1 << 24, 1 << 28)
    yield Step(
        "page locking", [Cell(f"{size >> 20} MiB", lambda c, s=size: page_locking(c, s)) for size in sizes]
    )
    shares = {
        "no limit": 0.0,
        "half of the device": 0.5,
        "the device": 1.0,
        "twice the device": 2.0,
        "2^63": 1e18,
    }
    yield Step(
        "pools", [Cell(name, lambda c, s=share: pool(c, s), share=share) for name, share in shares.items()]
    )
    yield Step("modules", [Cell(name, lambda c, i=image: load(c, i)) for name, image in images()])


def late_steps(short: bool) -> Iterator[Step]:
    modes = {"as threads are": False, "threads that exchanged their mode": True}
    yield Step(
        "capture", [Cell(name, lambda c, r=r: beside_a_capture(c, r), relaxed=r) for name, r in modes.items()]
    )
