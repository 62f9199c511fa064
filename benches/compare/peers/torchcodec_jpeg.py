"""torchcodec, the successor of torchvision's own decoders: its JPEG decoder, with v2 transforms on uint8."""

from __future__ import annotations

from harness import measure
from harness.measure import Epoch, Options
from harness.torch_peers import epochs_of, image_folder, normalise
from torchcodec.decoders import decode_jpeg


def prepare(options: Options) -> Epoch:
    """ImageFolder with torchcodec's decoder; crop, antialiased resize and flip on uint8."""
    return epochs_of(image_folder(str(options.data), options.image_size, decode_jpeg), options, normalise)


if __name__ == "__main__":
    measure.main(prepare)
