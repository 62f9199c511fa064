"""NumPy by DLPack, without a copy or a framework; killed at any moment, it resumes where it was.

python examples/numpy_dlpack.py data/train checkpoint.npz
"""

import json
import os
import sys

import foreload
import numpy as np

EPOCHS, SAVE_EVERY = 3, 5
data, checkpoint = sys.argv[1:]
loader = foreload.ImageLoader(data, batch_size=8, image_size=32, seed=0)
weights = np.zeros((3 * 32 * 32, len(loader.classes)), np.float32)
if os.path.exists(checkpoint):
    with np.load(checkpoint) as saved:
        weights = saved["weights"]
        loader.load_state_dict(json.loads(str(saved["data"])))

for epoch in range(loader.epoch, EPOCHS):
    loader.set_epoch(epoch)
    for batch in loader:
        images, labels = np.from_dlpack(batch.images), np.from_dlpack(batch.labels)
        flat, rows = images.reshape(len(images), -1), np.arange(len(images))
        scores = np.exp(flat @ weights - (flat @ weights).max(1, keepdims=True))
        likely = scores / scores.sum(1, keepdims=True)
        print(f"epoch {epoch} loss {-np.log(likely[rows, labels]).mean():.8f}", flush=True)
        likely[rows, labels] -= 1
        weights -= 1e-4 * flat.T @ likely
        if (batch.step + 1) % SAVE_EVERY == 0:
            with open(f"{checkpoint}.new", "wb") as file:
                np.savez(file, weights=weights, data=json.dumps(loader.state_dict()))
            os.replace(f"{checkpoint}.new", checkpoint)  # A checkpoint is never half written.
