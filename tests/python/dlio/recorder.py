"""The loader under test, which also records the batches that it hands to DLIO."""

import hashlib
import json
from pathlib import Path

import numpy as np
from foreload.dlio import ForeloadDataLoader


class Recorder(ForeloadDataLoader):
    """Writes a line of JSON for each batch: training or evaluation, the epoch, the sample ids and their SHA-256."""

    def next(self):
        """Yield the batches unchanged, and record them."""
        path = Path(self._args.output_folder, f"{self._args.my_rank}_batches.jsonl")
        epoch = self.epoch_number
        for batch in super().next():
            line = {
                "set": str(self.dataset_type),
                "epoch": epoch,
                "ids": np.from_dlpack(batch.sample_ids).tolist(),
                "sha256": [hashlib.sha256(np.from_dlpack(file)).hexdigest() for file in batch.files],
            }
            with path.open("a") as lines:
                lines.write(json.dumps(line) + "\n")
            yield batch
