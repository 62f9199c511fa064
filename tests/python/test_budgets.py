"""Budgets: each batch is a bin of samples whose costs together are at most `batch_tokens`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.filterwarnings("ignore:bins.*do not fill the last step")

SAMPLES = 150
BUDGET = 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """Return a dataset of small images with the table `lengths.csv` next to it, and the lengths by sample."""
    base, rng = tmp_path_factory.mktemp("budgets"), np.random.default_rng(3)
    lengths = np.clip(rng.lognormal(3, 0.8, SAMPLES), 1, BUDGET).astype(int).tolist()
    rows = ["file_name,length,more"]
    for number, length in enumerate(lengths):
        path = base / "data" / "a" / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
        rows.append(f"a/{number:03}.png,{length},{number % 3}")
    (base / "lengths.csv").write_text("\n".join(rows))
    return base / "data", lengths


def loader(folder: tuple[Path, list[int]], **settings: Any) -> foreload.Loader:
    usual: dict[str, Any] = dict(
        fields=["image", "length"],
        transforms=[foreload.transforms.CenterCrop(8)],
        cost="length",
        batch_tokens=BUDGET,
        seed=5,
        device="cpu",
    )
    return foreload.Loader(folder[0], labels=folder[0].parent / "lengths.csv", **{**usual, **settings})


def bins(of: Any) -> list[tuple[list[int], bool]]:
    """Return the samples of each batch, and whether they are valid."""
    found = []
    for batch in of:
        ids, mask = (np.from_dlpack(tensor) for tensor in (batch.sample_ids, batch.mask))
        images = np.from_dlpack(batch["image"])
        assert images.shape[0] == len(ids) == len(batch)
        assert images[:, 0, 0, 0].tolist() == ids.tolist()
        assert len(set(mask.tolist())) == 1
        found.append((ids.tolist(), bool(mask[0])))
    return found


def test_batches_keep_to_the_budget_and_samples_come_once(folder: tuple[Path, list[int]]) -> None:
    made = loader(folder, last_batch="pad", bins=4)
    packing = made.packing()
    epochs = [bins(made) for _ in range(2)]
    for epoch, found in enumerate(epochs):
        assert len(found) % 4 == 0
        for ids, _ in found:
            assert sum(folder[1][number] for number in ids) <= BUDGET
        assert sorted(number for ids, valid in found if valid for number in ids) == list(range(SAMPLES))
        full = [ids for ids, valid in found if valid]
        assert [ids for ids, valid in found if not valid] == full[: len(found) - len(full)]
        packing = made.packing(epoch)
        assert packing["bins"] == len(full)
        assert packing["padding_bins"] == len(found) - len(full)
        assert packing["fullness"] == pytest.approx(sum(folder[1]) / BUDGET / len(full))
        assert packing["fullness"] > 0.9
        assert packing["samples"] == SAMPLES
        assert packing["most_samples"] >= max(map(len, full))
        assert made.batch_size == packing["most_samples"]
        made.set_epoch(epoch)
        assert len(made) == len(found)
    assert epochs[0] != epochs[1]
    assert bins(loader(folder, last_batch="pad", bins=4)) == epochs[0]
    cached = loader(folder, last_batch="pad", bins=4, cache=foreload.Ram("20MB"))
    assert [bins(cached), bins(cached)] == epochs
    in_order = bins(loader(folder, shuffle=False, last_batch="partial"))
    assert in_order[0][0][0] == 0
    assert sum(len(ids) for ids, _ in in_order) == SAMPLES


def test_a_cost_is_a_sum_of_columns(folder: tuple[Path, list[int]]) -> None:
    with pytest.warns(foreload.Warning, match="samples cost more than batch_tokens"):
        made = loader(folder, cost=["length", "more"], over_budget="skip", last_batch="partial")
    found = bins(made)
    cost = [length + number % 3 for number, length in enumerate(folder[1])]
    assert max(sum(cost[number] for number in ids) for ids, _ in found) == BUDGET
    assert sorted(number for ids, _ in found for number in ids) == [
        number for number in range(SAMPLES) if cost[number] <= BUDGET
    ]


@pytest.mark.parametrize("last_batch", ["drop", "pad", "partial"])
def test_resumed_at_every_step_the_rest_is_the_same(folder: tuple[Path, list[int]], last_batch: str) -> None:
    settings = dict(last_batch=last_batch, bins=4)
    whole = bins(loader(folder, **settings))
    first = loader(folder, **settings)
    for number, _ in enumerate(first, 1):
        state = json.loads(json.dumps(first.state_dict()))
        resumed = loader(folder, **settings)
        resumed.load_state_dict(state)
        if number < len(whole):
            assert bins(resumed) == whole[number:]
        else:
            assert resumed.epoch == 1
    with pytest.raises(foreload.ConfigError, match=r"batch_tokens and the costs was .* and is"):
        loader(folder, **settings, batch_tokens=BUDGET + 1).load_state_dict(state)


def test_an_epoch_continues_on_other_numbers_of_ranks(folder: tuple[Path, list[int]]) -> None:
    def ranks(world: int, state: Any = None, steps: int | None = None) -> tuple[list[Any], Any]:
        """Return the bins of all ranks in the order of the epoch, and the state after them."""
        of_ranks = []
        for rank in range(world):
            made = loader(folder, rank=rank, world_size=world, bins=8, last_batch="pad")
            if state is not None:
                made.load_state_dict(state)
            of_ranks.append(bins(batch for _, batch in zip(range(steps or 999), made, strict=False)))
        assert len({len(of_rank) for of_rank in of_ranks}) == 1
        return [of_bin for step in zip(*of_ranks, strict=True) for of_bin in step], made.state_dict()

    whole, _ = ranks(1)
    assert ranks(8)[0] == whole
    begun, state = ranks(8, steps=2)
    more, later = ranks(4, state, steps=3)
    rest, _ = ranks(2, later)
    assert begun + more + rest == whole
    begun, within = ranks(2, steps=3)
    with pytest.raises(foreload.ConfigError, match=r"within a step of 8 bins, after 6 bins .* 1, 2, 3, 6"):
        ranks(4, within)
    made = loader(folder, bins=4, last_batch="pad")
    made.load_state_dict(state)
    with pytest.raises(foreload.ConfigError, match="set bins=8"):
        iter(made)


@pytest.mark.filterwarnings("ignore:.*another sample takes its place", "ignore:.*failed")
def test_a_substitute_costs_no_more(folder: tuple[Path, list[int]], tmp_path: Path) -> None:
    root, lengths = folder
    damaged = {number for number in range(60) if lengths[number] > sorted(lengths)[5]}
    (tmp_path / "data" / "a").mkdir(parents=True)
    for number, path in enumerate(sorted(root.glob("a/*.png"))):
        end = 40 if number in damaged else None
        (tmp_path / "data" / "a" / path.name).write_bytes(path.read_bytes()[:end])
    (tmp_path / "lengths.csv").write_text((root.parent / "lengths.csv").read_text())
    found = bins(loader((tmp_path / "data", lengths), on_error="skip", last_batch="partial"))
    assert all(sum(lengths[number] for number in ids) <= BUDGET for ids, _ in found)
    assert sum(len(ids) for ids, _ in found) == SAMPLES
    assert not damaged.intersection(number for ids, _ in found for number in ids)


def test_torch_gives_the_same_batches(folder: tuple[Path, list[int]]) -> None:
    pytest.importorskip("torch")
    from foreload.torch import Dataset

    labels = folder[0].parent / "lengths.csv"
    asked = dict(fields=["image", "length"], cost="length", batch_tokens=BUDGET, seed=5, device="cpu")
    found = [batch["length"].tolist() for batch in Dataset(folder[0], labels=labels, **asked)]
    assert found == [[folder[1][number] for number in ids] for ids, _ in bins(loader(folder))]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cost": None}, "cost: is needed with batch_tokens"),
        ({"cost": "width"}, "cost: names 'width'".replace("'", '"')),
        ({"cost": ["length", "length"]}, "cost: is"),
        ({"batch_tokens": None}, "cost: needs batch_tokens"),
        ({"batch_tokens": None, "cost": None, "bins": 2}, "bins: needs batch_tokens"),
        ({"batch_tokens": 20}, "samples cost more than batch_tokens, which is 20; the first is sample"),
        ({"batch_size": 8}, "batch_size: cannot be used with batch_tokens"),
        ({"device": "cuda"}, 'use device="cpu"'),
        ({"buckets": [(8, 8)]}, "buckets: cannot be used with batch_tokens"),
        ({"weights": "balanced"}, "weights: cannot be used with batch_tokens"),
        ({"ratios": [1.0]}, "ratios: cannot be used with batch_tokens"),
        ({"repeats": 2}, "repeats: cannot be used with batch_tokens"),
        ({"epoch_size": 9}, "epoch_size: cannot be used with batch_tokens"),
        ({"shuffle": "blocks"}, 'shuffle: is "blocks"'),
        ({"mix": [foreload.transforms.MixUp()]}, "mix: cannot be used with batch_tokens"),
        ({"shared": True}, "shared: cannot be used with batch_tokens"),
        ({"bins": 3, "world_size": 2, "rank": 0}, "bins: is 3, but 2 ranks divide"),
        ({"bins": 4096}, "bins: is 4096, but an epoch fills only"),
    ],
    ids=str,
)
def test_refusals(folder: tuple[Path, list[int]], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(foreload.ConfigError) as refused:
        next(iter(loader(folder, **settings)))
    assert message in str(refused.value)


def test_samples_that_are_left_out_are_reported(folder: tuple[Path, list[int]]) -> None:
    fitting = [number for number, length in enumerate(folder[1]) if length <= 40]
    with pytest.warns(foreload.Warning, match=rf"{SAMPLES - len(fitting)} of {SAMPLES} samples cost more"):
        made = loader(folder, batch_tokens=40, over_budget="skip", last_batch="partial")
    found = bins(made)
    assert sorted(number for ids, _ in found for number in ids) == fitting
    assert made.packing()["over_budget"] == SAMPLES - len(fitting)
    with pytest.warns(foreload.Warning, match=r"do not fill the last step after \d+ bins"):
        list(loader(folder, bins=16))
