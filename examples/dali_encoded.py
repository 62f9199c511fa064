"""Foreload reads, DALI decodes and augments; killed at any moment, it resumes where it was.

python examples/dali_encoded.py data/train checkpoint.pt
"""

import os
import sys

import torch
from foreload.dali import ImageSource
from nvidia.dali import Pipeline, fn
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from torch import nn

data, checkpoint = sys.argv[1:]
torch.manual_seed(0)
source = ImageSource(data, decoded=False, batch_size=8, seed=0)
model = nn.Sequential(nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(784, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
first_epoch, dali, *states = torch.load(checkpoint) if os.path.exists(checkpoint) else (0, None)
for part, state in zip((model, optimizer), states, strict=False):
    part.load_state_dict(state)

with Pipeline(batch_size=8, num_threads=2, seed=0, enable_checkpointing=True, checkpoint=dali) as train:
    files, labels = source.data_nodes()
    images = fn.resize(fn.decoders.image_random_crop(files), size=[32, 32])  # Use device="mixed" with a GPU.
    train.set_outputs(fn.crop_mirror_normalize(images, mirror=fn.random.coin_flip(), std=[255]), labels)
batches = DALIGenericIterator(train, ["images", "labels"], auto_reset=True)
for epoch in range(first_epoch, 3):
    for step, (batch,) in enumerate(batches, 1):
        loss = nn.functional.cross_entropy(model(batch["images"]), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.8f}", flush=True)
        if step % 5 == 0:
            states = model.state_dict(), optimizer.state_dict()
            torch.save([epoch, batches.checkpoints()[0], *states], f"{checkpoint}.new")
            os.replace(f"{checkpoint}.new", checkpoint)  # A checkpoint is never half written.
