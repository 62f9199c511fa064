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
"""Those of URLs that mean the same to both."""


def settings_of(dataset: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The settings of `foreload.torch.ImageDataset` that mean what `dataset` does.

    Args:
        dataset: A `streaming.StreamingDataset`.
        given: The caller's own settings, which say what is done to images.

    Raises:
        ConfigError: It does something that Foreload does not do; the message says what, and what to do.
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
            f"local={streams[0].local!r} and cache_limit={dataset.cache_limit!r} are not taken over: to keep what was "
            f"read on this node, give cache=foreload.Directory(path, {limit!r})"
        )
    return settings


def check_same_samples(dataset: Any, loader: Any) -> None:
    """Check that the loader has as many samples.

    Raises:
        ConfigError: It has not.
    """
    if loader.samples != dataset.num_samples:
        message = (
            f"has {dataset.num_samples} samples, what lies there {loader.samples}: say rebuild_index=True"
        )
        raise config_error("dataset", message)


def _check(dataset: Any, given: dict[str, Any]) -> None:
    kind = type(dataset)
    if not any(base.__name__ == "StreamingDataset" and _is_theirs(base) for base in kind.__mro__):
        message = f"is a {called(kind)}, must be a streaming.StreamingDataset"
        raise config_error("dataset", message)
    if not is_a(dataset, "streaming", "StreamingDataset") and not given.keys() & {"transforms", "image_size"}:
        message = (
            f"is a {called(kind)}, whose __getitem__ cannot be taken over: say what it does by transforms="
        )
        raise config_error("dataset", message)
    if dataset.batching_method != "random":
        message = f"is {dataset.batching_method!r}, must be 'random': batches here are of all streams"
        raise config_error("batching_method", message)
    if dataset.replication is not None:
        message = (
            f"is {dataset.replication}, must be None: give rank= and world_size= of the data-parallel group"
        )
        raise config_error("replication", message)


def _is_theirs(kind: type) -> bool:
    return kind.__module__ == "streaming" or kind.__module__.startswith("streaming.")


def _path(stream: Any) -> str:
    """Where all shards of a stream are, which `local` may have but in part."""
    if not is_a(stream, "streaming", "Stream"):
        raise config_error("streams", f"has a {called(type(stream))}, must have streaming.Stream itself")
    root = os.fspath(stream.remote if stream.remote is not None else stream.local)
    scheme, colon, rest = root.partition("://")
    if colon and scheme == "file":
        root = rest
    elif colon and scheme not in _SCHEMES:
        message = f"is {shown(root)!r}, whose kind of place is not read: copy it to a file system, or serve it by https"
        raise config_error("remote", message)
    return f"{root.rstrip('/')}/{stream.split}" if stream.split else root


def _shares(dataset: Any, streams: list[Any]) -> dict[str, Any]:
    """How often the samples of each stream are drawn."""
    for name in ("repeat", "choose"):
        if any(getattr(stream, f"_{name}", None) is not None for stream in streams):
            raise config_error(
                name, "of a stream is not taken over: give weights=, or proportion= of the streams"
            )
    shares = [getattr(stream, "_proportion", None) for stream in streams]
    if any(share is not None for share in shares) and len(streams) > 1:
        return {"ratios": [float(share) for share in shares], "epoch_size": int(dataset.epoch_size)}
    if dataset.epoch_size != dataset.num_samples:
        message = (
            f"is {dataset.epoch_size}, and an epoch has all {dataset.num_samples} samples once: leave it out"
        )
        raise config_error("epoch_size", message)
    return {}
