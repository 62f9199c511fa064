"""Writes Parquet with `datasets`, as it uploads a dataset: an image and its class in every row."""

from __future__ import annotations

import source
from datasets import ClassLabel, Dataset, Features, Image


def main() -> None:
    job = source.job()
    classes = [f"class {number}" for number in range(1 + max(sample.label for sample in job.samples))]
    features = Features({"image": Image(), "label": ClassLabel(names=classes)})
    count = -(-len(job.samples) // job.shard_samples)
    for number, samples in job.shards():
        columns = {
            "image": [{"bytes": sample.image(), "path": None} for sample in samples],
            "label": [sample.label for sample in samples],
        }
        path = job.output / f"train-{number:05}-of-{count:05}.parquet"
        Dataset.from_dict(columns, features=features).to_parquet(path)


if __name__ == "__main__":
    main()
