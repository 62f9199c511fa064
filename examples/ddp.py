"""PyTorch's DistributedDataParallel; killed at any moment, it resumes where it was, with 1, 2 or 4 processes.

torchrun --nproc-per-node 2 examples/ddp.py data/train checkpoint.pt
"""

import os
import sys

import torch
import torch.distributed as dist
from foreload.torch import ImageDataset
from torch import nn

EPOCHS, GLOBAL_BATCH, SAVE_EVERY = 3, 8, 5
data, checkpoint = sys.argv[1:]
dist.init_process_group("gloo")  # Use "nccl" with GPUs.
torch.manual_seed(0)
dataset = ImageDataset(data, batch_size=GLOBAL_BATCH // dist.get_world_size(), image_size=32, seed=0)
model = nn.Sequential(nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(784, 10))
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
parts = model, optimizer, dataset
if os.path.exists(checkpoint):
    for part, state in zip(parts, torch.load(checkpoint), strict=True):
        part.load_state_dict(state)

for epoch in range(dataset.epoch, EPOCHS):
    dataset.set_epoch(epoch)
    for step, (images, labels) in enumerate(dataset, 1):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.8f}", flush=True)
            if step % SAVE_EVERY == 0:
                torch.save([part.state_dict() for part in parts], f"{checkpoint}.new")
                os.replace(f"{checkpoint}.new", checkpoint)  # A checkpoint is never half written.
dist.destroy_process_group()
