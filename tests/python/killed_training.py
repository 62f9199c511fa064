"""A training that records its samples, in which one rank is killed at a given moment.

    torchrun --nproc-per-node 2 killed_training.py DATA CHECKPOINT NOTES EPOCHS [RANK STEPS SECONDS]

NOTES is a folder with one file per rank, with a line of JSON for each step that was started. At the end, the file
`trained` in it holds how often the model was trained on each sample in each epoch, over all runs whose checkpoints led
to the model. RANK dies by SIGKILL in or soon after its STEPSth step, SECONDS after that step began.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from foreload.torch import ImageDataset
from torch import nn

GLOBAL_BATCH, SAVE_EVERY = 4, 2
data, checkpoint, folder, epochs = sys.argv[1:5]

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
victim, steps_left, seconds = (
    (int(sys.argv[5]), int(sys.argv[6]), float(sys.argv[7])) if sys.argv[5:] else (-1, 0, 0)
)
death = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))

torch.manual_seed(0)
dataset = ImageDataset(
    data,
    batch_size=GLOBAL_BATCH // world_size,
    image_size=16,
    seed=7,
    with_ids=True,
    threads=1,
    progress=False,
)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(768, 3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
parts = model, optimizer, dataset
trained = torch.zeros(int(epochs), dataset.loader.samples, dtype=torch.int64)
if os.path.exists(checkpoint):
    *states, trained = torch.load(checkpoint)
    for part, state in zip(parts, states, strict=True):
        part.load_state_dict(state)

with (Path(folder) / str(rank)).open("w") as notes:
    for epoch in range(dataset.epoch, int(epochs)):
        dataset.set_epoch(epoch)
        first = dataset.state_dict()["position"] // GLOBAL_BATCH
        for step, (images, labels, ids) in enumerate(dataset, first):
            if rank == victim:
                steps_left -= 1
                if steps_left == 0:
                    death.start()
            # The note is written before gradients are exchanged, so a step that any rank finishes is noted by all.
            print(json.dumps({"epoch": epoch, "step": step, "ids": ids.tolist()}), file=notes, flush=True)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            counts = torch.bincount(ids, minlength=dataset.loader.samples)
            dist.all_reduce(counts)
            trained[epoch] += counts
            if (step + 1) % SAVE_EVERY == 0 and rank == 0:
                torch.save([*(part.state_dict() for part in parts), trained], f"{checkpoint}.new")
                os.replace(f"{checkpoint}.new", checkpoint)
if rank == victim:
    death.join()
if rank == 0:
    (Path(folder) / "trained").write_text(json.dumps(trained.tolist()))
# Python's own exit could abort: a thread of gloo may still be releasing the last `counts`, for which it needs the
# interpreter (torch 2.15, also without Foreload, in one of 20 runs on a busy machine; pytorch pull request 179291).
os._exit(0)
