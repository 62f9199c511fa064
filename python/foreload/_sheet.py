"""A contact sheet of the images that a network sees."""

from __future__ import annotations

import os
from pathlib import Path

from foreload._errors import config_error


class Sheet:
    """A picture of samples: each whole image, and next to it the results of the transforms.

    Notebooks display it; elsewhere, `save` it.

    Attributes:
        png: The bytes of the picture, a PNG.
    """

    def __init__(self, png: bytes) -> None:
        self.png = png

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the PNG to a file, and return its path.

        Raises:
            ConfigError: The name has the suffix of another format.
            OSError: The file cannot be written.
        """
        written = Path(path)
        if written.suffix.lower() not in ("", ".png"):
            raise config_error(
                "path", f"is {written}, but a sheet is a PNG: name it {written.with_suffix('.png')}"
            )
        written.write_bytes(self.png)
        return written

    def _repr_png_(self) -> bytes:
        """Return the PNG, for notebooks."""
        return self.png

    def __repr__(self) -> str:
        """Return the size in bytes, and what to do with it."""
        return f"<Sheet: a PNG of {len(self.png)} bytes; save(path) writes it>"
