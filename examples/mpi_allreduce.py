"""NumPy and mpi4py, gradients added up by MPI; killed at any moment, it resumes where it was, with 1, 2 or 4 processes.

mpirun -n 2 python examples/mpi_allreduce.py data/train checkpoint.npz
"""

import json
import os
import sys

import foreload
import numpy as np
from mpi4py import MPI  # Foreload finds its rank here.

EPOCHS, GLOBAL_BATCH, SAVE_EVERY = 3, 8, 5
data, checkpoint = sys.argv[1:]
world = MPI.COMM_WORLD
loader = foreload.ImageLoader(data, batch_size=GLOBAL_BATCH // world.size, image_size=32, seed=0)
weights = np.zeros((3 * 32 * 32, len(loader.classes)))
if os.path.exists(checkpoint):
    with np.load(checkpoint) as saved:
        weights = saved["weights"]
        loader.load_state_dict(json.loads(str(saved["data"])))

for epoch in range(loader.epoch, EPOCHS):
    loader.set_epoch(epoch)
    for batch in loader:
        flat, rows = np.from_dlpack(batch.images).reshape(len(batch), -1), np.arange(len(batch))
        labels, scores = np.from_dlpack(batch.labels), np.exp(flat @ weights)
        likely = scores / scores.sum(1, keepdims=True)
        loss = world.allreduce(-np.log(likely[rows, labels]).sum()) / GLOBAL_BATCH
        likely[rows, labels] -= 1
        weights -= 1e-4 * world.allreduce(flat.T @ likely)
        if world.rank == 0:
            print(f"epoch {epoch} loss {loss:.8f}", flush=True)
            if (batch.step + 1) % SAVE_EVERY == 0:
                with open(f"{checkpoint}.new", "wb") as file:
                    np.savez(file, weights=weights, data=json.dumps(loader.state_dict()))
                os.replace(f"{checkpoint}.new", checkpoint)  # A checkpoint is never half written.
