"""Writes tar shards with WebDataset: `jpg` and `cls` of every sample."""

from __future__ import annotations

import source
import webdataset


def main() -> None:
    job = source.job()
    pattern = str(job.output / "train-%06d.tar")
    with webdataset.ShardWriter(pattern, maxcount=job.shard_samples, verbose=0) as writer:
        for number, sample in enumerate(job.samples):
            writer.write({"__key__": f"{number:08}", "jpg": sample.image(), "cls": sample.label})


if __name__ == "__main__":
    main()
