"""Does training runs for `run.py`: a request is a line of JSON with (settings, pipeline, seed), and so is the response.

The seed determines the network's first weights, which are the same for every pipeline, and the order and crops, which
each pipeline draws in its own way.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pipelines
import torch
import torchvision
from network import SmallResNet
from settings import Settings
from torch.nn import functional
from torchvision.datasets import ImageFolder


def run(settings: Settings, pipeline: str, seed: int) -> dict:
    """Train one network; return accuracies in percent of the validation images, and processor seconds."""
    # The validation batches are made before a process's first run, so that their cost does not count for a run.
    validation = pipelines.torchvision_validation(settings)
    started = time.process_time()
    files = ImageFolder(str(settings.data / "train"))
    torch.manual_seed(seed)
    network = SmallResNet(len(files.classes), settings.width).to(memory_format=torch.channels_last)
    epoch_batches = pipelines.training(pipeline, settings, seed)
    steps = len(files) // settings.batch_size * settings.epochs
    batches = (batch for epoch in range(settings.epochs) for batch in epoch_batches(epoch))
    losses = train(network, batches, settings, steps)
    if len(losses) != steps:
        raise RuntimeError(f"{pipeline}: {len(losses)} steps, must be {steps}")
    accuracy, images = judge(network, validation)
    own = accuracy
    if pipeline != "torchvision":
        own, _ = judge(network, pipelines.foreload_validation(settings, pipeline))
    return {
        "accuracy": accuracy,
        "own_accuracy": own,
        "last_loss": sum(losses[-100:]) / len(losses[-100:]),
        "steps": steps,
        "train_images": len(files),
        "validation_images": images,
        "classes": len(files.classes),
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "processor_seconds": time.process_time() - started,
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
    }


def train(
    network: torch.nn.Module, batches: pipelines.Batches, settings: Settings, steps: int
) -> list[float]:
    """Train by stochastic gradient descent with one cycle of the learning rate; return the loss of each step."""
    optimizer = torch.optim.SGD(
        network.parameters(),
        settings.peak_rate,
        settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=True,
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.peak_rate, steps, pct_start=settings.warm_up
    )
    precision = torch.autocast("cpu", getattr(torch, settings.precision), settings.precision != "float32")
    losses = []
    for images, labels in batches:
        with precision:
            logits = network(channels_last(images))
        loss = functional.cross_entropy(logits.float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


@torch.inference_mode()
def judge(network: torch.nn.Module, batches: pipelines.Batches) -> tuple[float, int]:
    """Return the percentage of images whose class is found, and the number of images."""
    network.eval()
    right = seen = 0
    for images, labels in batches:
        right += int((network(channels_last(images)).argmax(dim=1) == labels).sum())
        seen += len(labels)
    return 100 * right / seen, seen


def channels_last(images: torch.Tensor) -> torch.Tensor:
    """Return the order in memory that CPUs convolve fastest."""
    return images.contiguous(memory_format=torch.channels_last)


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        asked, pipeline, seed = json.loads(line)
        settings = Settings(**asked | {"data": Path(asked["data"]), "scale": tuple(asked["scale"])})
        print(json.dumps(run(settings, pipeline, seed)), flush=True)


if __name__ == "__main__":
    main()
