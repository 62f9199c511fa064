"""torchvision at its fastest on the CPU: torchvision.io, v2 transforms on uint8, batched normalise."""

from __future__ import annotations

from harness import measure
from harness.measure import Epoch, Options
from harness.torch_peers import epochs_of, image_folder, normalise


def prepare(options: Options) -> Epoch:
    """ImageFolder with a tensor decoder; crop, antialiased resize and flip on uint8."""
    return epochs_of(image_folder(str(options.data), options.image_size), options, normalise)


if __name__ == "__main__":
    measure.main(prepare)
