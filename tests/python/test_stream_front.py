"""Streams in PyTorch and in DALI: `foreload.torch.ImageStream` and `foreload.dali.StreamSource`, with the real ones."""

from __future__ import annotations

import ctypes
import gc
import importlib
import itertools
import os
import pickle
import typing
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import foreload
import numpy as np
import pytest
from conftest import paths
from foreload import ConfigError, Rehearsal, StreamLoader, UnavailableError, fields, streams
from foreload import transforms as T
from test_streams import Seekable, samples

USUAL = {"batch_size": 10, "image_size": 24, "seed": 3, "device": "cpu", "threads": 2}


def found(name: str, variable: str) -> ModuleType:
    """Import a module; skip the test if it is missing, unless the environment requires it."""
    if os.environ.get(variable) == "1":
        return importlib.import_module(name)
    return pytest.importorskip(
        name, reason=f"{name} is not installed; {variable}=1 makes this a failure", exc_type=ImportError
    )


@pytest.fixture
def torch() -> ModuleType:
    """A real torch."""
    return found("torch", "FORELOAD_REQUIRE_TORCH")


@pytest.fixture
def dali() -> ModuleType:
    """A real DALI."""
    return found("nvidia.dali", "FORELOAD_REQUIRE_DALI")


def stream(source: Any, **settings: Any) -> Any:
    """Return an `ImageStream` of an iterable."""
    from foreload.torch import ImageStream

    return ImageStream(streams.Iterator(source, name="s"), **{**USUAL, **settings})


def dali_source(source: Any, **settings: Any) -> Any:
    """Return a `StreamSource` of an iterable."""
    from foreload.dali import StreamSource

    return StreamSource(streams.Iterator(source, name="s"), **{**USUAL, **settings})


def expected(source: Any, **settings: Any) -> list[foreload.Batch]:
    asked = ["image", "label", fields.Text("__key__")]
    loader = StreamLoader(streams.Iterator(source, name="s"), fields=asked, **{**USUAL, **settings})
    return list(loader)


def array(tensor: Any) -> np.ndarray:
    """Return a tensor as an array, even if torch was built for another NumPy version."""
    return np.from_dlpack(tensor)


def pipeline(source: Any, **settings: Any) -> Any:
    """Return a pipeline in which Foreload does everything."""
    from nvidia.dali import pipeline_def

    return pipeline_def(source.data_nodes)(
        **{"batch_size": 10, "num_threads": 1, "device_id": None, **settings}
    )


def run(pipe: Any) -> Iterator[list[Any]]:
    """Yield the outputs of a pipeline until the end, which must stay the end."""
    while True:
        try:
            yield [np.array(output.as_tensor()) for output in pipe.run()]
        except StopIteration:
            break
    for _ in range(2):
        pipe.reset()
        with pytest.raises(StopIteration):
            pipe.run()


@pytest.mark.parametrize("channels_last", [False, True])
def test_torch_gets_what_the_loader_gives(torch: ModuleType, dataset: Path, channels_last: bool) -> None:
    form = torch.channels_last if channels_last else torch.contiguous_format
    rehearsed = {"rehearsal": Rehearsal(30, share=0.3)}
    made = stream(
        samples(dataset, 95),
        memory_format=form,
        with_mask=True,
        with_ids=True,
        with_keys=True,
        **rehearsed,
    )
    for batch, own in zip(made, expected(samples(dataset, 95), **rehearsed), strict=True):
        images, labels, mask, ids, keys = batch
        assert (images.dtype, labels.dtype, ids.dtype) == (torch.float32, torch.int64, torch.int64)
        assert images.is_contiguous(memory_format=form)
        assert np.array_equal(array(images), np.from_dlpack(own.images))
        assert labels.tolist() == np.from_dlpack(own.labels).tolist()
        assert mask.dtype == torch.bool
        assert mask.all()
        assert ids.tolist() == np.from_dlpack(own.sample_ids).tolist()
        assert keys == own["__key__"]
    stats = made.stats()["stream"]
    assert (stats["received"], stats["delivered"], stats["kept"]) == (95, 95, 30)


def test_torch_gets_images_alone_of_samples_without_a_class(torch: ModuleType, dataset: Path) -> None:
    given = [{"jpg": path.read_bytes()} for path in paths(dataset)[:20]]
    for images in stream(given, with_labels=False, dtype=torch.uint8):
        assert (images.dtype, tuple(images.shape)) == (torch.uint8, (10, 3, 24, 24))
    for images, keys in stream(given, with_labels=False, with_keys=True):
        assert len(images) == len(keys) == 10
    with pytest.raises(foreload.DecodeError, match=r'no class.*without "label"'):
        next(iter(stream(given)))


def test_torch_gets_fields_as_of_a_dataset(torch: ModuleType, dataset: Path) -> None:
    asked = ["jpg", "label", "txt", fields.Bytes("more", optional=True)]
    made = stream(samples(dataset, 20), fields=asked, with_mask=True, with_ids=True, with_keys=True)
    for batch in made:
        assert list(batch) == ["jpg", "label", "txt", "more", "__key__", "more.present", "mask", "sample_ids"]
        numbers = [int(key[1:]) for key in batch["__key__"]]
        assert batch["txt"] == [f"text {number}" for number in numbers]
        assert batch["label"].tolist() == [number % 7 for number in numbers]
        assert not batch["more.present"].any()
    # The field is there only once, even if it was requested, too.
    own = stream(samples(dataset, 20), fields=["jpg", fields.Text("__key__")], with_keys=True)
    assert list(next(iter(own))) == ["jpg", "__key__"]
    with pytest.raises(ConfigError, match=r"with_mask.*'mask'.*another name"):
        stream([], fields=["jpg", fields.Bytes("mask")], with_mask=True)


def test_torch_gets_mixed_labels(torch: ModuleType, dataset: Path) -> None:
    settings = {"batch_size": 8, "mix": [T.MixUp()]}
    for images, (labels, partners, shares), keys in stream(samples(dataset, 32), with_keys=True, **settings):
        assert len(images) == len(keys) == 8
        assert labels.tolist() == [int(key[1:]) % 7 for key in keys]
        assert sorted(labels.tolist()) == sorted(partners.tolist())
        assert 0 <= shares.min() <= 1


def test_torch_is_told_of_samples_that_failed(torch: ModuleType, dataset: Path) -> None:
    def given() -> Iterator[Any]:
        for number, (key, sample) in enumerate(samples(dataset, 20)):
            yield key, sample | ({"jpg": b"\xff\xd8"} if number == 4 else {})

    made = stream(given(), on_error="zero", with_mask=True, with_keys=True)
    with pytest.warns(foreload.Warning):
        places = [pair for _, _, mask, keys in made for pair in zip(mask.tolist(), keys, strict=True)]
    assert [key for valid, key in places if not valid] == [None]
    assert {key for valid, key in places if valid} == {f"k{n}" for n in range(20) if n != 4}


def test_a_data_loader_may_hand_on_and_nothing_else(torch: ModuleType, dataset: Path) -> None:
    from torch.utils.data import DataLoader

    made = stream(samples(dataset, 30))
    with pytest.raises(TypeError):
        len(made)
    with pytest.raises(ConfigError, match=r"ImageStream yields whole batches.*batch_size=None"):
        next(iter(DataLoader(made, batch_size=4)))
    with pytest.raises(UnavailableError, match=r"ImageStream works in the training process"):
        next(iter(DataLoader(made, batch_size=None, num_workers=1)))
    with pytest.raises(UnavailableError, match=r"ImageStream works in the training process"):
        pickle.dumps(made)
    assert [len(labels) for _, labels in DataLoader(made, batch_size=None, num_workers=0)] == [10] * 3


def test_torch_shows_no_secret(torch: ModuleType) -> None:
    from foreload.torch import ImageStream

    source = streams.Redis("redis://:hidden@localhost:1/0", "images", password="hidden too")
    made = ImageStream(source, batch_size=4, dtype=torch.float16, with_labels=False)
    shown = "ImageStream(foreload.streams.Redis(name='images'), batch_size=4, dtype=torch.float16, "
    assert repr(made) == f"{shown}memory_format=torch.contiguous_format, device='auto', with_labels=False)"


def test_a_training_in_torch_goes_on_where_it_was_saved(
    torch: ModuleType, dataset: Path, tmp_path: Path
) -> None:
    def kept(name: str) -> Rehearsal:
        return Rehearsal(50, share=0.5, directory=tmp_path / name, directory_size="8MB")

    def content(batch: Any) -> tuple[bytes, list[int], list[str]]:
        images, labels, keys = batch
        return array(images).tobytes(), labels.tolist(), keys

    whole = stream(Seekable(dataset, 300), rehearsal=kept("whole"), with_keys=True)
    wanted = [content(batch) for batch in whole]
    source = Seekable(dataset, 300)
    first = stream(source, rehearsal=kept("kept"), with_keys=True)
    made = [content(batch) for batch in itertools.islice(first, 12)]
    state = first.state_dict()
    torch.save(state, tmp_path / "state.pt")
    first.acknowledge(state)
    assert source.acknowledged == ["k64"]
    del first
    second = stream(Seekable(dataset, 300), rehearsal=kept("kept"), with_keys=True)
    second.load_state_dict(torch.load(tmp_path / "state.pt"))
    made += [content(batch) for batch in second]
    assert made == wanted


def test_what_torch_withdraws_never_comes_again(torch: ModuleType, dataset: Path) -> None:
    made = stream(samples(dataset, 300), rehearsal=Rehearsal(80, share=0.5), with_keys=True)
    batches = iter(made)
    seen = {key for _ in range(10) for key in next(batches)[-1]}
    gone = set(sorted(seen)[::2])
    assert made.withdraw(gone) > 0
    later = [set(keys) for _, _, keys in batches]
    assert not set().union(*later[12:]) & gone


def test_a_call_gives_the_next_batch(dataset: Path) -> None:
    """This does not need DALI."""
    source = dali_source(samples(dataset, 95), with_mask=True)
    for own in expected(samples(dataset, 95)):
        images, labels, mask = source()
        assert np.array_equal(images, np.from_dlpack(own.images))
        assert np.array_equal(labels, np.from_dlpack(own.labels))
        assert labels.dtype == np.int64
        assert mask.dtype == np.uint8
        assert mask.all()
    for _ in range(3):
        with pytest.raises(StopIteration):
            source()
    with pytest.raises(UnavailableError, match=r"StreamSource works in the pipeline's own process"):
        pickle.dumps(source)


def test_what_dali_looks_at_stays_as_it_was(dataset: Path) -> None:
    """Batches are recorded by address, so that the test does not keep their memory."""
    source = dali_source(samples(dataset, 300), prefetch_queue_depth=3)
    seen: list[tuple[int, int, bytes]] = []
    for _ in range(30):
        images, _ = source()
        seen = [*seen[-3:], (images.ctypes.data, images.nbytes, images.tobytes())]
        for address, size, then in seen:
            assert ctypes.string_at(address, size) == then
        del images


def test_a_sample_that_fails_ends_a_call_and_not_the_stream(dataset: Path) -> None:
    def given() -> Iterator[Any]:
        for number, (key, sample) in enumerate(samples(dataset, 40)):
            yield key, sample | ({"jpg": b"\xff\xd8"} if number == 14 else {})

    source = dali_source(given())
    taken = 0
    failures = []
    while True:
        try:
            taken += len(source()[1])
        except foreload.SampleError as error:
            failures.append(str(error))
        except StopIteration:
            break
    assert len(failures) == 1
    assert "s/k14" in failures[0]
    assert taken == 39


def test_dali_gets_every_sample_once_and_in_order(dali: ModuleType, dataset: Path) -> None:
    source = dali_source(samples(dataset, 95))
    given = list(run(pipeline(source)))
    own = expected(samples(dataset, 95))
    assert [len(labels) for _, labels in given] == [10] * 9 + [5]
    for (images, labels), batch in zip(given, own, strict=True):
        assert np.array_equal(images, np.from_dlpack(batch.images))
        assert labels.tolist() == np.from_dlpack(batch.labels).tolist()
    assert source.loader.stats()["stream"]["delivered"] == 95


def test_dali_gets_images_alone_and_fields(dali: ModuleType, dataset: Path) -> None:
    given = [{"jpg": path.read_bytes()} for path in paths(dataset)[:20]]
    source = dali_source(given, with_labels=False, dtype="uint8", memory_format="nhwc")
    assert [images.shape for (images,) in run(pipeline(source))] == [(10, 24, 24, 3)] * 2
    optional = fields.Integer("number", optional=True)
    source = dali_source(samples(dataset, 20), fields=["jpg", "cls", optional], with_present=True)
    for images, labels, numbers, present in run(pipeline(source)):
        assert (images.shape, labels.shape) == ((10, 3, 24, 24), numbers.shape)
        assert not numbers.any()
        assert not present.any()
    with pytest.raises(ConfigError, match=r"size"):
        dali_source([], fields=["jpg", "txt"])


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_training_in_dali_goes_on_where_it_was_saved(
    dali: ModuleType, dataset: Path, tmp_path: Path, depth: int
) -> None:
    """States belong to the training's step, whatever DALI has read ahead. @@t 340 A pipeline refers to itself, and
    holds the directory.
    """

    def made(name: str) -> Any:
        kept = Rehearsal(50, share=0.5, directory=tmp_path / name, directory_size="8MB")
        settings = {"states_every": 5, "prefetch_queue_depth": depth, "rehearsal": kept}
        return dali_source(Seekable(dataset, 300), **settings)

    def outputs(source: Any) -> Iterator[tuple[bytes, ...]]:
        for arrays in run(pipeline(source, prefetch_queue_depth=depth)):
            yield tuple(array.tobytes() for array in arrays)

    whole, saved, seen = made("whole"), {}, []
    for step, batch in enumerate(outputs(whole), whole.first_step + 1):
        seen.append(batch)
        if step % 5 == 0:
            whole.acknowledge(whole.state_dict(at_step=step))
    first = made("kept")
    batches = outputs(first)
    for step, batch in enumerate(itertools.islice(batches, 23), first.first_step + 1):
        assert batch == seen[step - 1]
        if step % 5 == 0:
            saved = first.state_dict(at_step=step)
            assert saved["step"] == step
            first.acknowledge(saved)
    stats = first.loader.stats()["stream"]
    assert stats["delivered"] + stats["rehearsed"] >= 10 * (22 + depth), "DALI reads ahead"
    with pytest.raises(
        ConfigError, match=r"at_step: is 22, but with states_every=5 there are states of .*20"
    ):
        first.state_dict(at_step=22)
    batches.close()
    del batches, first
    gc.collect()  # A pipeline holds itself, and with it the directory.
    second = made("kept")
    second.load_state_dict(saved)
    assert (second.first_step, second.state_dict(at_step=20)) == (20, saved)
    rest = []
    for step, batch in enumerate(outputs(second), second.first_step + 1):
        rest.append(batch)
        if step % 5 == 0:
            second.acknowledge(second.state_dict(at_step=step))
    assert rest == seen[20:]


def test_an_empty_batch_is_refused_for_dali() -> None:
    """A rank gets empty batches if its stream has ended, but the streams of other ranks have not."""
    source = dali_source([])
    source._pass = iter([[]])
    with pytest.raises(UnavailableError, match=r'step 0 has no sample for this rank.*when_dry="rehearse"'):
        source()


def test_states_in_dali_are_refused_where_they_would_be_wrong(dataset: Path) -> None:
    source = dali_source(samples(dataset, 95))
    source()
    with pytest.raises(ConfigError, match=r"states_every: is None.*DALI has read ahead"):
        source.state_dict(at_step=1)
    for wrong in (0, True, "5", 2.0):
        with pytest.raises(ConfigError, match=r"states_every: is .*must be a whole number"):
            dali_source([], states_every=wrong)
    with pytest.raises(ConfigError, match=r"keep: is set by this source"):
        dali_source([], keep=3)


def test_what_dali_cannot_do_with_a_stream_is_refused(dali: ModuleType, dataset: Path) -> None:
    from nvidia.dali import fn, pipeline_def

    with pytest.raises(ConfigError, match=r"prefetch_queue_depth: is 2, but the pipeline's is 3"):
        pipeline(dali_source(samples(dataset, 95)), prefetch_queue_depth=3)
    with pytest.raises(ConfigError, match=r"batch_size: is 10, but the pipeline's is 8"):
        pipeline(dali_source(samples(dataset, 95)), batch_size=8)

    @pipeline_def(batch_size=10, num_threads=1, device_id=None, py_num_workers=1, py_start_method="spawn")
    def parallel(source: Any) -> tuple[Any, ...]:
        return tuple(fn.external_source(source=source, num_outputs=2, batch=True, parallel=True))

    with pytest.raises(TypeError, match=r"parallel mode"):
        parallel(dali_source(samples(dataset, 95)))


def test_types_say_what_states_and_statistics_have(dataset: Path, tmp_path: Path) -> None:
    from foreload import _types

    def same(value: Any, kind: type) -> None:
        assert set(value) == set(typing.get_type_hints(kind))

    for directory in (None, tmp_path / "kept"):
        kept = Rehearsal("1MB", directory=directory)
        loader = StreamLoader(streams.Iterator(Seekable(dataset, 30), name="s"), rehearsal=kept, **USUAL)
        next(iter(loader))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = loader.state_dict()
        same(state, _types.StreamState)
        same(state["identity"], _types.StreamIdentity)
        same(state["account"], _types.StreamAccount)
        same(state["sources"][0], _types.StreamSourceState)
        if directory is None:
            same(state["sources"][0]["position"], _types.StreamPosition)
        else:
            same(state["snapshot"], _types.StreamSnapshot)
        same(loader.stats()["stream"], _types.StreamStats)
