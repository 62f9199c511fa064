"""Reads a DLPack capsule by ctypes, without NumPy or torch between the test and the ABI.

The structures are those of dlpack.h (DLPack 1.0); `DLManagedTensor` is the older form, before flags and version.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

CPU, CUDA, CUDA_HOST = 1, 2, 3
READ_ONLY, COPIED = 1, 2
KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}

_api = ctypes.pythonapi
_api.PyCapsule_GetName.restype, _api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_SetName.restype, _api.PyCapsule_SetName.argtypes = (
    ctypes.c_int,
    [ctypes.py_object, ctypes.c_char_p],
)


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Legacy(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("manager", ctypes.c_void_p), ("deleter", _Deleter))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


# The names of consumed capsules must live as long as the process: a capsule keeps the pointer, not a copy.
_FORMS = {
    b"dltensor": (_Legacy, b"used_dltensor"),
    b"dltensor_versioned": (_Versioned, b"used_dltensor_versioned"),
}


@dataclass(frozen=True)
class Described:
    """A tensor as its capsule describes it."""

    name: str
    device: tuple[int, int]
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    """The strides, in elements."""
    address: int
    version: tuple[int, int] | None
    flags: int

    @property
    def bytes(self) -> int:
        """The number of bytes of a dense tensor of this shape."""
        return math.prod(self.shape) * self.itemsize

    @property
    def itemsize(self) -> int:
        """The number of bytes of an element."""
        return int("".join(letter for letter in self.dtype if letter.isdigit()) or 8) // 8


def describe(capsule: Any) -> Described:
    """Read a capsule and leave it as it is: it still owns its tensor."""
    name = _api.PyCapsule_GetName(capsule)
    form, _ = _FORMS[name]
    managed = form.from_address(_api.PyCapsule_GetPointer(capsule, name))
    tensor = managed.tensor
    assert tensor.lanes == 1
    kind = KINDS[tensor.code]
    versioned = form is _Versioned
    return Described(
        name=name.decode(),
        device=(tensor.device_type, tensor.device_id),
        dtype=kind if kind == "bool" else f"{kind}{tensor.bits}",
        shape=tuple(tensor.shape[: tensor.ndim]),
        strides=tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None,
        address=(tensor.data or 0) + tensor.byte_offset,
        version=(managed.major, managed.minor) if versioned else None,
        flags=managed.flags if versioned else 0,
    )


@contextmanager
def consumed(capsule: Any) -> Iterator[Described]:
    """Take the tensor as a consumer does: rename the capsule, and call the deleter in the end."""
    described = describe(capsule)
    name = described.name.encode()
    form, used = _FORMS[name]
    address = _api.PyCapsule_GetPointer(capsule, name)
    managed = form.from_address(address)
    assert _api.PyCapsule_SetName(capsule, used) == 0
    try:
        yield described
    finally:
        if managed.deleter:
            managed.deleter(address)


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a C-contiguous tensor, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
