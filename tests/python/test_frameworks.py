"""ImageDataset inside of torchdata, Lightning and Accelerate resumes from a state of any step, even the last step of an
epoch.

The tests run in the frameworks' own environment: `make test-frameworks`.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import need

need("lightning", "torchdata", "accelerate")

with warnings.catch_warnings():
    # The frameworks cause warnings when they import each other.
    warnings.simplefilter("ignore")
    import accelerate
    import lightning
    import torch
    from foreload.torch import ImageDataset
    from lightning.pytorch.callbacks import ModelCheckpoint
    from torchdata.stateful_dataloader import StatefulDataLoader

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = 7
EPOCHS = 3


def images_of(data: Path) -> ImageDataset:
    """A dataset of 60 samples in steps of 8; the last incomplete step is dropped."""
    return ImageDataset(data, batch_size=8, image_size=16, seed=5, with_ids=True)


@pytest.fixture(scope="module")
def whole(dataset: Path) -> list[list[int]]:
    """Return the ids of each step of all epochs."""
    images = images_of(dataset)
    seen = []
    for epoch in range(EPOCHS):
        images.set_epoch(epoch)
        seen += [ids.tolist() for _, _, ids in images]
    assert len(seen) == EPOCHS * STEPS
    return seen


@pytest.mark.parametrize("step", range(2 * STEPS + 1))
def test_a_stateful_dataloader(step: int, dataset: Path, whole: list[list[int]]) -> None:
    def take(batches: StatefulDataLoader, first_epoch: int, most: int) -> tuple[int, list[list[int]]]:
        seen: list[list[int]] = []
        for epoch in range(first_epoch, EPOCHS):
            batches.dataset.set_epoch(epoch)
            for _, _, ids in batches:
                seen.append(ids.tolist())
                if len(seen) == most:
                    return epoch, seen
        return EPOCHS, seen

    first = StatefulDataLoader(images_of(dataset), batch_size=None, num_workers=0)
    epoch, seen = take(first, 0, step) if step else (0, [])
    state = json.loads(json.dumps(first.state_dict()))
    assert seen == whole[:step]
    second = StatefulDataLoader(images_of(dataset), batch_size=None, num_workers=0)
    second.load_state_dict(state)
    assert take(second, epoch, len(whole))[1] == whole[step:]


def test_a_stateful_dataloader_after_its_epoch(dataset: Path, whole: list[list[int]]) -> None:
    """The state is saved when the loop over the epoch has ended, not in its last step."""
    first = StatefulDataLoader(images_of(dataset), batch_size=None, num_workers=0)
    assert len(list(first)) == STEPS
    second = StatefulDataLoader(images_of(dataset), batch_size=None, num_workers=0)
    second.load_state_dict(first.state_dict())
    assert [ids.tolist() for _, _, ids in second] == whole[STEPS : 2 * STEPS]


@pytest.mark.parametrize("step", range(1, 2 * STEPS))
def test_a_stateful_dataloader_goes_on_by_itself(step: int, dataset: Path, whole: list[list[int]]) -> None:
    """The epoch is never set, as is usual with datasets of torch."""
    first = StatefulDataLoader(images_of(dataset), batch_size=None, num_workers=0)
    seen: list[list[int]] = []
    while len(seen) < step:
        for _, _, ids in first:
            seen.append(ids.tolist())
            if len(seen) == step:
                state = first.state_dict()
                break
    assert seen == whole[:step]
    second = StatefulDataLoader(images_of(dataset), batch_size=None, num_workers=0)
    second.load_state_dict(state)
    while len(seen) < len(whole):
        more = [ids.tolist() for _, _, ids in second]
        # No epoch is empty, and no epoch comes twice.
        assert more
        seen += more
    assert seen == whole


def test_a_stateful_dataloader_that_begins_with_the_next_epoch(dataset: Path, whole: list[list[int]]) -> None:
    """The state is saved as (epoch + 1, state) after the loop; the loader loads it only when it iterates."""
    first = StatefulDataLoader(images_of(dataset), batch_size=None, num_workers=0)
    assert len(list(first)) == STEPS
    second = StatefulDataLoader(images_of(dataset), batch_size=None, num_workers=0)
    second.load_state_dict(first.state_dict())
    seen = []
    for epoch in range(1, EPOCHS):
        second.dataset.set_epoch(epoch)
        seen += [ids.tolist() for _, _, ids in second]
    assert seen == whole[STEPS:]


class Crash(Exception):
    """The error that ends a training."""


class Recorder(lightning.LightningModule):
    """A module that records the samples it is trained on, until it crashes."""

    def __init__(self, data: Path, crash_at: int) -> None:
        super().__init__()
        self.images = images_of(data)
        self.data = data
        self.crash_at = crash_at
        self.layer = torch.nn.Linear(768, 3)
        self.seen: list[list[int]] = []

    def train_dataloader(self) -> ImageDataset:
        """Return the dataset, as in the example."""
        return self.images

    def val_dataloader(self) -> list[ImageDataset]:
        """Return other loaders, with their own epochs; two batches of each are taken before training."""
        settings = {"batch_size": 8, "image_size": 16, "train": False, "with_ids": True}
        return [ImageDataset(self.data, **settings), ImageDataset(self.data, classes=[1], **settings)]

    def training_step(self, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Record the ids."""
        images, labels, ids = batch
        self.seen.append(ids.tolist())
        if len(self.seen) == self.crash_at:
            raise Crash
        return torch.nn.functional.cross_entropy(self.layer(images.flatten(1)), labels)

    def validation_step(self, batch: tuple[torch.Tensor, ...], number: int, dataloader_idx: int) -> None:
        """Validate. This must not disturb training, and gives the same each time."""
        first = 20 * dataloader_idx + 8 * number
        assert batch[2].tolist() == list(range(first, min(first + 8, (60, 40)[dataloader_idx])))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return any optimiser."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


@pytest.mark.parametrize(
    ("saving", "trainer", "crash_at", "saved"),
    [
        pytest.param({"every_n_train_steps": 5}, {}, 13, 10, id="in the middle"),
        pytest.param({"every_n_train_steps": 7}, {}, 17, 14, id="in the last step of an epoch"),
        pytest.param({}, {}, 9, 7, id="after an epoch"),
        pytest.param({"every_n_epochs": 2}, {}, 20, 14, id="after two epochs"),
        pytest.param({"save_on_train_epoch_end": True}, {}, 17, 14, id="at the end of an epoch"),
        pytest.param({}, {"val_check_interval": 3}, 12, 10, id="after a validation"),
        pytest.param({"every_n_train_steps": 1}, {"max_epochs": -1, "max_steps": 21}, 10, 9, id="by steps"),
    ],
)
def test_lightning(
    saving: dict[str, Any],
    trainer: dict[str, Any],
    crash_at: int,
    saved: int,
    dataset: Path,
    whole: list[list[int]],
    tmp_path: Path,
) -> None:
    def fit(model: Recorder) -> None:
        callback = ModelCheckpoint(tmp_path, save_last=True, enable_version_counter=False, **saving)
        usual = {"max_epochs": EPOCHS, "accelerator": "cpu", "logger": False, "enable_progress_bar": False}
        lightning.Trainer(callbacks=[callback], **(usual | trainer)).fit(model, ckpt_path="last")

    first = Recorder(dataset, crash_at)
    with pytest.raises(Crash):
        fit(first)
    assert first.seen == whole[:crash_at]
    second = Recorder(dataset, -1)
    fit(second)
    assert second.seen == whole[saved:]


def test_a_prepared_loader_of_accelerate(dataset: Path, whole: list[list[int]]) -> None:
    """Accelerate reads a batch ahead, so the training loop passes its own step."""
    accelerator = accelerate.Accelerator(cpu=True)
    for step in range(1, 2 * STEPS):
        first = images_of(dataset)
        batches = accelerator.prepare(torch.utils.data.DataLoader(first, batch_size=None, num_workers=0))
        seen: list[list[int]] = []
        for epoch in range(2):
            batches.set_epoch(epoch)
            for count, (_, _, ids) in enumerate(batches, 1):
                seen.append(ids.tolist())
                if len(seen) == step:
                    state = first.state_dict(at_step=count)
                    break
            if len(seen) == step:
                break
        assert seen == whole[:step]
        assert state["position"] == 8 * count
        second = images_of(dataset)
        second.load_state_dict(state)
        seen = []
        for epoch in range(second.epoch, EPOCHS):
            second.set_epoch(epoch)
            seen += [ids.tolist() for _, _, ids in second]
        assert seen == whole[step:]
