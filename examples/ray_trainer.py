"""PyTorch in Ray Train; when a worker dies Ray starts all of them again, and they resume where they were.

python examples/ray_trainer.py data/train /shared/checkpoint.pt
"""

import os
import sys

import torch
from foreload.torch import ImageDataset
from ray import train
from ray.train.torch import TorchTrainer, prepare_model

data, checkpoint = sys.argv[1:]


def training():
    rank, ranks = train.get_context().get_world_rank(), train.get_context().get_world_size()
    dataset = ImageDataset(data, batch_size=8 // ranks, image_size=32, seed=0)
    model = prepare_model(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10)))
    parts = model, torch.optim.SGD(model.parameters(), lr=0.001), dataset
    if os.path.exists(checkpoint):
        for part, state in zip(parts, torch.load(checkpoint), strict=True):
            part.load_state_dict(state)
    for epoch in range(dataset.epoch, 3):
        dataset.set_epoch(epoch)
        for step, (images, labels) in enumerate(dataset, 1):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            parts[1].zero_grad()
            loss.backward()
            parts[1].step()
            print(f"rank {rank} epoch {epoch} step {step} loss {loss.item():.8f}", flush=True)
            if rank == 0 and step % 5 == 0:
                torch.save([part.state_dict() for part in parts], f"{checkpoint}.new")
                os.replace(f"{checkpoint}.new", checkpoint)  # A checkpoint is never half written.


again, scale = train.FailureConfig(max_failures=3), train.ScalingConfig(num_workers=2)
TorchTrainer(training, scaling_config=scale, run_config=train.RunConfig(failure_config=again)).fit()
