"""Translates MosaicML's `StreamingDataset` into settings of Foreload; streaming is never imported."""

from __future__ import annotations

import os
from typing import Any

from foreload._core import is_for_evaluation
from foreload._errors import config_error
from foreload._notices import warn
from foreload._taken import called, shown
from foreload._transform_reader import is_a

_SCHEMES = ("s3", "gs", "az", "http", "https")
"""The URL schemes that mean the same in both libraries."""


def settings_of(dataset: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of `foreload.torch.ImageDataset` that are equivalent to `dataset`.

    Args:
        dataset: A `streaming.StreamingDataset`.
        given: The caller's own settings, which set the transforms of images.

    Raises:
        ConfigError: It does something that Foreload does not support; the message says what, and what to do.
    """
    _check(dataset, given)
    streams = list(dataset.streams)
    paths = [_path(stream) for stream in streams]
    settings = {
        "path": paths[0] if len(paths) == 1 else paths,
        "shuffle": bool(dataset.shuffle),
        "seed": int(dataset.shuffle_seed),
        **_shares(dataset, streams),
    }
    if dataset.batch_size is not None:
        settings["batch_size"] = int(dataset.batch_size)
    if "train" not in given and all(is_for_evaluation(stream.split or "") for stream in streams):
        settings["train"] = False
    if any(stream.remote for stream in streams) and "cache" not in given:
        limit = dataset.cache_limit or "a size"
        warn(
            f"local={streams[0].local!r} and cache_limit={dataset.cache_limit!r} are not taken over: to keep copies on "
            f"this node, pass cache=foreload.Directory(path, {limit!r})"
        )
    return settings


def check_same_samples(dataset: Any, loader: Any) -> None:
    """Check that the loader has as many samples as the dataset.

    Raises:
        ConfigError: It has more or fewer.
    """
    if loader.samples != dataset.num_samples:
        message = f"has {dataset.num_samples} samples, but its shards have {loader.samples}: pass rebuild_index=True"
        raise config_error("dataset", message)


def _check(dataset: Any, given: dict[str, Any]) -> None:
    kind = type(dataset)
    if not any(base.__name__ == "StreamingDataset" and _is_theirs(base) for base in kind.__mro__):
        message = f"is a {called(kind)}, must be a streaming.StreamingDataset"
        raise config_error("dataset", message)
    if not is_a(dataset, "streaming", "StreamingDataset") and not given.keys() & {"transforms", "image_size"}:
        message = (
            f"is a {called(kind)}, whose __getitem__ cannot be taken over: pass transforms= that do the same"
        )
        raise config_error("dataset", message)
    if dataset.batching_method != "random":
        message = f"is {dataset.batching_method!r}, must be 'random': batches here mix all streams"
        raise config_error("batching_method", message)
    if dataset.replication is not None:
        message = (
            f"is {dataset.replication}, must be None: pass rank= and world_size= of the data-parallel group"
        )
        raise config_error("replication", message)


def _is_theirs(kind: type) -> bool:
    return kind.__module__ == "streaming" or kind.__module__.startswith("streaming.")


def _path(stream: Any) -> str:
    """Return the place that has all shards of a stream; `local` may have only some of them."""
    if not is_a(stream, "streaming", "Stream"):
        raise config_error("streams", f"has a {called(type(stream))}, must have streaming.Stream itself")
    root = os.fspath(stream.remote if stream.remote is not None else stream.local)
    scheme, colon, rest = root.partition("://")
    if colon and scheme == "file":
        root = rest
    elif colon and scheme not in _SCHEMES:
        message = f"is {shown(root)!r}, whose scheme is not supported: copy it to a file system, or serve it by https"
        raise config_error("remote", message)
    return f"{root.rstrip('/')}/{stream.split}" if stream.split else root


def _shares(dataset: Any, streams: list[Any]) -> dict[str, Any]:
    """Return the settings for how often the samples of each stream are drawn."""
    for name in ("repeat", "choose"):
        if any(getattr(stream, f"_{name}", None) is not None for stream in streams):
            raise config_error(
                name, "of a stream is not taken over: pass weights=, or use proportion= of the streams"
            )
    shares = [getattr(stream, "_proportion", None) for stream in streams]
    if any(share is not None for share in shares) and len(streams) > 1:
        return {"ratios": [float(share) for share in shares], "epoch_size": int(dataset.epoch_size)}
    if dataset.epoch_size != dataset.num_samples:
        message = (
            f"is {dataset.epoch_size}, but an epoch has all {dataset.num_samples} samples once: remove it"
        )
        raise config_error("epoch_size", message)
    return {}
