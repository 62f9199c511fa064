"""ImageDataset with a real torch."""

from __future__ import annotations

import tarfile
from pathlib import Path

import foreload
import numpy as np
import pytest
import shards
from conftest import need, paths

with need("torch", required_by="TORCH"):
    import torch
    from foreload import transforms as T
    from foreload.torch import Dataset, ImageDataset
    from torch.utils.data import DataLoader


def test_batches_of_images_and_labels(dataset: Path) -> None:
    torch_side = ImageDataset(dataset, batch_size=12, image_size=32, seed=1)
    numpy_side = foreload.ImageLoader(dataset, batch_size=12, image_size=32, seed=1)
    assert len(torch_side) == 5
    count = 0
    for (images, labels), batch in zip(torch_side, numpy_side, strict=True):
        assert images.dtype == torch.float32
        assert images.shape == (12, 3, 32, 32)
        assert labels.dtype == torch.int64
        assert np.array_equal(np.array(images.tolist(), dtype=np.float32), np.from_dlpack(batch.images))
        assert labels.tolist() == np.from_dlpack(batch.labels).tolist()
        count += 1
    assert count == 5


def test_it_shows_what_it_was_made_with(dataset: Path) -> None:
    shown = repr(ImageDataset(dataset, batch_size=12, image_size=(32, 48), dtype=torch.float16))
    assert shown.startswith(
        f"ImageDataset({str(dataset)!r}, batch_size=12, image_size=(32, 48), dtype=torch.float16"
    )


def test_all_images_of_a_sample_come_and_what_is_done_to_each_is_shown(tmp_path: Path) -> None:
    root = shards.make(tmp_path, 16, 1, shards.pair)
    steps = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToDtype("uint8")]
    each = dict.fromkeys(("left.jpg", "right.jpg", "depth.png", "small.jpg", "seg.png"), steps)
    settings = {"batch_size": 8, "transforms": each, "device": "cpu"}
    settings["fields"] = [*list(each)[:4], foreload.fields.Image("seg.png")]
    dataset = ImageDataset(root, **settings)
    # The text is not truncated.
    assert f"transforms={each!r}" in repr(dataset)
    for batch, expected in zip(dataset, foreload.ImageLoader(root, **settings), strict=True):
        assert batch.keys() == each.keys()
        for name, tensor in batch.items():
            assert np.array_equal(np.from_dlpack(tensor), np.from_dlpack(expected[name]))
    sized = ImageDataset(
        root, batch_size=8, fields=["left.jpg"], transforms=[T.Resize(20)], memory_format=torch.channels_last
    )
    assert all(image.shape[0] == 3 and min(image.shape[1:]) == 20 for image in next(iter(sized))["left.jpg"])


def test_what_is_absent_is_told_from_zeros(tmp_path: Path) -> None:
    def without(number: int) -> shards.Members:
        gone = {0: "right.jpg", 1: "seg.png", 2: "note.txt"}.get(number % 4)
        members = {**shards.pair(number), "note.txt": b"here"}
        return {name: data for name, data in members.items() if name != gone}

    root = shards.make(tmp_path, 16, 1, without)
    optional = {
        "right.jpg": foreload.fields.Image("right.jpg", optional=True),
        "seg.png": foreload.fields.Mask("seg.png", optional=True),
        "note.txt": foreload.fields.Text("note.txt", optional=True),
    }
    settings = {
        "batch_size": 8,
        "image_size": 16,
        "device": "cpu",
        "fields": ["left.jpg", *optional.values()],
    }
    for batch in ImageDataset(root, with_ids=True, **settings):
        assert set(batch) == {"left.jpg", *optional, *(f"{name}.present" for name in optional), "sample_ids"}
        for gone, name in enumerate(optional):
            present = batch[f"{name}.present"]
            assert present.dtype == torch.bool
            assert present.tolist() == [number % 4 != gone for number in batch["sample_ids"].tolist()]


def test_fields_without_images_are_dicts_of_tensors(tmp_path: Path) -> None:
    def made(number: int) -> shards.Members:
        return {"npy": shards.npy(np.full((2, 3), number, np.float32)), "txt": b"%d" % number, "cls": b"1"}

    root = shards.make(tmp_path, 8, 1, made)
    x, caption = foreload.fields.Array("npy", name="x"), foreload.fields.Text("txt", optional=True)
    dataset = Dataset(root, batch_size=4, fields=[x, caption], with_mask=True, with_ids=True, shuffle=False)
    assert repr(dataset).startswith(f"Dataset({str(root)!r}, batch_size=4, shuffle=False, train=True")
    assert (len(dataset), dataset.epoch) == (2, 0)
    seen = []
    for batch in DataLoader(dataset, batch_size=None, num_workers=0):
        assert set(batch) == {"x", "txt", "txt.present", "mask", "sample_ids"}
        numbers = batch["sample_ids"].tolist()
        assert torch.equal(
            batch["x"], torch.tensor(numbers, dtype=torch.float32)[:, None, None].expand(4, 2, 3)
        )
        assert batch["txt"] == [str(number) for number in numbers]
        assert batch["mask"].all()
        assert batch["txt.present"].all()
        seen += numbers
    assert seen == list(range(8))
    state = dataset.state_dict()
    dataset.load_state_dict(state)
    assert dataset.epoch == 1
    with pytest.raises(foreload.ConfigError, match=r"image_size: .*a Loader does not have"):
        Dataset(root, image_size=8)
    with pytest.raises(foreload.ConfigError, match="batch_size: Dataset yields whole batches"):
        iter(DataLoader(dataset, batch_size=2)).__next__()


@pytest.mark.parametrize("name", ["mask", "sample_ids", "left.jpg.present"])
def test_a_field_is_not_overwritten_by_what_is_added(tmp_path: Path, name: str) -> None:
    def made(number: int) -> shards.Members:
        return {"left.jpg": shards.pair(number)["left.jpg"], name: b"%d" % number}

    root = shards.make(tmp_path, 4, 1, made)
    image = foreload.fields.Image("left.jpg", optional=name == "left.jpg.present")
    settings = {"batch_size": 4, "image_size": 16, "fields": [image, foreload.fields.Integer(name)]}
    with pytest.raises(
        foreload.ConfigError, match=f"adds the key '{name}'.*fields= has a field of that name"
    ):
        ImageDataset(root, with_mask=True, with_ids=True, **settings)
    if name != "left.jpg.present":
        (batch,) = ImageDataset(root, **settings)
        assert sorted(batch[name].tolist()) == [0, 1, 2, 3]


def test_under_a_data_loader_it_is_the_same(dataset: Path) -> None:
    alone = ImageDataset(dataset, batch_size=12, image_size=32)
    wrapped = DataLoader(ImageDataset(dataset, batch_size=12, image_size=32), batch_size=None, num_workers=0)
    assert len(wrapped) == len(alone)
    for epoch in range(2):
        alone.set_epoch(epoch)
        wrapped.dataset.set_epoch(epoch)
        for (a, b), (c, d) in zip(alone, wrapped, strict=True):
            assert torch.equal(a, c)
            assert torch.equal(b, d)


def test_epochs_go_on_by_themselves(dataset: Path) -> None:
    settings = {"batch_size": 12, "image_size": 32, "with_ids": True}
    loader = foreload.ImageLoader(dataset, batch_size=12, image_size=32)
    expected = [
        [np.from_dlpack(batch.sample_ids).tolist() for batch in loader.batches(epoch)] for epoch in range(4)
    ]

    def ids(batches: ImageDataset | DataLoader) -> list[list[int]]:
        return [ids.tolist() for _, _, ids in batches]

    alone = ImageDataset(dataset, **settings)
    wrapped = DataLoader(ImageDataset(dataset, **settings), batch_size=None, num_workers=0)
    for batches in (alone, wrapped):
        assert [ids(batches), ids(batches)] == expected[:2]
        next(iter(batches))
        assert ids(batches) == expected[3]


@pytest.mark.parametrize("batch_size", [1, 2])
def test_batches_of_batches_are_refused(dataset: Path, batch_size: int) -> None:
    batches = ImageDataset(dataset, batch_size=12, image_size=32)
    with pytest.raises(
        foreload.ConfigError, match=r"config: batch_size: .* batch_size=None and num_workers=0"
    ):
        next(iter(DataLoader(batches, batch_size=batch_size)))
    # A user who passes `collate_fn` knows the result.
    pairs = DataLoader(batches, batch_size=batch_size, collate_fn=list)
    assert [images.shape for images, _ in next(iter(pairs))] == [(12, 3, 32, 32)] * batch_size


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_what_image_folder_has(own_dataset: Path) -> None:
    (own_dataset / "class_1" / "020.jpg").write_bytes(b"no JPEG")
    batches = ImageDataset(own_dataset, batch_size=12, image_size=32, on_error="skip", with_ids=True)
    assert batches.classes == ["class_0", "class_1", "class_2"]
    assert batches.class_to_idx == {"class_0": 0, "class_1": 1, "class_2": 2}
    assert batches.targets.dtype == np.int64
    assert batches.targets.tolist() == [0] * 20 + [1] * 20 + [2] * 20
    assert batches.errors == []
    for _, labels, ids in batches:
        assert batches.targets[ids.tolist()].tolist() == labels.tolist()
    assert [error["sample_id"] for error in batches.errors] == [20]


def test_the_counters_of_the_latest_iteration(dataset: Path, tmp_path: Path) -> None:
    batches = ImageDataset(dataset, batch_size=12, image_size=32, cache=foreload.Directory(tmp_path, "10MB"))
    assert batches.stats() == {}
    for epoch in range(2):
        assert len(list(batches)) == 5
        stats = batches.stats()
        assert stats["decoded_region"] == 60
        assert stats["cache"]["source_reads"] + stats["cache"]["tiers"]["nvme"]["hits"] == 60, epoch
    for _ in batches:
        break
    # A loop that was left early is over, and its counters stay.
    assert batches.epoch == 3
    assert 12 <= batches.stats()["decoded_region"] <= 60


def test_worker_processes_are_refused(dataset: Path) -> None:
    loader = DataLoader(ImageDataset(dataset, batch_size=12, image_size=32), batch_size=None, num_workers=1)
    with pytest.raises(Exception, match="num_workers=0"):
        next(iter(loader))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.uint8])
def test_types(dataset: Path, dtype: torch.dtype) -> None:
    images, _ = next(iter(ImageDataset(dataset, batch_size=12, image_size=32, dtype=dtype)))
    assert images.dtype == dtype
    assert images.float().std() > 0.1


def test_channels_last(dataset: Path) -> None:
    settings = dict(batch_size=12, image_size=32)
    plain, _ = next(iter(ImageDataset(dataset, **settings)))
    images, _ = next(iter(ImageDataset(dataset, memory_format=torch.channels_last, **settings)))
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images, plain)


def test_the_mask_tells_padding(dataset: Path) -> None:
    batches = ImageDataset(dataset, batch_size=16, image_size=32, last_batch="pad", with_mask=True)
    masks = [mask for _, _, mask in batches]
    assert all(mask.dtype == torch.bool for mask in masks)
    assert [int(mask.sum()) for mask in masks] == [16, 16, 16, 12]


def test_images_alone_where_there_are_no_labels(dataset: Path, tmp_path: Path) -> None:
    settings = {"batch_size": 12, "image_size": 32, "last_batch": "partial"}
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for path in sorted(dataset.glob("*/*.jpg")):
            tar.add(path, arcname=path.name)
    with pytest.raises(foreload.ConfigError, match=r"with_labels: needs labels.*with_labels=False"):
        ImageDataset(tmp_path, **settings)
    alone = ImageDataset(tmp_path, with_labels=False, **settings)
    assert "with_labels=False" in repr(alone)
    images = next(iter(DataLoader(alone, batch_size=None)))
    assert images.shape == (12, 3, 32, 32)
    images, mask, ids = next(
        iter(ImageDataset(tmp_path, with_labels=False, with_mask=True, with_ids=True, **settings))
    )
    assert images.shape == (12, 3, 32, 32)
    assert mask.all()
    assert ids.dtype == torch.int64
    # Labels can be omitted even if a dataset has some.
    assert next(iter(ImageDataset(dataset, with_labels=False, **settings))).shape == (12, 3, 32, 32)


def test_a_device_as_torch_has_it(dataset: Path) -> None:
    for device in (torch.device("cpu"), torch.device("cpu:0")):
        assert ImageDataset(dataset, device=device).loader.device == "cpu"


def test_an_iterator_begins_nothing(dataset: Path) -> None:
    """Frameworks make an iterator before they choose the epoch or load a state."""
    settings = {"batch_size": 12, "image_size": 32, "with_ids": True}
    batches = ImageDataset(dataset, **settings)
    early = iter(batches)
    assert batches.state_dict()["position"] == 0
    batches.load_state_dict({**batches.state_dict(), "epoch": 3, "position": 36})
    iter(batches)
    expected = [ids.tolist() for _, _, ids in early]
    batches.set_epoch(3)
    assert expected == [ids.tolist() for _, _, ids in batches][3:]


def test_an_unknown_memory_format_is_refused(dataset: Path) -> None:
    with pytest.raises(foreload.ConfigError, match="memory_format"):
        ImageDataset(dataset, memory_format=torch.preserve_format)


def test_a_kept_tensor_stays_as_it_was(dataset: Path) -> None:
    kept = [(images, images.clone()) for images, _ in ImageDataset(dataset, batch_size=4, image_size=32)]
    assert len(kept) == 15
    assert all(torch.equal(images, clone) for images, clone in kept)


def test_files_come_as_tensors_of_bytes(dataset: Path) -> None:
    settings = {"batch_size": 12, "decoded": False, "shuffle": False}
    files, labels, ids = next(iter(ImageDataset(dataset, with_ids=True, **settings)))
    assert (labels.tolist(), ids.tolist()) == ([0] * 12, list(range(12)))
    assert [bytes(file.tolist()) for file in files] == [path.read_bytes() for path in paths(dataset)[:12]]
    (alone,) = next(iter(ImageDataset(dataset, with_labels=False, **{**settings, "batch_size": 1})))
    assert torch.equal(alone, files[0])


def test_evaluation_on_several_ranks_has_no_empty_batch(dataset: Path) -> None:
    settings = {"batch_size": 8, "image_size": 16, "train": False, "indices": range(25), "world_size": 3}
    seen = []
    for rank in range(3):
        made = ImageDataset(dataset, rank=rank, with_mask=True, with_ids=True, **settings)
        assert "train=False" in repr(made)
        assert "shuffle=False, last_batch='partial'" in repr(made)
        with pytest.warns(foreload.Warning, match="with_mask=True"):
            batches = list(made)
        assert all(torch.isfinite(images.mean()) for images, *_ in batches)
        seen += [id for _, _, mask, ids in batches for id in ids[mask].tolist()]
    assert sorted(seen) == list(range(25))


def test_a_training_step(dataset: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=4), torch.nn.Flatten(), torch.nn.LazyLinear(3)
    )
    batches = ImageDataset(dataset, batch_size=12, image_size=32)
    images, _ = next(iter(batches))
    model(images)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in batches:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert torch.isfinite(loss)
