"""Foreload for PyTorch: an `IterableDataset` of finished batches.

    from foreload.torch import ImageDataset

    dataset = ImageDataset("data/train", batch_size=256, image_size=224, seed=0)
    for epoch in range(90):
        for images, labels in dataset:
            ...

It yields whole batches, so a `DataLoader` around it (needed only if a framework requires one) is made with
`DataLoader(dataset, batch_size=None, num_workers=0)`. `Dataset` yields dicts of fields of any kind, without defaults
for images. `ImageStream` does the same as `ImageDataset` with samples that arrive while training runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset

from foreload import _taken, _torch_batches
from foreload._core import Batches, ImageLoader, Loader, UnavailableError
from foreload._docs import hands_on_settings
from foreload._stream_loader import StreamLoader
from foreload.fields import Text
from foreload.streams import Source

if TYPE_CHECKING:
    import numpy as np

    from foreload._types import ConcealedSample, LoaderState, SampleFailure, StreamState
    from foreload.fields import Field


@hands_on_settings(Loader)
class Dataset(IterableDataset):
    """Batches of fields as dicts of torch tensors that share Foreload's memory.

        from foreload import fields
        from foreload.torch import Dataset

        asked = [fields.Array("npy", name="x"), fields.Integer("cls", name="y")]
        for batch in Dataset("shards", batch_size=64, fields=asked):
            batch["x"], batch["y"]

    A dict has tensors, lists of texts, of JSON or of bytes, and for ragged arrays pairs of tensors (values, offsets).
    For each field `NAME` with `optional=True`, it also has `NAME.present`, bool [n]: which samples have the field.
    Tensors are zeros where it is absent. Values of varying size are in host memory on any device. With `mix=` without
    `num_classes`, the dict also has `label.partner` and `label.share`, the second and third value of
    `foreload.Batch.mixed`. With `buckets=`, it also has `bucket`, `original_sizes` and `crops` of `foreload.Batch`.

    Args:
        path: The dataset, by its path or URL, or a list of several.
        device: A device of `foreload.Loader`, or a `torch.device`; `auto` is the CPU if torch has no CUDA. CUDA tensors
            are ready for torch's current stream when they are yielded.
        with_mask: Whether the dict has `mask`. It is False for padding (see `last_batch`) and for failed samples
            (`on_error="zero"`).
        with_ids: Whether the dict has `sample_ids`, the samples' numbers in the index, int64 [n].
        fields: The fields of `foreload.Loader`.
        settings: All other settings of `foreload.Loader`: `batch_size` (per rank), `seed`, ...

    You may keep a tensor for as long as you like. Its memory is reused after the last reference is dropped.

    Raises:
        ConfigError: The same as for `foreload.Loader`; or a field has the name of another key of the dict: `mask`,
            `sample_ids` or `NAME.present`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        device: str | torch.device = "auto",
        with_mask: bool = False,
        with_ids: bool = False,
        fields: Sequence[str | Field] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        own = _torch_batches.own_settings(torch.contiguous_format, None, device)
        self.loader = Loader(path, fields=fields, device=own["device"], **settings)
        self._keep(path, {"device": device}, {"fields": fields}, settings)
        self._converted = _torch_batches.TorchBatches(
            self.loader, own, fields=True, with_labels=False, with_mask=with_mask, with_ids=with_ids
        )

    def _keep(self, path: Any, own: dict[str, Any], said: dict[str, Any], settings: dict[str, Any]) -> None:
        """Keep what `repr` shows, and what an iteration leaves behind."""
        decided = {name: of for name, of in self.loader._decided.items() if settings.get(name) is None}
        self._shown = _torch_batches.shown(path, **{**settings, **said, **decided, **own})
        self._latest: Batches | None = None
        self._counted: dict[str, Any] = {}

    def __repr__(self) -> str:
        """Return the settings that it was made with, and the values that were chosen for others."""
        return f"{type(self).__name__}({self._shown})"

    @property
    def classes(self) -> list[str]:
        """Class names by number; empty if the dataset has only numbers."""
        return self.loader.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Class numbers by name; empty if the dataset has only numbers."""
        return {name: number for number, name in enumerate(self.loader.classes)}

    @property
    def targets(self) -> np.ndarray:
        """Class numbers of all samples of the dataset, drawn or not, by their number in the index: int64 [samples].

        The array is made at each call, so keep it if you need it more than once.

        Raises:
            AttributeError: The dataset has no labels.
        """
        return self.loader.targets

    @property
    def errors(self) -> list[SampleFailure]:
        """Failures of the latest iteration that were skipped or replaced by zeros; see `foreload.Loader.errors`."""
        return self.loader.errors

    @property
    def concealed(self) -> list[ConcealedSample]:
        """Damaged images of the latest iteration that were decoded anyway; see `foreload.Loader.concealed`."""
        return self.loader.concealed

    def stats(self) -> dict[str, Any]:
        """Return seconds and counters of the latest iteration's epoch so far, as `foreload.Batches.stats` has them.

        Empty before the first batch is requested.
        """
        return self._counted if self._latest is None else self._latest.stats()

    @property
    def epoch(self) -> int:
        """The current epoch, or between iterations the one that the next iteration runs."""
        return self.loader.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration; without it, every iteration runs the next epoch.

        A loaded state of that epoch still decides where it begins.
        """
        self.loader.set_epoch(epoch)

    @property
    def batch_sampler(self) -> SimpleNamespace:
        """The dataset itself, for Lightning, which sets the next epoch of a batch sampler's sampler."""
        return SimpleNamespace(sampler=self, batch_size=self.loader.batch_size)

    def state_dict(self, *, at_step: int | None = None) -> LoaderState:
        """Return the state of the latest iteration; see `foreload.Loader.state_dict`.

        Args:
            at_step: The number of steps of the epoch that the state includes, for frameworks that read ahead.
        """
        return self.loader.state_dict(at_step=at_step)

    def load_state_dict(self, state: LoaderState) -> None:
        """Resume where `state` was saved; see `foreload.Loader.load_state_dict`."""
        self.loader.load_state_dict(state)

    def __len__(self) -> int:
        """Return the number of batches of this rank in one epoch."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of one epoch: dicts of fields.

        Without `fields`, an `ImageDataset` yields (images, labels), followed by the mask and the ids if they were
        requested. Images alone are a tensor, not a tuple of one.

        Raises:
            ConfigError: A `DataLoader` would collate batches into batches of batches.
        """
        _torch_batches.check_fetcher(type(self).__name__)
        return self._iterate()

    def _iterate(self) -> Iterator[Any]:
        _torch_batches.check_process(type(self).__name__)
        # A generator, so that nothing begins before the first batch is requested: frameworks make an iterator, and then
        # choose the epoch, load a state or make another iterator.
        self._latest = batches = iter(self.loader)
        try:
            yield from map(self._converted.tensors, batches)
        finally:
            # Only the counters of an iteration are kept, because the batches would hold the epoch's memory.
            if self._latest is batches:
                self._counted, self._latest = batches.stats(), None

    def __getstate__(self) -> dict[str, Any]:
        """Raise an error: the dataset cannot be sent to another process."""
        raise UnavailableError(_torch_batches.one_process(type(self).__name__))


@hands_on_settings(ImageLoader)
class ImageDataset(Dataset):
    """Batches of (images, labels) as torch tensors that share Foreload's memory.

    Args:
        path: The dataset, by its path or URL: a directory of class directories, images, tar shards, or Parquet, Arrow,
            MDS or TFRecord files; a CSV or another table of files; or a packed dataset. Or a list of several.
        memory_format: `torch.contiguous_format` or `torch.channels_last`, with torch's meaning: images are [n, 3,
            height, width] in both cases.
        dtype: `torch.float32`, `torch.float16`, `torch.bfloat16` or `torch.uint8`. None: float32, or the type that
            `transforms` sets.
        device: A device of `foreload.ImageLoader`, or a `torch.device`; `auto` is the CPU if torch has no CUDA. CUDA
            tensors are ready for torch's current stream when they are yielded.
        with_labels: Whether labels are yielded after the images. With `mix=`, these are the mixed labels, or without
            `num_classes` a tuple (labels, partners' labels, λ), as in `foreload.Batch.mixed`. A dataset without labels
            needs False. A batch is then the tensor of images, or a tuple with the mask or the ids.
        with_mask: Whether (images, labels, mask) is yielded. The mask is False for padding (see `last_batch`) and for
            failed samples (`on_error="zero"`).
        with_ids: Whether the samples' numbers in the index are yielded last, int64 [n].
        fields: The fields of `foreload.ImageLoader`. With them, each batch is a dict by their names: of tensors, lists
            of texts, of JSON or of bytes, and for ragged arrays pairs of tensors (values, offsets). It also has `mask`
            and `sample_ids` if they were requested. For each field `NAME` with `optional=True`, it has `NAME.present`,
            bool [n]: which samples have the field. Tensors are zeros where it is absent. Values of varying size are in
            host memory on any device. With `mix=` without `num_classes`, the dict also has `label.partner` and
            `label.share`, the second and third value of `foreload.Batch.mixed`. With `buckets=`, it also has
            `bucket`, `original_sizes` and `crops` of `foreload.Batch`.
        settings: All other settings of `foreload.ImageLoader`: `batch_size` (per rank), `image_size`, `seed`, ... With
            `decoded=False`, a list of the files takes the place of the images: uint8 [bytes] each, as
            `torchvision.io.decode_jpeg` takes them.

    You may keep a tensor for as long as you like. Its memory is reused after the last reference is dropped.

    Raises:
        ConfigError: The same as for `foreload.ImageLoader`; or `with_labels` is True and the dataset has no labels; or
            a field has the name of another key of the dict: `mask`, `sample_ids` or `NAME.present`.
    """

    loader: ImageLoader

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        memory_format: torch.memory_format = torch.contiguous_format,
        dtype: torch.dtype | None = None,
        device: str | torch.device = "auto",
        with_labels: bool = True,
        with_mask: bool = False,
        with_ids: bool = False,
        fields: Sequence[str | Field] | None = None,
        **settings: Any,
    ) -> None:
        IterableDataset.__init__(self)
        own = _torch_batches.own_settings(memory_format, dtype, device)
        said = {"dtype": dtype, "with_labels": None if with_labels else False, "fields": fields}
        self.loader = ImageLoader(path, fields=fields, **own, **settings)
        self._keep(path, {"memory_format": memory_format, "device": device}, said, settings)
        if with_labels and fields is None:
            self.loader._check_labeled()
        self._converted = _torch_batches.TorchBatches(
            self.loader,
            own,
            fields=fields is not None,
            with_labels=with_labels,
            with_mask=with_mask,
            with_ids=with_ids,
            decoded=bool(settings.get("decoded", True)),
        )

    @classmethod
    def from_torchvision(cls, dataset: Any, *, batch_size: int, **settings: Any) -> ImageDataset:
        """Loads the images and labels of a torchvision dataset with Foreload; `repr` shows the resulting settings.

        Order and last batch are Foreload's, not the defaults of a `DataLoader`. Training shuffles and drops the samples
        that do not fill a batch, as `DataLoader(dataset, batch_size, shuffle=True, drop_last=True)` does. Evaluation
        keeps the order and ends in a smaller batch. `shuffle` and `last_batch` change that. Crops and flips are drawn
        from the same distributions, by `seed` and epoch.

        Args:
            dataset: A `torchvision.datasets.ImageFolder` or `ImageNet`, or a `torch.utils.data.Subset` of one, with
                transforms that `foreload.transforms` has, and a conversion to tensors. They may be of torchvision's
                `transforms` or `transforms.v2`.
            batch_size: Samples per step and rank.
            settings: Settings of `ImageDataset` that the dataset does not determine: `seed`, `decode`, `cache`, ...

        Raises:
            ConfigError: The dataset or one of its transforms does something that Foreload does not support; the message
                says which, and what to do.
        """
        from foreload import _torchvision

        taken = _torchvision.merged(_torchvision.settings_of(dataset), settings)
        made = cls(taken.pop("path"), batch_size=batch_size, **taken)
        are_numbered = settings.get("class_names") is not None
        are_labeled = settings.get("labels") is not None
        _torchvision.check_same_samples(
            dataset, made.loader, are_numbered=are_numbered, are_labeled=are_labeled
        )
        return made

    @classmethod
    def from_webdataset(cls, source: Any, *, batch_size: int | None = None, **settings: Any) -> ImageDataset:
        """Loads the shards of a WebDataset pipeline with Foreload; `repr` shows the resulting settings.

        These parts of a pipeline are taken over: its shards, `shuffle` (all samples are shuffled here), `decode` to
        RGB, `rename`, `to_tuple`, transforms of torchvision in `map_tuple` or `map_dict`, and `batched`. Tuples of an
        image and `cls` become (images, labels), an image alone becomes images, all others a dict by `fields`.

        Args:
            source: A `webdataset.WebDataset`, `DataPipeline` or `WebLoader`; or the URL or path of shards, with braces
                or without, or a list of these.
            batch_size: Samples per step and rank, if the pipeline has no `batched`.
            settings: Settings of `ImageDataset` that the pipeline does not determine: `seed`, `cache`, ... A pipeline
                without transforms needs `transforms` or `image_size`.

        Raises:
            ConfigError: The pipeline does something that Foreload does not support; the message says what, and what to
                do.
        """
        from foreload import _webdataset

        taken = _taken.whole(_webdataset.settings_of(source, settings), settings, batch_size)
        return cls(taken.pop("path"), **taken)

    @classmethod
    def from_streaming(cls, dataset: Any, *, batch_size: int | None = None, **settings: Any) -> ImageDataset:
        """Loads the MDS shards of a StreamingDataset with Foreload; `repr` shows the resulting settings.

        These are taken over: the places of its streams (`remote`, else `local`) and their splits, `proportion`,
        `batch_size`, `shuffle` and `shuffle_seed`. The order is Foreload's. Splits for validation or tests are
        evaluated (`train=False`) unless you say otherwise.

        Args:
            dataset: A `streaming.StreamingDataset`. For a derived class, `transforms` must do what the class does.
            batch_size: Samples per step and rank, if the dataset does not set it.
            settings: Settings of `ImageDataset` that the dataset does not determine: `transforms`, `cache`, ...

        Raises:
            ConfigError: The dataset does something that Foreload does not support; the message says what, and what to
                do.
        """
        from foreload import _streaming

        taken = _taken.whole(_streaming.settings_of(dataset, settings), settings, batch_size)
        made = cls(taken.pop("path"), **taken)
        _streaming.check_same_samples(dataset, made.loader)
        return made

    @classmethod
    def from_huggingface(cls, dataset: Any, *, batch_size: int, **settings: Any) -> ImageDataset:
        """Loads the rows of a `datasets.Dataset` with Foreload; `repr` shows the resulting settings.

        Its Arrow files are read as they are, and chosen rows (`select`, `filter`, `shard`, `train_test_split`,
        `train[:10%]`) become the `indices`. A validation or test split is evaluated (`train=False`) unless you say
        otherwise.

        Args:
            dataset: The result of `load_dataset` or `load_from_disk`, with a column of images.
            batch_size: Samples per step and rank.
            settings: Settings of `ImageDataset` that the dataset does not determine: `transforms`, `seed`, ...

        Raises:
            ConfigError: Rows are in memory or were computed, or the dataset does something that Foreload does not
                support; the message says what, and what to do.
        """
        from foreload import _huggingface

        taken = _taken.whole(_huggingface.settings_of(dataset, settings), settings, batch_size)
        made = cls(taken.pop("path"), **taken)
        are_numbered = settings.get("class_names") is not None
        _huggingface.check_same_samples(
            dataset, made.loader, settings.get("label"), are_numbered=are_numbered
        )
        return made


@hands_on_settings(StreamLoader)
class ImageStream(IterableDataset):
    """Batches of (images, labels) of samples that arrive while training runs, as torch tensors.

        from foreload import Rehearsal, streams
        from foreload.torch import ImageStream

        stream = ImageStream(streams.Folder("incoming"), batch_size=64, rehearsal=Rehearsal("20GB", share=0.5))
        for images, labels in stream:  # for ever, or until the stream ends
            ...

    It yields the same as `ImageDataset`, in the training's own process, and has no length. An iteration resumes after
    the batch that was yielded last.

    Args:
        source: A source of `foreload.streams`, or a list of several.
        memory_format: `torch.contiguous_format` or `torch.channels_last`, as for `ImageDataset`.
        dtype: The type of the images, as for `ImageDataset`.
        device: A device of `foreload.ImageLoader`, or a `torch.device`; `auto` is the CPU if torch has no CUDA.
        with_labels: Whether labels are yielded after the images. False also takes samples that have no class.
        with_mask: Whether the mask is yielded, for `on_error="zero"`.
        with_ids: Whether the samples' numbers are yielded, int64 [n].
        with_keys: Whether the samples' keys are yielded last: a list of texts, None for a sample that failed and was
            replaced by zeros. With `fields` the dict has them as `__key__`.
        fields: The fields of `foreload.ImageLoader`. With them, each batch is a dict, as for `ImageDataset`.
        settings: All other settings of `foreload.StreamLoader`, which are explained below, and those settings of
            `foreload.ImageLoader` that need no dataset: `image_size`, `transforms`, `threads`, ...

    Raises:
        ConfigError: The same as for `foreload.StreamLoader`; or a field has the name of another key of the dict, as for
            `ImageDataset`.
    """

    def __init__(
        self,
        source: Source | Sequence[Source],
        *,
        memory_format: torch.memory_format = torch.contiguous_format,
        dtype: torch.dtype | None = None,
        device: str | torch.device = "auto",
        with_labels: bool = True,
        with_mask: bool = False,
        with_ids: bool = False,
        with_keys: bool = False,
        fields: Sequence[str | Field] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        own = _torch_batches.own_settings(memory_format, dtype, device)
        said = {"dtype": dtype, "with_labels": None if with_labels else False, "fields": fields}
        self._shown = _torch_batches.shown(
            source, memory_format=memory_format, device=device, **settings, **said
        )
        asked = ["image", *(["label"] if with_labels else [])] if fields is None else fields
        # The loader refuses anything that is not a list.
        if with_keys and isinstance(asked, list | tuple):
            has = any(getattr(field, "name", field) == "__key__" for field in asked)
            asked = [*asked, *([] if has else [Text("__key__")])]
        self.loader = StreamLoader(source, fields=asked, **own, **settings)
        self._converted = _torch_batches.TorchBatches(
            self.loader._engine,
            own,
            fields=fields is not None,
            with_labels=with_labels,
            with_mask=with_mask,
            with_ids=with_ids,
            with_keys=with_keys,
        )

    def __repr__(self) -> str:
        """Return the settings that it was made with."""
        return f"{type(self).__name__}({self._shown})"

    @property
    def classes(self) -> list[str]:
        """Class names by number; empty if there are only numbers."""
        return self.loader.classes

    def stats(self) -> Mapping[str, Any]:
        """Return the counters of the latest iteration, and under `stream` those of all samples."""
        return self.loader.stats()

    def state_dict(self) -> StreamState:
        """Return the state after the batch that was yielded last; see `foreload.StreamLoader.state_dict`.

        If a framework takes batches ahead of the training, the state includes batches that were not trained on yet.
        """
        return self.loader.state_dict()

    def load_state_dict(self, state: StreamState | Sequence[StreamState]) -> None:
        """Resume where `state`, or the states of all ranks, were saved; see `foreload.StreamLoader.load_state_dict`."""
        self.loader.load_state_dict(state)

    def acknowledge(self, state: StreamState) -> None:
        """Acknowledge a state that is safely written; see `foreload.StreamLoader.acknowledge`."""
        self.loader.acknowledge(state)

    def withdraw(self, keys: Iterable[str | tuple[str, str]]) -> int:
        """Withdraw samples, and return how many waited or were kept; see `foreload.StreamLoader.withdraw`."""
        return self.loader.withdraw(keys)

    def __iter__(self) -> Iterator[Any]:
        """Yield (images, labels), followed by the mask, the ids and the keys if they were requested.

        Images alone are a tensor, not a tuple of one. With `fields` each batch is a dict.

        Raises:
            ConfigError: A `DataLoader` would collate batches into batches of batches.
        """
        _torch_batches.check_fetcher("ImageStream")
        return self._iterate()

    def _iterate(self) -> Iterator[Any]:
        _torch_batches.check_process("ImageStream")
        # A generator, so that nothing begins before the first batch is requested, because a state may still be loaded.
        yield from map(self._converted.tensors, self.loader)

    def __getstate__(self) -> dict[str, Any]:
        """Raise an error: the dataset cannot be sent to another process."""
        raise UnavailableError(_torch_batches.one_process("ImageStream"))
