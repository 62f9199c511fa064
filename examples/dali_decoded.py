"""Finished images from Foreload in DALI's pipeline; killed at any moment, it resumes where it was.

python examples/dali_decoded.py data/train checkpoint.pt
"""

import os
import sys

import torch
from foreload.dali import ImageSource
from nvidia.dali import pipeline_def
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from torch import nn

data, checkpoint = sys.argv[1:]
torch.manual_seed(0)
source = ImageSource(data, batch_size=8, image_size=32, seed=0)
model = nn.Sequential(nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(784, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if os.path.exists(checkpoint):
    for part, state in zip((model, optimizer, source), torch.load(checkpoint), strict=True):
        part.load_state_dict(state)

train = pipeline_def(source.data_nodes)(batch_size=8, num_threads=2, device_id=None)  # Or a GPU's number.
batches = DALIGenericIterator(train, ["images", "labels"], auto_reset=True)
for epoch in range(source.epoch, 3):
    for step, (batch,) in enumerate(batches, source.first_step(epoch) + 1):
        loss = nn.functional.cross_entropy(model(batch["images"]), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.8f}", flush=True)
        if step % 5 == 0:
            state = source.state_dict(epoch=epoch, at_step=step)
            torch.save([model.state_dict(), optimizer.state_dict(), state], f"{checkpoint}.new")
            os.replace(f"{checkpoint}.new", checkpoint)  # A checkpoint is never half written.
