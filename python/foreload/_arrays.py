"""NumPy arrays of tensors, for `np.asarray(tensor)`. NumPy is imported only when it is used."""

from __future__ import annotations

import importlib
from typing import Any

_NO_BFLOAT16 = (
    "NumPy has no bfloat16: use torch.from_dlpack or jax.dlpack.from_dlpack, install the package "
    'ml_dtypes and call np.asarray(tensor) again, or make the loader with dtype="float16" or "float32"'
)


class _Memory:
    """The memory of a tensor, which lives as long as the array that NumPy makes of it."""

    def __init__(self, tensor: Any, interface: dict[str, Any]) -> None:
        self.tensor = tensor
        self.__array_interface__ = interface


def array(tensor: Any, interface: dict[str, Any], dtype: Any, copy: bool | None) -> Any:
    """Return an array of a tensor in host memory, which `interface` describes (bfloat16 as uint16).

    Raises:
        TypeError: The tensor is bfloat16, and the package `ml_dtypes` is not installed.
        ValueError: `copy` is False, and the array cannot have this `dtype` without a copy.
    """
    import numpy as np

    made = np.asarray(_Memory(tensor, interface))
    if tensor.dtype == "bfloat16":
        try:
            made = made.view(importlib.import_module("ml_dtypes").bfloat16)
        except ImportError:
            raise TypeError(_NO_BFLOAT16) from None
    if dtype is not None and made.dtype != dtype:
        if copy is False:
            raise ValueError(f"the tensor is {made.dtype}, and becomes {np.dtype(dtype)} only by a copy")
        return made.astype(dtype)
    return made.copy() if copy else made
