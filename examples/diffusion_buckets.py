"""A small diffusion model of images in about their own shapes: each batch has the size of one bucket.

python examples/diffusion_buckets.py data/web checkpoint.pt
"""

import os
import sys

import torch
from foreload import Buckets, ImageLoader
from foreload import transforms as T
from torch import nn

data, checkpoint = sys.argv[1:]
torch.manual_seed(0)
loader = ImageLoader(
    data,
    batch_size=8,
    buckets=Buckets(area=32 * 32, step=8, max_ratio=2.0),
    where="width >= 32 and height >= 32",
    orientation="apply",
    transforms=[
        T.ResizeToCover("bucket"),
        T.RandomCrop("bucket"),
        T.ToDtype("float32", scale=True),
        T.Normalize([0.5] * 3, [0.5] * 3),
    ],
)


class Denoiser(nn.Module):
    """Predicts the noise in an image from the time, and from the original size and the crop, as SDXL does."""

    def __init__(self, width=32):
        super().__init__()
        self.conditions = nn.Sequential(nn.Linear(7, width), nn.SiLU(), nn.Linear(width, width))
        self.begin = nn.Conv2d(3, width, 3, padding=1)
        self.middle = nn.Sequential(
            nn.SiLU(), nn.Conv2d(width, width, 3, padding=2, dilation=2), nn.GroupNorm(4, width), nn.SiLU()
        )
        self.end = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, noisy, time, sizes):
        told = self.conditions(torch.cat([time[:, None], sizes / 512], 1))
        return self.end(self.middle(self.begin(noisy) + told[:, :, None, None]))


model = Denoiser()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
parts = model, optimizer, loader
if os.path.exists(checkpoint):
    for part, state in zip(parts, torch.load(checkpoint), strict=True):
        part.load_state_dict(state)
for epoch in range(loader.epoch, 4):
    loader.set_epoch(epoch)
    torch.manual_seed(epoch)  # So that noise is the same after a restart.
    losses = []
    for batch in loader:
        images, original, crops = map(torch.from_dlpack, (batch.images, batch.original_sizes, batch.crops))
        bucket = torch.tensor(batch.bucket).expand(len(images), 2)
        sizes = torch.cat([original, crops, bucket], 1).float()
        time, noise = torch.rand(len(images)), torch.randn_like(images)
        share = torch.cos(time * torch.pi / 2)[:, None, None, None]
        noisy = share * images + (1 - share**2).sqrt() * noise
        loss = nn.functional.mse_loss(model(noisy, time, sizes), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch} loss {sum(losses) / len(losses):.4f}", flush=True)
    torch.save([part.state_dict() for part in parts], f"{checkpoint}.new")
    os.replace(f"{checkpoint}.new", checkpoint)  # A checkpoint is never half written.
