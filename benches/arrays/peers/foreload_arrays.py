"""Foreload: the array of each batch through DLPack, without a copy."""

from __future__ import annotations

import array_epochs
import foreload
import numpy as np
from array_epochs import Epoch
from foreload import fields
from harness.measure import Options

CACHE = "40GB"
"""The size of the cache, which holds every dataset of this benchmark."""


def prepare(options: Options, about: dict, choices: dict[str, str]) -> Epoch:
    """Open the dataset, with a cache in the scratch folder if the variant asks for it."""
    settings = {"sample_axis": "file"} if about["axis"] == "file" else {}
    if "cache" in choices:
        settings["cache"] = foreload.Directory(choices["cache"], CACHE)
    loader = foreload.Loader(
        options.data / "data",
        fields=[fields.Array(about["source"], name="x")],
        batch_size=options.batch_size,
        threads=options.threads,
        seed=options.seed,
        last_batch="partial",
        device="cpu",
        progress=False,
        **settings,
    )

    def epoch(number: int) -> array_epochs.Iterable[np.ndarray]:
        loader.set_epoch(number)
        for batch in loader:
            yield np.from_dlpack(batch["x"])

    return epoch


if __name__ == "__main__":
    array_epochs.main(prepare)
