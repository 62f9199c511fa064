"""`foreload pack` on the whole dataset, into a folder that is removed again: the cost of packing, with its checks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from harness import measure


def main() -> None:
    options, raw = measure.parse_options()
    images = len(measure.list_images(options.data)[0])
    program = Path(sys.executable).with_name("foreload")
    target = options.scratch / "packing"

    def pack(_number: int) -> int:
        shutil.rmtree(target, ignore_errors=True)
        command = [program, "pack", options.data, target, "--threads", options.threads]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stderr)
        return images

    try:
        measure.tell(measure.timed(pack, raw))
    finally:
        shutil.rmtree(target, ignore_errors=True)


if __name__ == "__main__":
    main()
