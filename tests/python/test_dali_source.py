"""ImageSource alone: it is called as DALI calls it, and its outputs are checked. DALI is not needed."""

from __future__ import annotations

import ctypes
import hashlib
import json
import multiprocessing
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import foreload
import numpy as np
import pytest
import shards
from conftest import paths
from foreload import transforms as T
from foreload.dali import ImageSource

SETTINGS = {"batch_size": 8, "image_size": 32, "seed": 3, "last_batch": "partial", "threads": 2}
STEPS = 8


def info(epoch: int, step: int) -> SimpleNamespace:
    """An object like DALI's BatchInfo."""
    return SimpleNamespace(epoch_idx=epoch, iteration=step)


def digest(outputs: tuple[Any, ...]) -> str:
    """Return the SHA-256 of everything in a batch."""
    sha = hashlib.sha256()
    for output in outputs:
        for array in output if isinstance(output, list) else [output]:
            sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


class Counting:
    """A loader that counts started epochs."""

    def __init__(self, loader: foreload.ImageLoader) -> None:
        self.loader = loader
        self.begun: list[tuple[int, int]] = []

    def batches(self, epoch: int, first_step: int) -> foreload.Batches:
        """Start an epoch, and count it."""
        self.begun.append((epoch, first_step))
        return self.loader.batches(epoch, first_step)

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def counting(source: ImageSource) -> list[tuple[int, int]]:
    """Return the epochs that `source` starts from here on, by number and first step. @@t 106 A batch that is kept is
    returned again. @@t 112 This batch is not kept any more.
    """
    source.loader = Counting(source.loader)
    return source.loader.begun


@pytest.mark.parametrize("decoded", [True, False])
def test_it_gives_what_the_loader_gives(dataset: Path, decoded: bool) -> None:
    source = ImageSource(dataset, decoded=decoded, with_mask=True, **SETTINGS)
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    files = [path.read_bytes() for path in paths(dataset)]
    assert len(source) == len(loader) == STEPS
    for epoch in range(2):
        for step, batch in enumerate(loader.batches(epoch)):
            images, labels, mask = source(info(epoch, step))
            ids = np.from_dlpack(batch.sample_ids)
            if decoded:
                assert images.dtype == np.float32
                assert np.array_equal(images, np.from_dlpack(batch.images))
            else:
                assert [image.tobytes() for image in images] == [files[sample] for sample in ids]
                assert all(image.dtype == np.uint8 and image.ndim == 1 for image in images)
            assert labels.dtype == np.int64
            assert np.array_equal(labels, ids // 20)
            assert mask.dtype == np.uint8
            assert mask.all()
        assert step == STEPS - 1


@pytest.mark.parametrize("decoded", [True, False])
def test_it_is_a_function_of_epoch_and_step(dataset: Path, decoded: bool) -> None:
    source = ImageSource(dataset, decoded=decoded, **SETTINGS)
    expected = {(e, s): digest(source(info(e, s))) for e in range(3) for s in range(STEPS)}
    assert len(set(expected.values())) == 3 * STEPS
    seed = 11
    rng = np.random.default_rng(seed)
    for _ in range(60):
        epoch, step = int(rng.integers(3)), int(rng.integers(STEPS))
        assert digest(source(info(epoch, step))) == expected[epoch, step], f"seed {seed}, {epoch}, {step}"


def test_steps_in_order_come_from_one_pass(dataset: Path) -> None:
    source = ImageSource(dataset, **SETTINGS)
    begun = counting(source)
    for epoch in range(2):
        for step in range(STEPS):
            source(info(epoch, step))
            source(info(epoch, step))  # A batch that is kept is given again.
        for _ in range(3):
            with pytest.raises(StopIteration):
                source(info(epoch, STEPS))
    assert begun == [(0, 0), (1, 0)]
    source(info(1, 5))
    source(info(1, 3))  # This one is no longer kept.
    source(info(1, 4))
    assert begun[2:] == [(1, 3)]


@pytest.mark.parametrize("decoded", [True, False])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_what_dali_looks_at_stays_as_it_was(dataset: Path, depth: int, decoded: bool) -> None:
    """Batches are recorded by address, so that the test does not keep their memory."""
    source = ImageSource(dataset, decoded=decoded, prefetch_queue_depth=depth, **SETTINGS)
    fed: list[list[tuple[int, int, bytes]]] = []
    for epoch in range(4):
        for step in range(STEPS):
            images, labels = source(info(epoch, step))
            arrays = [labels, *([images] if decoded else images)]
            fed.append([(a.ctypes.data, a.nbytes, hashlib.sha256(a.tobytes()).digest()) for a in arrays])
            del images, labels, arrays
            for memory in fed[-depth - 2 :]:
                for address, size, expected in memory:
                    assert hashlib.sha256(ctypes.string_at(address, size)).digest() == expected
    # All memory is reused, so nothing leaks.
    buffers = {memory[0][0] for memory in fed}
    assert depth + 2 <= len(buffers) < 2 * STEPS


def test_the_end_comes_again_and_again(dataset: Path) -> None:
    source = ImageSource(dataset, **SETTINGS)
    for step in (STEPS, STEPS + 1, 1000, STEPS):
        with pytest.raises(StopIteration):
            source(info(0, step))
    assert len(source(info(0, STEPS - 1))[1]) == 60 - 7 * 8


def test_an_error_comes_again_too(own_dataset: Path) -> None:
    paths(own_dataset)[13].write_bytes(b"no image")
    for decoded in (True, False):
        source = ImageSource(own_dataset, decoded=decoded, rebuild_index=True, **SETTINGS)
        bad = [step for step in range(STEPS) if 13 in np.from_dlpack(_ids(own_dataset, step)).tolist()]
        assert len(bad) == 1
        for _ in range(2):
            with pytest.raises(foreload.SampleError, match="sample 13"):
                source(info(0, bad[0]))


def _ids(dataset: Path, step: int) -> foreload.Tensor:
    skipping = foreload.ImageLoader(dataset, **{**SETTINGS, "on_error": "zero"})
    return next(skipping.batches(0, step)).sample_ids


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_masks(own_dataset: Path) -> None:
    paths(own_dataset)[13].write_bytes(b"no image")
    settings = {**SETTINGS, "last_batch": "pad", "on_error": "zero", "rebuild_index": True}
    source = ImageSource(own_dataset, with_mask=True, **settings)
    masks = np.concatenate([source(info(0, step))[2] for step in range(STEPS)])
    assert len(masks) == 64
    assert masks.sum() == 59


def test_ranks_share_the_batches(dataset: Path) -> None:
    whole = ImageSource(dataset, decoded=False, **{**SETTINGS, "batch_size": 16})
    ranks = [ImageSource(dataset, decoded=False, rank=r, world_size=2, **SETTINGS) for r in range(2)]
    assert [len(source) for source in ranks] == [4, 4]
    for step in range(3):
        parts = [source(info(1, step)) for source in ranks]
        assert digest(whole(info(1, step))) == digest(
            (parts[0][0] + parts[1][0], np.concatenate([parts[0][1], parts[1][1]]))
        )


def test_the_last_batch_of_no_rank_is_empty(dataset: Path) -> None:
    def last(rank: int, **settings: Any) -> ImageSource:
        return ImageSource(dataset, rank=rank, world_size=7, **{**SETTINGS, **settings})

    # 60 samples are one global batch of 56, and 4 more for 7 ranks.
    with pytest.warns(foreload.Warning, match="has 4 samples for 7 ranks"):
        masks = [last(rank, with_mask=True)(info(0, 1))[2].tolist() for rank in range(7)]
    assert masks == [[1]] * 4 + [[0]] * 3
    assert len(last(4, last_batch="pad")(info(0, 1))[1]) == 8
    with pytest.raises(StopIteration):
        last(4, last_batch="drop")(info(0, 1))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_other_processes_are_refused(dataset: Path) -> None:
    source = ImageSource(dataset, **SETTINGS)
    with pytest.raises(foreload.UnavailableError, match="parallel=False"):
        pickle.dumps(source)
    # DALI's forked workers call the source like this, before any thread of the loader has started.
    answers = multiprocessing.get_context("fork").SimpleQueue()

    def work() -> None:
        try:
            source(info(0, 0))
        except foreload.UnavailableError as error:
            answers.put(str(error))
        else:
            answers.put("no error")

    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join(60)
    assert "parallel=False" in answers.get()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"prefetch_queue_depth": 0}, "prefetch_queue_depth"),
        ({"dtype": "bfloat16"}, "dtype"),
        ({"decoded": False, "on_error": "zero"}, "on_error"),
        ({"batch_size": 0}, "batch_size"),
        ({"decoded": False, "memory": 5_000_000, "batch_size": 60, "prefetch_queue_depth": 50}, "memory"),
    ],
)
def test_settings_that_cannot_work(dataset: Path, given: dict[str, Any], named: str) -> None:
    with pytest.raises(foreload.ConfigError, match=f"config: {named}: "):
        ImageSource(dataset, **{**SETTINGS, **given})


@pytest.mark.parametrize(
    "given", [3, SimpleNamespace(epoch_idx=0, iteration=0, idx_in_batch=0, idx_in_epoch=0)]
)
def test_a_missing_batch_info_is_reported(dataset: Path, given: Any) -> None:
    with pytest.raises(TypeError, match="batch=True, batch_info=True"):
        ImageSource(dataset, **SETTINGS)(given)


def after(source: ImageSource, epochs: int) -> list[list[str]]:
    """Return the batches that DALI gets from a new source: the digests of the steps of this many epochs."""
    given: list[list[str]] = []
    for epoch in range(epochs):
        given.append([])
        while len(given[-1]) <= STEPS:
            try:
                given[-1].append(digest(source(info(epoch, len(given[-1])))))
            except StopIteration:
                break
    return given


@pytest.mark.parametrize("decoded", [True, False])
@pytest.mark.parametrize("last_batch", ["partial", "drop"])
def test_a_state_of_every_step(dataset: Path, decoded: bool, last_batch: str) -> None:
    settings = {**SETTINGS, "decoded": decoded, "last_batch": last_batch}
    whole = after(ImageSource(dataset, **settings), 3)
    steps = len(whole[0])
    assert steps == (STEPS if last_batch == "partial" else STEPS - 1)
    first = ImageSource(dataset, **settings)
    after(first, 2)
    for epoch in range(2):
        for step in range(steps + 1):
            # At this point DALI had got all batches of both epochs.
            state = json.loads(json.dumps(first.state_dict(epoch=epoch, at_step=step)))
            second = ImageSource(dataset, **settings)
            second.load_state_dict(state)
            through = step == steps
            assert second.epoch == epoch + through
            assert second.first_step(second.epoch) == (0 if through else step)
            assert second.first_step(second.epoch + 1) == 0
            rest = whole[epoch + 1 :] if through else [whole[epoch][step:], *whole[epoch + 1 :]]
            assert after(second, len(rest)) == rest
            # The source is restored again from there.
            if not through:
                third = ImageSource(dataset, **settings)
                third.load_state_dict(second.state_dict(epoch=epoch, at_step=steps - 1))
                assert after(third, 1) == [whole[epoch][steps - 1 :]]


def test_a_step_that_was_not_given_has_no_state(dataset: Path) -> None:
    source = ImageSource(dataset, **SETTINGS)
    for step in range(3):
        source(info(0, step))
    for epoch, step in ((0, 4), (1, 0), (0, -1)):
        with pytest.raises(foreload.ConfigError, match=f"at_step: is {step} of epoch {epoch}"):
            source.state_dict(epoch=epoch, at_step=step)
    again = ImageSource(dataset, **SETTINGS)
    again.load_state_dict(source.state_dict(epoch=0, at_step=3))
    again(info(0, 0))
    # A loop that restarts its count at zero asks for a step that cannot be right.
    with pytest.raises(foreload.ConfigError, match="from step 3 of epoch 0 to step 4 of epoch 0"):
        again.state_dict(epoch=0, at_step=1)
    after(again, 2)
    with pytest.raises(foreload.ConfigError, match=f"at_step: is {STEPS + 1} of epoch 0"):
        again.state_dict(epoch=0, at_step=STEPS + 1)


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_a_state_for_other_ranks(dataset: Path, world_size: int) -> None:
    settings = {**SETTINGS, "decoded": False, "with_mask": True, "last_batch": "drop"}
    first = ImageSource(dataset, **settings)
    after(first, 1)
    state = first.state_dict(epoch=0, at_step=3)
    files = {hashlib.sha256(path.read_bytes()).digest(): i for i, path in enumerate(paths(dataset))}
    expected = [
        np.from_dlpack(b.sample_ids).tolist()
        for b in foreload.ImageLoader(dataset, **{**SETTINGS, "last_batch": "drop"})
    ]
    parts = []
    for rank in range(world_size):
        ranks = {"rank": rank, "world_size": world_size, "batch_size": 8 // world_size}
        source = ImageSource(dataset, **{**settings, **ranks})
        source.load_state_dict(state)
        steps = [source(info(0, step))[0] for step in range(STEPS - 1 - 3)]
        parts.append([[files[hashlib.sha256(f.tobytes()).digest()] for f in step] for step in steps])
    together = [[i for part in step for i in part] for step in zip(*parts, strict=True)]
    assert together == expected[3:]
    wrong = ImageSource(dataset, **{**settings, "rank": 0, "world_size": 3})
    wrong.load_state_dict(state)
    with pytest.raises(foreload.ConfigError, match="world_size"):
        wrong(info(0, 0))


def test_a_state_of_another_order_is_refused(dataset: Path) -> None:
    source = ImageSource(dataset, **SETTINGS)
    source(info(0, 0))
    state = source.state_dict(epoch=0, at_step=1)
    with pytest.raises(foreload.ConfigError, match="seed"):
        ImageSource(dataset, **{**SETTINGS, "seed": 4}).load_state_dict(state)


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_a_state_has_the_errors_of_its_step(own_dataset: Path) -> None:
    for path in paths(own_dataset)[::6]:
        path.write_bytes(b"no JPEG".ljust(path.stat().st_size))
    settings = dict(batch_size=6, image_size=16, seed=3, on_error="skip")
    loader = foreload.ImageLoader(own_dataset, **settings)
    expected = []
    for epoch in range(2):
        loader.set_epoch(epoch)
        states = [loader.state_dict()]
        states.extend(loader.state_dict() for _ in loader)
        expected.append(states)
    assert expected[0][-1]["errors"] == expected[1][-1]["errors"] == 10
    source = ImageSource(own_dataset, **settings)
    for epoch in range(2):
        for step in range(10):
            source(info(epoch, step))
    for epoch in range(2):
        for step, state in enumerate(expected[epoch]):
            assert source.state_dict(epoch=epoch, at_step=step) == state


def test_fields_are_outputs(tmp_path: Path) -> None:
    """Fields of one size are outputs, with a tensor for each view."""
    root = shards.make(tmp_path, 24, 2)
    settings = {
        "batch_size": 8,
        "seed": 3,
        "fields": ["seg.png", "jpg", "cls"],
        "transforms": T.Views(2, [T.RandomResizedCrop(24)]),
    }
    source = ImageSource(root, with_mask=True, **settings)
    assert source.num_outputs == 6
    for step, batch in enumerate(foreload.ImageLoader(root, **settings)):
        outputs = source(info(0, step))
        wanted = [*batch["seg.png"], *batch["jpg"], batch["cls"]]
        for found, tensor in zip(outputs, wanted, strict=False):
            np.testing.assert_array_equal(found, np.from_dlpack(tensor))
    with pytest.raises(foreload.ConfigError, match=r'^config: fields: has "txt", whose values vary in size'):
        ImageSource(root, fields=["jpg", "txt"])


def test_all_images_of_a_sample_are_outputs(tmp_path: Path) -> None:
    """Each image has its own transforms."""
    root = shards.make(tmp_path, 24, 2, shards.pair)
    settings = {
        "batch_size": 8,
        "seed": 3,
        "fields": ["left.jpg", "right.jpg"],
        "transforms": {
            "left.jpg": [T.RandomResizedCrop(24)],
            "right.jpg": T.Views(2, [T.RandomCrop(20), T.ToDtype("float16")]),
        },
    }
    source = ImageSource(root, **settings)
    assert source.num_outputs == 3
    for step, batch in enumerate(foreload.ImageLoader(root, **settings)):
        for found, tensor in zip(
            source(info(0, step)), [batch["left.jpg"], *batch["right.jpg"]], strict=True
        ):
            np.testing.assert_array_equal(found, np.from_dlpack(tensor))


def test_what_is_present_is_further_outputs(tmp_path: Path) -> None:
    def without(number: int) -> shards.Members:
        gone = ("right.jpg", "seg.png", "")[number % 3]
        return {name: data for name, data in shards.pair(number).items() if name != gone}

    root = shards.make(tmp_path, 24, 2, without)
    optional = [
        foreload.fields.Image("right.jpg", optional=True),
        foreload.fields.Mask("seg.png", optional=True),
    ]
    settings = {"batch_size": 8, "image_size": 24, "fields": ["left.jpg", *optional]}
    assert ImageSource(root, **settings).num_outputs == 3
    source = ImageSource(root, with_present=True, with_mask=True, **settings)
    assert source.num_outputs == 6
    for step, batch in enumerate(foreload.ImageLoader(root, **settings)):
        *_, right, masks, valid = source(info(0, step))
        for found, name in ((right, "right.jpg"), (masks, "seg.png")):
            assert found.dtype == np.uint8
            np.testing.assert_array_equal(found, np.from_dlpack(batch.present(name)))
        assert valid.all()
