"""PyTorch's DistributedDataParallel under Slurm; requeued at any moment, it resumes where it was.

srun --nodes 2 --ntasks-per-node 1 python examples/slurm_ddp.py data/train checkpoint.pt
"""

import os
import sys

import torch
from foreload.torch import ImageDataset
from torch import nn

data, checkpoint = sys.argv[1:]
rank, ranks, job = (int(os.environ[f"SLURM_{name}"]) for name in ("PROCID", "STEP_NUM_TASKS", "JOB_ID"))
# In a batch script srun runs on the first node, where rank 0 will be.
url = f"tcp://{os.environ['SLURM_LAUNCH_NODE_IPADDR']}:{20000 + job % 10000}"
torch.distributed.init_process_group("gloo", url, rank=rank, world_size=ranks)
torch.manual_seed(0)
dataset = ImageDataset(data, batch_size=8 // ranks, image_size=32, seed=0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
parts = model, optimizer, dataset
if os.path.exists(checkpoint):
    for part, state in zip(parts, torch.load(checkpoint), strict=True):
        part.load_state_dict(state)

for epoch in range(dataset.epoch, 3):
    dataset.set_epoch(epoch)
    for step, (images, labels) in enumerate(dataset, 1):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.8f}", flush=True)
            if step % 5 == 0:
                torch.save([part.state_dict() for part in parts], f"{checkpoint}.new")
                os.replace(f"{checkpoint}.new", checkpoint)  # A checkpoint is never half written.
torch.distributed.destroy_process_group()
