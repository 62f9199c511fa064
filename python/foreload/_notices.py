"""Issues warnings and log messages of Foreload through Python's `warnings` and `logging`."""

from __future__ import annotations

import logging
import os
import sys
import warnings

from foreload._core import Warning as ForeloadWarning

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def warn(message: str) -> None:
    """Issue a warning at the line that made or iterates the loader: the innermost one outside of this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, ForeloadWarning, stacklevel=level)


def inform(message: str) -> None:
    """Log a message that needs no action."""
    logging.getLogger("foreload").info("%s", message)
