"""A small segmentation model, from the directories images/ and masks/: masks follow the crops of their images.

python examples/segmentation_folders.py data/segmentation
"""

import sys

import torch
from foreload import ImageLoader, fields
from foreload import transforms as T
from torch import nn

(data,) = sys.argv[1:]
CLASSES = 3
torch.manual_seed(0)


def loader(train):
    """Return the loader of training, or of the evaluation on the same images."""
    crop = [T.RandomResizedCrop(48, scale=(0.3, 1.0)), T.RandomHorizontalFlip()]
    return ImageLoader(
        data,
        fields=["images", fields.Mask("masks", dtype="int64")],
        batch_size=8,
        train=train,
        transforms=[*(crop if train else [T.Resize((48, 48))]), T.ToDtype("float32", scale=True)],
    )


def convolution(width, out, dilation=1):
    return nn.Conv2d(width, out, 3, padding=dilation, dilation=dilation)


model = nn.Sequential(
    convolution(3, 16), nn.ReLU(), convolution(16, 16, 2), nn.ReLU(), convolution(16, 16, 4), nn.ReLU(),
    convolution(16, CLASSES),
)  # fmt: skip
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
training, evaluation = loader(train=True), loader(train=False)
for epoch in range(8):
    training.set_epoch(epoch)
    for batch in training:
        images, masks = map(torch.from_dlpack, (batch["images"], batch["masks"]))
        loss = nn.functional.cross_entropy(model(images), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    common, together = torch.zeros(CLASSES), torch.zeros(CLASSES)
    with torch.no_grad():
        for batch in evaluation:
            images, masks = map(torch.from_dlpack, (batch["images"], batch["masks"]))
            found = model(images).argmax(1)
            for number in range(CLASSES):
                is_found, is_right = found == number, masks == number
                common[number] += (is_found & is_right).sum()
                together[number] += (is_found | is_right).sum()
    print(f"epoch {epoch} loss {loss.item():.4f} IoU {(common / together).mean():.3f}", flush=True)
