"""The common part of the datasets of `foreload.torch`: their settings, and batches as torch tensors."""

from __future__ import annotations

import os
import reprlib
import sys
from typing import Any, Protocol

import torch
from torch.utils.data import default_collate, get_worker_info

from foreload import _taken
from foreload._core import Batch, Tensor, UnavailableError
from foreload._errors import config_error
from foreload.transforms import Transform, Views


class Made(Protocol):
    """An object that makes the batches and describes them."""

    @property
    def fields(self) -> dict[str, str]:
        """The fields by name, with what each holds."""

    @property
    def _optional(self) -> list[str]: ...

    @property
    def _mixes_hard_labels(self) -> bool: ...


def own_settings(
    memory_format: torch.memory_format, dtype: torch.dtype | None, device: str | torch.device
) -> dict[str, Any]:
    """Return a loader's settings for a memory format, a type and a device of torch.

    Raises:
        ConfigError: The memory format is not one of images.
    """
    if not any(memory_format is known for known in (torch.contiguous_format, torch.channels_last)):
        message = f"is {memory_format!r}, must be torch.contiguous_format or torch.channels_last"
        raise config_error("memory_format", message)
    if isinstance(device, torch.device) and device.type == "cpu":
        device = "cpu"  # Frameworks may number the CPU.
    settings = {
        "memory_format": "nhwc" if memory_format is torch.channels_last else "nchw",
        "device": "cpu" if device == "auto" and not torch.cuda.is_available() else str(device),
    }
    return settings if dtype is None else {**settings, "dtype": str(dtype).removeprefix("torch.")}


def one_process(name: str) -> str:
    """Return the message that a dataset is used only in the training's own process."""
    return (
        f"{name} works in the training process, with its own threads, not in worker processes: use "
        "DataLoader(dataset, batch_size=None, num_workers=0)"
    )


def check_process(name: str) -> None:
    """Raise an error in a worker process.

    Raises:
        UnavailableError: This is a worker process of a `DataLoader`.
    """
    if get_worker_info() is not None:
        raise UnavailableError(one_process(name))


def check_fetcher(name: str) -> None:
    """Raise an error if a `DataLoader` that calls the caller's `__iter__` would collate batches into larger batches.

    Raises:
        ConfigError: The `DataLoader` would collate them.
    """
    # The caller's caller is torch's fetcher, whose attributes say whether it collates.
    fetcher = sys._getframe(2).f_locals.get("self")
    if getattr(fetcher, "auto_collation", False) and getattr(fetcher, "collate_fn", 0) is default_collate:
        message = (
            f"{name} yields whole batches, which this DataLoader would batch again: pass batch_size to {name}, "
            "and if there must be a DataLoader, give it batch_size=None and num_workers=0"
        )
        raise config_error("batch_size", message)


def shown(first: Any, /, **given: Any) -> str:
    """Return the settings of a dataset for its `repr`: its first argument, then the others by name."""
    device = given["device"]
    # Frameworks may number the CPU.
    if isinstance(device, torch.device) and device.type == "cpu":
        given["device"] = "cpu"
    order = ("memory_format", "device", "with_labels", "fields")
    last = {name: given.pop(name) for name in order if name in given}
    settings = {**given, **last}
    # Settings of the datasets themselves are None if they were not given.
    own_names = ("dtype", "with_labels", "fields")
    left = {name: value for name, value in settings.items() if value is not None or name not in own_names}
    return ", ".join([_repr(first), *(f"{name}={_repr(value)}" for name, value in left.items())])


def _repr(value: Any) -> str:
    """Return the `repr` of a value, with paths as texts, without secrets, and long lists, as of indices, cut short."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif isinstance(value, list):
        value = [os.fspath(item) if isinstance(item, os.PathLike) else item for item in value[:10]]
    value = _taken.shown(value)
    # Transforms are never cut short: one list, or one for each image field.
    is_list = isinstance(value, list) and all(isinstance(item, Transform | Views) for item in value)
    if is_list or isinstance(value, dict):
        return repr(value)
    short = reprlib.Repr()
    short.maxstring = short.maxother = 1000
    return short.repr(value)


class TorchBatches:
    """Batches as torch tensors that share Foreload's memory: tuples, or dicts of fields.

    Args:
        made: The object that makes the batches.
        settings: The result of `own_settings`.
        fields: Whether batches are dicts of fields.
        with_labels: Whether tuples have labels.
        with_mask: Whether there is a mask.
        with_ids: Whether there are the samples' numbers.
        with_keys: Whether there are the samples' keys, of the field `__key__`.
        decoded: Whether batches have images, not the files.

    Raises:
        ConfigError: A field has the name of another key of the dict.
    """

    def __init__(
        self,
        made: Made,
        settings: dict[str, Any],
        *,
        fields: bool,
        with_labels: bool,
        with_mask: bool,
        with_ids: bool,
        with_keys: bool = False,
        decoded: bool = True,
    ) -> None:
        self._decoded = decoded
        self._channels_last = settings["memory_format"] == "nhwc"
        self._kinds, self._optional = made.fields, made._optional
        # Class numbers that are not mixed themselves come with those of the partners.
        self._with_partners = made._mixes_hard_labels
        self._has_fields, self._with_labels = fields, with_labels
        self._with_mask, self._with_ids, self._with_keys = with_mask, with_ids, with_keys
        if fields:
            self._check_keys()

    def tensors(self, batch: Batch) -> Any:
        """Convert a batch: to a tuple, to a single tensor if it has only images, or with fields to a dict."""
        named: dict[str, torch.Tensor] = {}
        if self._with_mask:
            # The mask is passed as bytes, because torch before 2.2 does not take bool by DLPack.
            named["mask"] = torch.from_dlpack(batch._mask_bytes).bool()
        if self._with_ids:
            named["sample_ids"] = torch.from_dlpack(batch.sample_ids)
        if self._has_fields:
            fields = {name: self._field(field, self._kinds[name]) for name, field in batch.items()}
            for name in self._optional:
                fields[f"{name}.present"] = torch.from_dlpack(batch._present_bytes(name)).bool()
            if self._with_partners:
                _, fields["label.partner"], fields["label.share"] = map(torch.from_dlpack, batch.mixed)
            if batch.bucket is not None:
                fields["bucket"] = batch.bucket
                fields["original_sizes"] = torch.from_dlpack(batch.original_sizes)
                fields["crops"] = torch.from_dlpack(batch.crops)
            return {**fields, **named}
        images = self._field(batch["image"], "image") if self._decoded else self._field(batch.files, "bytes")
        labels = [self._labels(batch)] if self._with_labels else []
        keys = [batch["__key__"]] if self._with_keys else []
        tensors = (images, *labels, *named.values(), *keys)
        return tensors if len(tensors) > 1 else images

    def _labels(self, batch: Batch) -> Any:
        if self._with_partners:
            return tuple(map(torch.from_dlpack, batch.mixed))
        return torch.from_dlpack(batch.labels)

    def _field(self, field: Any, kind: str) -> Any:
        """Convert all tensors within a field to torch's; other values do not change."""
        if kind == "json":
            return field
        if isinstance(field, tuple | list):
            return type(field)(self._field(item, kind) for item in field)
        if not isinstance(field, Tensor):
            return field
        tensor = torch.from_dlpack(field)
        is_image = kind == "image" and tensor.ndim > 2
        return tensor.movedim(-1, -3) if is_image and self._channels_last else tensor

    def _check_keys(self) -> None:
        """Raise an error if a field has the name of another key of a batch's dict."""
        keys = {
            "with_mask": ["mask"] if self._with_mask else [],
            "with_ids": ["sample_ids"] if self._with_ids else [],
            "fields": [f"{name}.present" for name in self._optional],
            "mix": ["label.partner", "label.share"] if self._with_partners else [],
        }
        for setting, added in keys.items():
            for key in added:
                if key in self._kinds:
                    adds = {
                        "fields": "has an optional field, which adds",
                        "mix": "has no num_classes, so it adds",
                    }.get(setting, "is True, which adds")
                    message = f"{adds} the key {key!r} to each batch, but fields= has a field of that name"
                    remedy = "give that field another name=, or remove one of the two"
                    raise config_error(setting, f"{message}: {remedy}")
