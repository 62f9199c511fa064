"""Writes MDS with MosaicML Streaming: each sample has an image, whose file is stored unchanged, and its class."""

from __future__ import annotations

import source
from PIL import Image
from streaming import MDSWriter

FULL = 1 << 26
"""The size of a shard in bytes, which Streaming counts instead of samples: its own default."""


def main() -> None:
    """Write all shards; only one if a shard may have all samples."""
    job = source.job()
    limit = FULL if job.shard_samples < len(job.samples) else 1 << 31
    columns = {"image": "jpeg", "label": "int"}
    with MDSWriter(out=str(job.output), columns=columns, size_limit=limit) as writer:
        for sample in job.samples:
            # The library writes the bytes of the file that Pillow opened.
            with Image.open(sample.path) as image:
                writer.write({"image": image, "label": sample.label})


if __name__ == "__main__":
    main()
