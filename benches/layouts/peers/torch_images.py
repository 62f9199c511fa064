"""What the peers in torch's DataLoader do to images: decode by torchvision.io or Pillow, crop, resize and mirror."""

from __future__ import annotations

import torch
from measure import RATIO, SCALE, Options
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import v2


def transforms(options: Options) -> v2.Compose:
    """Return the transforms that come before normalisation, which is done by the batch."""
    crop = v2.RandomResizedCrop(options.image_size, scale=SCALE, ratio=RATIO, antialias=True)
    return v2.Compose([crop, v2.RandomHorizontalFlip()])


def decoded(image: bytes | Image.Image) -> torch.Tensor:
    """Return a JPEG's pixels, or those of an image that Pillow has opened, as uint8 RGB (3, H, W)."""
    if isinstance(image, Image.Image):
        return v2.functional.pil_to_tensor(image)
    return decode_jpeg(torch.frombuffer(bytearray(image), dtype=torch.uint8), mode=ImageReadMode.RGB)
