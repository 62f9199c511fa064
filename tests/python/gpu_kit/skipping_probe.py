"""The probe with an nvJPEG whose engine skips every second batch and reports success."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benches" / "gpu"))
import probe
from probing import library

truthful = library.status_of
calls = 0


def status_of(name: str, *arguments: object) -> int:
    """Return success without a call, every second time."""
    global calls
    if name == "nvjpegDecodeBatchedEx":
        calls += 1
        if calls % 2 == 0:
            return 0
    return truthful(name, *arguments)


library.status_of = status_of
if __name__ == "__main__":
    sys.exit(probe.main())
