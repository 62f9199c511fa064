"""JAX over several processes; killed at any moment, it resumes where it was, with 1, 2 or 4 processes.

mpirun -n 2 python examples/jax_processes.py data/train checkpoint.npz
"""

import json
import os
import sys

import foreload
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

data, checkpoint = sys.argv[1:]
jax.distributed.initialize(cluster_detection_method="mpi4py")  # Without arguments under Slurm or on TPUs.
loader = foreload.ImageLoader(data, batch_size=8 // jax.process_count(), image_size=32, seed=0)
split = NamedSharding(Mesh(jax.devices(), "batch"), PartitionSpec("batch"))
weights = np.zeros((3 * 32 * 32, len(loader.classes)), np.float32)
if os.path.exists(checkpoint):
    saved = np.load(checkpoint)
    weights = saved["weights"]
    loader.load_state_dict(json.loads(str(saved["data"])))

gradient_of = jax.jit(jax.value_and_grad(lambda w, x, y: -(jax.nn.log_softmax(x @ w) * y).sum(1).mean()))

for epoch in range(loader.epoch, 3):
    loader.set_epoch(epoch)
    for batch in loader:
        labels = np.eye(weights.shape[1])[np.from_dlpack(batch.labels)]
        own = np.from_dlpack(batch.images).reshape(len(batch), -1), labels
        loss, gradient = gradient_of(weights, *jax.make_array_from_process_local_data((split, split), own))
        weights = weights - 1e-3 * np.asarray(gradient)
        if jax.process_index() == 0:
            print(f"epoch {epoch} loss {loss:.8f}", flush=True)
            if (batch.step + 1) % 5 == 0:
                np.savez(f"{checkpoint}.new.npz", weights=weights, data=json.dumps(loader.state_dict()))
                os.replace(f"{checkpoint}.new.npz", checkpoint)  # A checkpoint is never half written.
