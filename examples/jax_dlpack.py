"""JAX by DLPack; killed at any moment, it resumes where it was.

python examples/jax_dlpack.py data/train checkpoint.npz
"""

import json
import os
import sys

import foreload
import jax
import numpy as np

data, checkpoint = sys.argv[1:]
loader = foreload.ImageLoader(data, batch_size=8, image_size=32, seed=0)
weights = jax.numpy.zeros((3 * 32 * 32, len(loader.classes)))
if os.path.exists(checkpoint):
    with np.load(checkpoint) as saved:
        weights = jax.numpy.asarray(saved["weights"])
        loader.load_state_dict(json.loads(str(saved["data"])))


@jax.value_and_grad
def loss_of(weights, images, labels):
    likely = jax.nn.log_softmax(images.reshape(len(images), -1) @ weights)
    return -likely[jax.numpy.arange(len(labels)), labels].mean()


for epoch in range(loader.epoch, 3):
    loader.set_epoch(epoch)
    for batch in loader:
        images, labels = jax.numpy.from_dlpack(batch.images), jax.numpy.from_dlpack(batch.labels)
        loss, gradient = loss_of(weights, images, labels)
        weights -= 1e-3 * gradient
        print(f"epoch {epoch} loss {loss:.8f}", flush=True)
        if (batch.step + 1) % 5 == 0:
            with open(f"{checkpoint}.new", "wb") as file:
                np.savez(file, weights=weights, data=json.dumps(loader.state_dict()))
            os.replace(f"{checkpoint}.new", checkpoint)  # A checkpoint is never half written.
