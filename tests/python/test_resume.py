"""state_dict and load_state_dict: a run that dies resumes as if it had not died."""

from __future__ import annotations

import hashlib
import json
import tarfile
from itertools import islice
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest

SETTINGS: dict[str, Any] = dict(batch_size=6, image_size=24, seed=5)


def digest(batch: foreload.Batch) -> str:
    """Return the SHA-256 of everything in a batch."""
    hashed = hashlib.sha256(str(batch.step).encode())
    for tensor in (batch.images, batch.labels, batch.sample_ids, batch.mask):
        hashed.update(np.ascontiguousarray(np.from_dlpack(tensor)).tobytes())
    return hashed.hexdigest()


def epoch(loader: foreload.ImageLoader) -> list[str]:
    return [digest(batch) for batch in loader]


@pytest.mark.parametrize("last_batch", ["drop", "pad", "partial"])
def test_resumed_at_every_step_the_rest_is_the_same(dataset: Path, last_batch: str) -> None:
    settings = dict(SETTINGS, batch_size=7, last_batch=last_batch)
    loader = foreload.ImageLoader(dataset, **settings)
    loader.set_epoch(3)
    whole, states = [], [loader.state_dict()]
    for batch in loader:
        whole.append(digest(batch))
        states.append(loader.state_dict())
    next_epoch = epoch(loader)
    assert next_epoch not in ([], whole)
    for step, state in enumerate(states):
        resumed = foreload.ImageLoader(dataset, **settings)
        resumed.load_state_dict(json.loads(json.dumps(state)))
        assert resumed.state_dict() == state
        if step < len(whole):
            assert resumed.epoch == 3
            assert epoch(resumed) == whole[step:]
        assert resumed.state_dict() == states[-1]
        # The next epoch is complete, and so is this epoch if it is run again.
        assert resumed.epoch == 4
        assert epoch(resumed) == next_epoch
        resumed.set_epoch(3)
        assert epoch(resumed) == whole


def test_a_state_is_small_and_says_what_it_is_of(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, rank=1, world_size=2, **SETTINGS)
    next(iter(loader))
    state = loader.state_dict()
    assert state == {
        "version": 1,
        "fingerprint": loader.fingerprint,
        "seed": 5,
        "epoch": 0,
        "position": 12,
        "global_batch": 12,
        "epoch_size": 60,
        "shuffle": True,
        "blocks": None,
        "shuffle_ranks": None,
        "last_batch": "drop",
        "selection": None,
        "repeats": 1,
        "mix": None,
        "errors": 0,
    }
    assert len(json.dumps(state)) < 440
    # States from before blocks could be shuffled do not mention blocks.
    old = {name: value for name, value in state.items() if name not in ("blocks", "shuffle_ranks")}
    loader.load_state_dict(old)
    assert loader.state_dict() == state


def test_what_is_read_ahead_does_not_count(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, keep=4, **SETTINGS)
    batches = iter(loader)
    kept = [next(batches) for _ in range(4)]
    assert loader.state_dict()["position"] == 24
    earlier = loader.state_dict(at_step=2)
    assert earlier["position"] == 12
    for step in (5, 100):
        with pytest.raises(foreload.ConfigError, match=r"config: at_step: is \d+, must be .* 0 to 4"):
            loader.state_dict(at_step=step)
    # The iteration was dropped; its position is still known.
    expected = [digest(batch) for batch in (*kept[2:], *batches)]
    del batches
    assert loader.state_dict()["position"] == 60
    loader.load_state_dict(earlier)
    with pytest.raises(foreload.ConfigError, match="no batch was yielded since step 2"):
        loader.state_dict(at_step=3)
    assert epoch(loader) == expected


def test_the_chosen_epoch_decides_whether_a_state_counts(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    next(iter(loader))
    state = loader.state_dict()
    resumed = foreload.ImageLoader(dataset, **SETTINGS)
    for chosen, length in [(0, 9), (1, 10)]:
        resumed.load_state_dict(state)
        resumed.set_epoch(chosen)
        assert len(epoch(resumed)) == length


def all_epochs(dataset: Path, number: int) -> list[list[str]]:
    """Check that each epoch equals the epoch that is requested by its number; return the epochs."""
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    return [[digest(batch) for batch in loader.batches(epoch)] for epoch in range(number)]


def test_epochs_go_on_by_themselves(dataset: Path) -> None:
    expected = all_epochs(dataset, 8)
    assert len({tuple(epoch) for epoch in expected}) == 8
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    assert [epoch(loader) for _ in range(3)] == expected[:3]
    # This holds after a `break`, too.
    for batch in loader:
        assert loader.epoch == 3
        assert digest(batch) == expected[3][0]
        break
    del batch
    assert loader.epoch == 4
    assert epoch(loader) == expected[4]
    # `set_epoch` may choose the same epoch again, at any time.
    for chosen in (4, 4, 1):
        loader.set_epoch(chosen)
        assert loader.epoch == chosen
        assert epoch(loader) == expected[chosen]
        assert loader.epoch == chosen + 1
    assert epoch(loader) == expected[2]
    # `batches` does not change the loader's epoch.
    assert [digest(batch) for batch in loader.batches(7)] == expected[7]
    assert epoch(loader) == expected[3]


def test_the_epoch_is_under_way_until_nothing_is_left_of_it(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    assert [loader.epoch for _ in loader] == [0] * 10
    assert loader.epoch == 1
    batches = iter(loader)
    next(batches)
    assert loader.epoch == 1
    loader.set_epoch(5)
    assert loader.epoch == 5
    # The property does not count an iteration by `batches`.
    assert len(list(batches)) == 9
    assert loader.epoch == 5
    assert loader.state_dict()["epoch"] == 5


def test_an_iteration_of_which_nothing_was_taken_does_not_count(dataset: Path) -> None:
    first, second = all_epochs(dataset, 2)
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    unused = iter(loader)
    used = iter(loader)
    taken = [digest(next(used))]
    with pytest.raises(foreload.UnavailableError, match="one epoch at a time"):
        next(unused)
    state = loader.state_dict()
    assert taken + [digest(batch) for batch in used] == first
    assert epoch(loader) == second
    loader.load_state_dict(state)
    for _ in range(2):
        iter(loader)
        assert loader.state_dict() == state
    assert epoch(loader) == first[1:]


@pytest.mark.parametrize("steps", [0, 1, 9, 10, 11, 20])
def test_the_loop_that_goes_on(dataset: Path, steps: int) -> None:
    """The loop of docs/resume.md, killed after this many steps, with and without `set_epoch` in it."""
    expected = [digest for epoch in all_epochs(dataset, 3) for digest in epoch]
    for says in (True, False):
        loader = foreload.ImageLoader(dataset, **SETTINGS)
        seen, state = [], loader.state_dict()
        for number in range(3):
            for batch in loader:
                if len(seen) == steps:
                    break
                seen.append((number, digest(batch)))
                state = loader.state_dict()
        resumed = foreload.ImageLoader(dataset, **SETTINGS)
        resumed.load_state_dict(state)
        for number in range(resumed.epoch, 3):
            assert resumed.epoch == number
            if says:
                resumed.set_epoch(number)
            seen += [(number, digest(batch)) for batch in resumed]
        assert seen == [(at // 10, digest) for at, digest in enumerate(expected)]


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_evaluation_is_the_same_in_every_epoch(own_dataset: Path) -> None:
    """The substitute of a broken image is the same, too."""
    for path in sorted(own_dataset.glob("*/*.jpg"))[::7]:
        path.write_bytes(b"no JPEG " * (path.stat().st_size // 8))
    loader = foreload.ImageLoader(own_dataset, train=False, on_error="skip", **SETTINGS)
    first = epoch(loader)
    assert len(first) == 10
    assert [epoch(loader) for _ in range(3)] == [first] * 3
    assert loader.epoch == 4


def test_the_same_samples_on_any_number_of_ranks(dataset: Path) -> None:
    def run(world: int, state: dict | None, steps: int) -> tuple[list[list[bytes]], dict]:
        """Return images and ids of each global batch, and the state after this many steps."""
        ranks = []
        for rank in range(world):
            loader = foreload.ImageLoader(
                dataset, **dict(SETTINGS, batch_size=12 // world, rank=rank, world_size=world)
            )
            if state is not None:
                loader.load_state_dict(state)
            ranks.append((list(islice(loader, steps)), loader.state_dict()))
        assert all(state == ranks[0][1] for _, state in ranks)
        images = [
            [image.tobytes() for batches, _ in ranks for image in np.from_dlpack(batches[step].images)]
            for step in range(len(ranks[0][0]))
        ]
        return images, ranks[0][1]

    whole, _ = run(1, None, 5)
    parts, state = [], None
    for world, steps in [(1, 1), (2, 1), (4, 2), (1, 5)]:
        batches, state = run(world, state, steps)
        parts += batches
    assert parts == whole


def test_a_world_that_does_not_fit_is_refused(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, rank=0, world_size=2, **SETTINGS)
    next(iter(loader))
    state = loader.state_dict()
    for batch_size, world, words in [
        (6, 1, "batch_size: .* a global batch of 6, but the epoch was started with 12: set batch_size=12"),
        (3, 5, "which 5 ranks cannot divide evenly: use one of these world sizes: 1, 2, 3, 4, 6, 12"),
    ]:
        other = foreload.ImageLoader(
            dataset, **dict(SETTINGS, batch_size=batch_size, rank=0, world_size=world)
        )
        other.load_state_dict(state)
        with pytest.raises(foreload.ConfigError, match=words):
            iter(other)


def test_another_order_is_refused(dataset: Path, own_dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    state = loader.state_dict()
    (own_dataset / "class_0" / "another.jpg").write_bytes((own_dataset / "class_0" / "000.jpg").read_bytes())
    for other, words in [
        (foreload.ImageLoader(dataset, **dict(SETTINGS, seed=6)), "seed was 5 and is 6"),
        (foreload.ImageLoader(dataset, shuffle=False, **SETTINGS), "shuffle was true and is false"),
        (foreload.ImageLoader(dataset, last_batch="pad", **SETTINGS), "last_batch was drop and is pad"),
        (foreload.ImageLoader(own_dataset, **SETTINGS), "the dataset's fingerprint was"),
    ]:
        with pytest.raises(foreload.ConfigError, match=words):
            other.load_state_dict(state)
    for broken in ({}, {**state, "version": 2}, {**state, "position": 61}, "state", [1]):
        with pytest.raises(foreload.ConfigError, match="config: state: "):
            loader.load_state_dict(broken)
    # No part of the refused state was used.
    assert loader.state_dict() == state


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_errors_spent_stay_spent(own_dataset: Path) -> None:
    broken = sorted(own_dataset.glob("*/*.jpg"))[::5]
    for path in broken:
        path.write_bytes(b"no JPEG " * (path.stat().st_size // 8))
    settings = dict(SETTINGS, on_error="skip", max_errors=len(broken) - 1)
    loader = foreload.ImageLoader(own_dataset, **settings)
    states, batches = [], iter(loader)
    too_many = rf"{len(broken)} samples failed"
    with pytest.raises(foreload.TooManyErrorsError, match=too_many):
        states.extend(loader.state_dict() for _ in batches)
    assert states[-1]["errors"] > states[0]["errors"]
    for state in states:
        resumed = foreload.ImageLoader(own_dataset, **settings)
        resumed.load_state_dict(state)
        with pytest.raises(foreload.TooManyErrorsError, match=too_many):
            epoch(resumed)
    # Errors of later steps do not count.
    assert [loader.state_dict(at_step=step + 1) for step in range(len(states))] == states


def test_an_order_by_blocks_goes_on_like_any_other(dataset: Path, tmp_path: Path) -> None:
    for shard in range(3):
        with tarfile.open(tmp_path / f"{shard}.tar.gz", "w:gz") as archive:
            for number, path in enumerate(sorted(dataset.rglob("*.jpg"))[shard * 9 : shard * 9 + 9]):
                archive.add(path, f"{shard}-{number}.jpg")
    settings = dict(SETTINGS, shuffle="blocks", fields=["image"])
    loader = foreload.ImageLoader(tmp_path, **settings)
    ids, states = [], []
    batches = iter(loader)
    for batch in batches:
        ids.append(np.from_dlpack(batch.sample_ids).tolist())
        states.append(loader.state_dict())
    assert len({number for batch in ids for number in batch}) == 24
    assert batches.stats()["blocks_unpacked"] == 3
    resumed = foreload.ImageLoader(tmp_path, **settings)
    resumed.load_state_dict(json.loads(json.dumps(states[1])))
    assert [np.from_dlpack(batch.sample_ids).tolist() for batch in resumed] == ids[2:]
    assert isinstance(states[1]["blocks"], str)
    assert states[1]["shuffle_ranks"] == 1
    with pytest.raises(foreload.ConfigError, match=r"blocks was .* and is None"):
        foreload.ImageLoader(tmp_path, **dict(settings, shuffle=True)).load_state_dict(states[1])
    with pytest.raises(foreload.ConfigError, match='shuffle: is "near", must be True, False or blocks'):
        foreload.ImageLoader(tmp_path, **dict(settings, shuffle="near"))
