"""The few calls of the CUDA driver that the tests need to read device memory, by ctypes and without torch.

Each call raises an exception with the driver's own name of the error. All run in the device's primary context, which is
the one that torch, CuPy and Foreload share.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import capsule
import numpy as np

NON_BLOCKING = 1
CAPABILITY_ATTRIBUTES = (75, 76)
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""


class DriverError(RuntimeError):
    """A driver call failed."""


@cache
def library() -> ctypes.CDLL:
    """Load and initialise libcuda."""
    loaded = ctypes.CDLL("libcuda.so.1")
    _check(loaded, "cuInit", loaded.cuInit(ctypes.c_uint(0)))
    return loaded


def _check(loaded: ctypes.CDLL, name: str, status: int) -> None:
    if status:
        text = ctypes.c_char_p()
        loaded.cuGetErrorName(ctypes.c_int(status), ctypes.byref(text))
        raise DriverError(f"{name}: {(text.value or b'unknown error').decode()} ({status})")


def call(name: str, *arguments: object) -> None:
    """Call a driver function by name."""
    loaded = library()
    _check(loaded, name, getattr(loaded, name)(*arguments))


def device_count() -> int:
    """Return the number of devices that the driver shows."""
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


def compute_capability(ordinal: int = 0) -> tuple[int, int]:
    """Return the major and minor number of the device's architecture."""
    device, parts = ctypes.c_int(), (ctypes.c_int(), ctypes.c_int())
    call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
    for part, attribute in zip(parts, CAPABILITY_ATTRIBUTES, strict=True):
        call("cuDeviceGetAttribute", ctypes.byref(part), ctypes.c_int(attribute), device)
    return parts[0].value, parts[1].value


def has_jpeg_engine(ordinal: int = 0) -> bool:
    """Whether the device is a data centre GPU (A100, H100, H200, B200, B300), which decodes JPEGs in hardware."""
    return compute_capability(ordinal) in {(8, 0), (9, 0), (10, 0), (10, 3)}


@cache
def primary_context(ordinal: int) -> int:
    """Return the handle of the device's primary context. It is kept until the process ends, because streams depend on
    it. @@t 105 Batches without owners may still refer to the stream.
    """
    device, handle = ctypes.c_int(), ctypes.c_void_p()
    call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
    call("cuDevicePrimaryCtxRetain", ctypes.byref(handle), device)
    atexit.register(call, "cuDevicePrimaryCtxRelease_v2", device)
    return handle.value or 0


@contextmanager
def context(ordinal: int = 0) -> Iterator[None]:
    """Make the device's primary context current on this thread."""
    call("cuCtxPushCurrent_v2", ctypes.c_void_p(primary_context(ordinal)))
    try:
        yield
    finally:
        call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


@cache
def stream(number: int, ordinal: int = 0) -> int:
    """Return the handle of a stream that does not wait for the default one.

    The stream lives as long as the process, like torch's: a stream must outlive the tensors that were handed over to
    it.
    """
    handle = ctypes.c_void_p()
    with context(ordinal):
        call("cuStreamCreate", ctypes.byref(handle), ctypes.c_uint(NON_BLOCKING))
    atexit.register(_destroy, handle, ordinal)
    return handle.value or 0


def _destroy(handle: ctypes.c_void_p, ordinal: int) -> None:
    gc.collect()  # Batches without owners may still refer to the stream.
    with context(ordinal):
        call("cuStreamSynchronize", handle)
        call("cuStreamDestroy_v2", handle)


class Pinned:
    """Page-locked host memory, which asynchronous copies require."""

    def __init__(self, size: int) -> None:
        self._pointer = ctypes.c_void_p()
        call("cuMemHostAlloc", ctypes.byref(self._pointer), ctypes.c_size_t(size), ctypes.c_uint(0))
        self.address = self._pointer.value or 0
        self.bytes = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self.address))

    def close(self) -> None:
        """Free the memory."""
        self.bytes = np.empty(0, np.uint8)
        call("cuMemFreeHost", self._pointer)


def copy_to_host(target: int, source: int, size: int, on: int) -> None:
    """Queue a copy of `size` bytes from device to pinned memory on the stream `on`."""
    call(
        "cuMemcpyAsync",
        ctypes.c_uint64(target),
        ctypes.c_uint64(source),
        ctypes.c_size_t(size),
        ctypes.c_void_p(on),
    )


def synchronize(handle: int) -> None:
    """Wait for all work of a stream."""
    call("cuStreamSynchronize", ctypes.c_void_p(handle))


def as_numpy(raw: np.ndarray, described: capsule.Described) -> np.ndarray:
    """Return bytes as the array that the capsule describes; bfloat16 as the float32 of the same values."""
    if described.dtype == "bfloat16":
        wide = raw.view(np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32).reshape(described.shape)
    return raw.view(np.dtype(described.dtype)).reshape(described.shape)


def from_host(described: capsule.Described) -> np.ndarray:
    """Return a copy of a tensor in host memory."""
    raw = (ctypes.c_uint8 * described.bytes).from_address(described.address)
    return as_numpy(np.ctypeslib.as_array(raw).copy(), described)


def to_host(tensor: object) -> np.ndarray:
    """Return a copy of a Foreload tensor in host or device memory, read through its DLPack capsule."""
    kind, ordinal = tensor.__dlpack_device__()
    if kind != capsule.CUDA:
        with capsule.consumed(tensor.__dlpack__(max_version=(1, 0))) as described:
            return from_host(described)
    handle = stream(0, ordinal)
    with context(ordinal):
        with capsule.consumed(tensor.__dlpack__(stream=handle, max_version=(1, 0))) as described:
            host = Pinned(described.bytes)
            copy_to_host(host.address, described.address, described.bytes, handle)
            # The deleter runs here, while the copy may still be queued, so the buffer must stay valid until the copy is
            # done.
        synchronize(handle)
        array = as_numpy(host.bytes.copy(), described)
        host.close()
        return array
