"""Helpers for tests of `ImageDataset` with datasets of other libraries."""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Callable
from typing import Any

import foreload
import numpy as np
import pytest
from PIL import Image

# The other libraries leave files open, and use deprecated features.
LENIENT = [
    pytest.mark.filterwarnings(f"ignore::{kind}")
    for kind in ("ResourceWarning", "FutureWarning", "pytest.PytestUnraisableExceptionWarning")
]
SAMPLES = 40
CLASSES = ["cat", "dog", "fish"]
IN_ORDER = {"last_batch": "partial", "image_size": 16}


def jpeg(number: int) -> bytes:
    """Return an image of noise that depends on the number."""
    noise = np.random.default_rng(number).integers(0, 256, (20, 24, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "jpeg")
    return file.getvalue()


def required(name: str) -> Any:
    """Import a library that `make test-frameworks` installs. Otherwise skip the test, or fail it in that target."""
    if os.environ.get("FORELOAD_REQUIRE_FRAMEWORKS") == "1":
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"{name} is not installed; make test-frameworks has it")


def refused(make: Callable[[], Any], *words: str) -> None:
    """Check that an error with these words is raised."""
    with pytest.raises(foreload.ConfigError) as error:
        make()
    for word in words:
        assert word in str(error.value)
