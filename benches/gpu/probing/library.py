"""nvJPEG through ctypes, as its header declares it (nvjpeg.h of 12.4 and 13.3), with its allocations counted."""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_int, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import driver

BACKENDS = {"DEFAULT": 0, "HYBRID": 1, "GPU_HYBRID": 2, "HARDWARE": 3}
FORMATS = {"YUV": 1, "Y": 2}
STRICT = 1 << 2
"""NVJPEG_FLAGS_BITSTREAM_STRICT, which Foreload sets."""
STATUSES = (
    "SUCCESS",
    "NOT_INITIALIZED",
    "INVALID_PARAMETER",
    "BAD_JPEG",
    "JPEG_NOT_SUPPORTED",
    "ALLOCATOR_FAILURE",
    "EXECUTION_FAILED",
    "ARCH_MISMATCH",
    "INTERNAL_ERROR",
    "IMPLEMENTATION_NOT_SUPPORTED",
    "INCOMPLETE_BITSTREAM",
)
MAJORS = (13, 12)
NEEDED = (
    "nvjpegGetProperty",
    "nvjpegCreateExV2",
    "nvjpegDestroy",
    "nvjpegGetHardwareDecoderInfo",
    "nvjpegJpegStateCreate",
    "nvjpegJpegStateDestroy",
    "nvjpegDecodeBatchedPreAllocate",
    "nvjpegDecodeBatchedInitialize",
    "nvjpegDecodeBatched",
    "nvjpegDecodeBatchedEx",
    "nvjpegDecodeBatchedSupported",
    "nvjpegDecodeBatchedSupportedEx",
    "nvjpegJpegStreamCreate",
    "nvjpegJpegStreamDestroy",
    "nvjpegJpegStreamParse",
    "nvjpegJpegStreamParseHeader",
    "nvjpegDecodeParamsCreate",
    "nvjpegDecodeParamsDestroy",
    "nvjpegDecodeParamsSetOutputFormat",
    "nvjpegDecodeParamsSetROI",
    "nvjpegDecoderCreate",
    "nvjpegDecoderDestroy",
    "nvjpegDecoderJpegSupported",
    "nvjpegDecoderStateCreate",
    "nvjpegStateAttachPinnedBuffer",
    "nvjpegStateAttachDeviceBuffer",
    "nvjpegBufferPinnedCreateV2",
    "nvjpegBufferPinnedDestroy",
    "nvjpegBufferDeviceCreateV2",
    "nvjpegBufferDeviceDestroy",
    "nvjpegDecodeJpegHost",
    "nvjpegDecodeJpegTransferToDevice",
    "nvjpegDecodeJpegDevice",
)
"""The functions that Foreload or the probe call."""

ALLOCATE = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p), c_size_t, c_void_p)
FREE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)


class Image(ctypes.Structure):
    """`nvjpegImage_t`: four planes and the bytes from row to row of each."""

    _fields_ = (("channel", c_void_p * 4), ("pitch", c_size_t * 4))


class Allocator(ctypes.Structure):
    """`nvjpegDevAllocatorV2_t`, and `nvjpegPinnedAllocatorV2_t`, which has the same layout."""

    _fields_ = (("allocate", ALLOCATE), ("free", FREE), ("context", c_void_p))


class NvjpegError(RuntimeError):
    """A call that did not succeed."""

    def __init__(self, name: str, status: int) -> None:
        self.status = status
        super().__init__(f"{name}: {name_of(status)}")


def name_of(status: int) -> str:
    """Return a status as the header names it."""
    return STATUSES[status] if 0 <= status < len(STATUSES) else f"status {status}"


CHOSEN = "FORELOAD_PROBED_NVJPEG"
"""The variable that sets the library for the probe's processes."""


def candidates() -> list[str]:
    """Return the possible paths of nvJPEG, in Foreload's order: the loader's path, then Python's packages."""
    if os.environ.get(CHOSEN):
        return [os.environ[CHOSEN]]
    names = [f"libnvjpeg.so.{major}" for major in MAJORS]
    folders = [Path(entry) / "nvidia" for entry in sys.path if entry]
    places = [folder / place / "lib" for folder in folders for place in ("cu13", "nvjpeg")]
    return names + [str(place / name) for place in places for name in names if (place / name).exists()]


def others() -> dict[str, str]:
    """Return copies in other packages, with versions: torchvision, for example, has loaded its own."""
    places = [Path(entry) / "torchvision.libs" for entry in sys.path if entry]
    places += [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "lib64"]
    found = {}
    for file in (file for place in places for file in sorted(place.glob("libnvjpeg*.so.*"))):
        try:
            found[str(file)] = version(ctypes.CDLL(str(file)))
        except (OSError, AttributeError, NvjpegError) as error:
            found[str(file)] = str(error)
    return found


@cache
def library() -> ctypes.CDLL:
    for name in candidates():
        try:
            loaded = ctypes.CDLL(name)
        except OSError:
            continue
        for function in NEEDED:
            if hasattr(loaded, function):
                getattr(loaded, function).restype = c_int
        return loaded
    raise OSError(
        "no libnvjpeg.so.13 or .12 on the loader's path or in Python's packages: pip install nvidia-nvjpeg"
    )


def status_of(name: str, *arguments: object) -> int:
    """Call a function; return its status."""
    return getattr(library(), name)(*arguments)


def call(name: str, *arguments: object) -> None:
    if status := status_of(name, *arguments):
        raise NvjpegError(name, status)


def version(loaded: ctypes.CDLL) -> str:
    """Return major, minor and patch of a library."""
    parts = [c_int() for _ in range(3)]
    for index, part in enumerate(parts):
        if status := loaded.nvjpegGetProperty(c_int(index), byref(part)):
            raise NvjpegError("nvjpegGetProperty", status)
    return ".".join(str(part.value) for part in parts)


class Memory:
    """Memory for nvJPEG: blocks from the driver, and a count of the calls."""

    def __init__(self) -> None:
        self.calls = {"device": 0, "host": 0}
        self.bytes = {"device": 0, "host": 0}
        # The callbacks must exist while the library may call them.
        self.of_device = self._allocator("device", "cuMemAlloc_v2", "cuMemFree_v2")
        self.of_host = self._allocator("host", "cuMemHostAlloc", "cuMemFreeHost", c_uint(0))

    def _allocator(self, kind: str, take: str, free: str, *more: object) -> Allocator:
        return Allocator(
            ALLOCATE(lambda _context, target, size, _stream: self._take(kind, size, target, take, *more)),
            FREE(lambda _context, block, _size, _stream: self._release(free, block)),
            None,
        )

    def _take(self, kind: str, size: int, target: POINTER(c_void_p), name: str, *more: object) -> int:
        self.calls[kind] += 1
        self.bytes[kind] += size
        block = c_void_p()
        try:
            # nvJPEG may ask from its own threads.
            with driver.context():
                driver.call(name, byref(block), c_size_t(size), *more)
        except driver.DriverError:
            return 2
        target[0] = block.value
        return 0

    def _release(self, name: str, block: int) -> int:
        try:
            with driver.context():
                driver.call(name, c_void_p(block))
        except driver.DriverError:
            return 2
        return 0


@dataclass
class Made:
    """An object of the library with the function that destroys it."""

    raw: c_void_p
    destroy: str

    def close(self) -> None:
        call(self.destroy, self.raw)


def make(create: str, destroy: str, *arguments: object) -> Made:
    """Create an object; the last argument of all these calls is the pointer to its handle."""
    raw = c_void_p()
    call(create, *arguments, byref(raw))
    return Made(raw, destroy)


class Handle:
    """The library on one backend, with a parser."""

    def __init__(self, backend: str, flags: int = STRICT) -> None:
        self.backend, self.memory = backend, Memory()
        chosen = c_int(BACKENDS[backend])
        of_device, of_host = byref(self.memory.of_device), byref(self.memory.of_host)
        self.made = make("nvjpegCreateExV2", "nvjpegDestroy", chosen, of_device, of_host, c_uint(flags))
        self.raw = self.made.raw
        self.parsed = make("nvjpegJpegStreamCreate", "nvjpegJpegStreamDestroy", self.raw)

    def engines(self) -> tuple[int, int]:
        """Return the number of decoding engines of the GPU, and of cores of each."""
        engines, cores = c_uint(), c_uint()
        call("nvjpegGetHardwareDecoderInfo", self.raw, byref(engines), byref(cores))
        return engines.value, cores.value

    def supports(self, file: bytes, *asked: object) -> int | str:
        """Return the library's answer for a file: 0 means yes; otherwise an error's name, or that it lacks the
        function.

        With a format and a region in `params`, `...SupportedEx` is called.
        """
        answer = c_int(-1)
        params = self.params(*asked) if asked else None
        more = (params.raw, byref(answer)) if params else (byref(answer),)
        name = "nvjpegDecodeBatchedSupportedEx" if params else "nvjpegDecodeBatchedSupported"
        try:
            call("nvjpegJpegStreamParseHeader", self.raw, file, c_size_t(len(file)), self.parsed.raw)
            call(name, self.raw, self.parsed.raw, *more)
        except NvjpegError as error:
            return name_of(error.status)
        except AttributeError:
            return f"no such symbol: {name}"
        finally:
            if params:
                params.close()
        return answer.value

    def params(self, form: str, region: tuple[int, int, int, int] | None) -> Made:
        """Return parameters of one image; the region is (x, y, width, height)."""
        made = make("nvjpegDecodeParamsCreate", "nvjpegDecodeParamsDestroy", self.raw)
        call("nvjpegDecodeParamsSetOutputFormat", made.raw, c_int(FORMATS[form]))
        x, y, width, height = region or (0, 0, -1, -1)
        call("nvjpegDecodeParamsSetROI", made.raw, c_int(x), c_int(y), c_int(width), c_int(height))
        return made

    def state(self) -> Made:
        return make("nvjpegJpegStateCreate", "nvjpegJpegStateDestroy", self.raw)

    def preallocate(self, state: Made, count: int, form: str) -> int:
        """Prepare a state for batches of `count` images; return the status. Older libraries refuse it."""
        asked = (c_int(count), c_int(1), c_int(1), c_int(0), c_int(FORMATS[form]))
        return status_of("nvjpegDecodeBatchedPreAllocate", self.raw, state.raw, *asked)

    def close(self) -> None:
        self.parsed.close()
        self.made.close()


def pointers(blocks: list[int]) -> ctypes.Array:
    return (c_void_p * len(blocks))(*blocks)


def address_of(data: bytes) -> int:
    """Return the address of an object's bytes, valid during the object's life."""
    return ctypes.cast(ctypes.c_char_p(data), c_void_p).value or 0
