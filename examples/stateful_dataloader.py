"""torchdata's StatefulDataLoader; killed at any moment, it resumes where it was.

python examples/stateful_dataloader.py data/train checkpoint.pt
"""

import os
import sys

import torch
from foreload.torch import ImageDataset
from torch import nn
from torchdata.stateful_dataloader import StatefulDataLoader

EPOCHS, SAVE_EVERY = 3, 5
data, checkpoint = sys.argv[1:]
torch.manual_seed(0)
dataset = ImageDataset(data, batch_size=8, image_size=32, seed=0)
batches = StatefulDataLoader(dataset, batch_size=None, num_workers=0)
model = nn.Sequential(nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(784, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
parts = model, optimizer, batches
first_epoch = 0
if os.path.exists(checkpoint):
    first_epoch, *states = torch.load(checkpoint)
    for part, state in zip(parts, states, strict=True):
        part.load_state_dict(state)

for epoch in range(first_epoch, EPOCHS):
    dataset.set_epoch(epoch)
    for step, (images, labels) in enumerate(batches, 1):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.8f}", flush=True)
        if step % SAVE_EVERY == 0:
            torch.save([epoch, *(part.state_dict() for part in parts)], f"{checkpoint}.new")
            os.replace(f"{checkpoint}.new", checkpoint)  # A checkpoint is never half written.
