"""torchvision on the device: threads read files, `decode_jpeg` decodes whole batches on CUDA, v2 crops and resizes.

Several threads each make a whole batch on their own stream. torchvision lets only one of them decode at a time, while
the others crop and resize. Flips and normalisation are done for a whole batch at once. The number of threads is tuned.
"""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import serve
import torch
from harness.crops import draw_box
from harness.measure import MEAN, STD, list_images
from serve import Batch, Feed, Options
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms.v2 import functional as F

AHEAD = 3
"""The number of finished batches that may wait."""


class TorchvisionFeed(Feed):
    """The numbers of threads that read, and of threads that decode and augment."""

    def __init__(self, options: Options, makers: int) -> None:
        self.options = options
        self.paths, self.labels = list_images(options.data)
        self.random = random.Random(options.seed)
        self.on_host: set[str] = set()
        """The files that nvJPEG refuses (CMYK). They are detected once, and decoded on the CPU afterwards."""
        self.ready = AHEAD + makers
        self.readers = ThreadPoolExecutor(options.threads, "read")
        self.makers = ThreadPoolExecutor(makers, "make")
        self.local = threading.local()
        self.mean = torch.tensor(MEAN, device=serve.DEVICE).view(1, 3, 1, 1) * 255
        self.scale = 1 / (torch.tensor(STD, device=serve.DEVICE).view(1, 3, 1, 1) * 255)
        torch.cuda.synchronize()

    def batches(self) -> Iterator[Batch]:
        """Yield epoch after epoch, in order, while `ready` batches are being made."""
        made: queue.SimpleQueue[Future] = queue.SimpleQueue()
        for chosen in self.choose():
            read = [self.readers.submit(read_file, self.paths[sample]) for sample in chosen]
            seed = self.random.getrandbits(64)
            made.put(self.makers.submit(self.make, chosen, read, seed))
            if made.qsize() > self.ready:
                yield made.get().result()

    def choose(self) -> Iterator[list[int]]:
        size = self.options.batch_size
        while True:
            order = self.random.sample(range(len(self.paths)), len(self.paths))
            for start in range(0, len(order) - size + 1, size):
                yield order[start : start + size]

    def make(self, chosen: list[int], read: list[Future], seed: int) -> Batch:
        """Make one finished batch. It waits for the stream, so that memory can be used on another stream."""
        if not hasattr(self.local, "stream"):
            self.local.stream = torch.cuda.Stream()
        draws = random.Random(seed)
        size = [self.options.image_size, self.options.image_size]
        with torch.cuda.stream(self.local.stream):
            decoded = self.decode([self.paths[sample] for sample in chosen], [one.result() for one in read])
            cropped = [
                F.resized_crop(image, y, x, height, width, size, antialias=True)
                for image in decoded
                for x, y, width, height in [draw_box(image.shape[2], image.shape[1], draws)]
            ]
            images = torch.stack(cropped)
            flips = torch.tensor([draws.random() < 0.5 for _ in chosen]).pin_memory().cuda(non_blocking=True)
            images = torch.where(flips.view(-1, 1, 1, 1), images.flip(3), images)
            images = images.float().sub_(self.mean).mul_(self.scale).to(self.options.torch_dtype)
            labels = (
                torch.tensor([self.labels[sample] for sample in chosen]).pin_memory().cuda(non_blocking=True)
            )
            done = torch.cuda.Event(blocking=True)
            done.record()
            done.synchronize()
        return images, labels

    def decode(self, paths: list[str], encoded: list[torch.Tensor]) -> list[torch.Tensor]:
        """Decode whole batches at once, as torchvision recommends; one bad file fails all of them."""
        on_device = [i for i, path in enumerate(paths) if path not in self.on_host]
        try:
            decoded = on_device and decode_jpeg(
                [encoded[i] for i in on_device], mode=ImageReadMode.RGB, device=serve.DEVICE
            )
        except RuntimeError:
            for i in on_device:
                try:
                    decode_jpeg([encoded[i]], mode=ImageReadMode.RGB, device=serve.DEVICE)
                except RuntimeError:
                    self.on_host.add(paths[i])
            if len(self.on_host) > len(self.paths) // 10:
                raise
            return self.decode(paths, encoded)
        images = dict(zip(on_device, decoded, strict=True))
        for i, path in enumerate(paths):
            if path in self.on_host:
                images[i] = decode_jpeg(encoded[i], mode=ImageReadMode.RGB).cuda(non_blocking=True)
        return [images[i] for i in range(len(paths))]

    def close(self) -> None:
        self.makers.shutdown(cancel_futures=True)
        self.readers.shutdown(cancel_futures=True)


if __name__ == "__main__":
    serve.serve(TorchvisionFeed, settings=(1, 2, 3, 4))
