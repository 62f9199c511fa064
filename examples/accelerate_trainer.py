"""Hugging Face Accelerate; killed between two saves, it resumes where it was, with 1, 2 or 4 processes.

torchrun --nproc-per-node 2 examples/accelerate_trainer.py data/train checkpoint

Foreload itself is not prepared: each process has its part already, which a prepared loader would divide again.
"""

import os
import sys

import torch
from accelerate import Accelerator
from foreload.torch import ImageDataset
from torch import nn

EPOCHS, GLOBAL_BATCH, SAVE_EVERY = 3, 8, 5
data, checkpoint = sys.argv[1:]
accelerator = Accelerator(cpu=True)  # Leave out cpu=True on GPUs.
torch.manual_seed(0)
batch_size, device = GLOBAL_BATCH // accelerator.num_processes, accelerator.device
dataset = ImageDataset(data, batch_size=batch_size, image_size=32, seed=0, device=device)
model = nn.Sequential(nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(784, 10))
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
accelerator.register_for_checkpointing(dataset)
if os.path.exists(checkpoint):
    accelerator.load_state(checkpoint)

for epoch in range(dataset.epoch, EPOCHS):
    dataset.set_epoch(epoch)
    for step, (images, labels) in enumerate(dataset, 1):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        accelerator.print(f"epoch {epoch} loss {loss.item():.8f}", flush=True)
        if step % SAVE_EVERY == 0:
            accelerator.save_state(checkpoint)
accelerator.end_training()  # Else gloo's threads may outlive the interpreter, which aborts the process.
