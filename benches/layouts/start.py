"""Opens a dataset in a process of its own and prints how long that took, from the call to the loader."""

from __future__ import annotations

import json
import sys
import time

import foreload


def main() -> None:
    """Make a loader of the directory that is named first, with its index in the one that is named second."""
    root, index = sys.argv[1:]
    begun = time.perf_counter()
    loader = foreload.ImageLoader(root, batch_size=256, index_dir=index, progress=False, device="cpu")
    seconds = time.perf_counter() - begun
    print(json.dumps({"seconds": seconds, "samples": loader.samples}))


if __name__ == "__main__":
    main()
