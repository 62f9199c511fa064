"""Nodes that share their caches; killed at any moment, it resumes where it was, and reads what the nodes have kept.

torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-id job --rdzv-endpoint node0:29400 \
    examples/peers_torchrun.py /pfs/train /pfs/checkpoint.pt /nvme/foreload
"""

import os
import sys

import torch
from foreload import Directory, ImageLoader
from torch import nn

data, checkpoint, cache = sys.argv[1:]
torch.distributed.init_process_group("gloo")  # Use "nccl" with GPUs.
rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
torch.manual_seed(0)
loader = ImageLoader(data, batch_size=8 // ranks, image_size=32, cache=Directory(cache, "10GB"), peers="auto")
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
parts = model, optimizer, loader
if os.path.exists(checkpoint):
    for part, state in zip(parts, torch.load(checkpoint), strict=True):
        part.load_state_dict(state)
for epoch in range(loader.epoch, 3):
    loader.set_epoch(epoch)
    for batch in (batches := iter(loader)):
        images, labels = map(torch.from_dlpack, (batch.images, batch.labels))
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.8f}", flush=True)
            if batch.step % 5 == 4:
                torch.save([part.state_dict() for part in parts], f"{checkpoint}.new")
                os.replace(f"{checkpoint}.new", checkpoint)  # A checkpoint is never half written.
    print(f"rank {rank} read {batches.stats()['cache']['source_reads']} from storage", flush=True)
torch.distributed.destroy_process_group()
