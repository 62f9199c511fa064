"""Translates WebDataset's pipelines into settings of Foreload; webdataset is never imported."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from foreload import transforms
from foreload._core import IMAGE_EXTENSIONS, is_random
from foreload._errors import config_error
from foreload._notices import warn
from foreload._taken import called, one_name, shown
from foreload._transform_reader import is_a, read

_PASSED_OVER = ("single_node_only", "split_by_node", "split_by_worker", "check_empty")
"""Stages that have no effect here: ranks and threads divide samples, not shards."""
_RGB = ("pil", "pilrgb", "rgb8", "torchrgb8")
_RGB_FLOATS = ("rgb", "torch", "torchrgb")
_SELECT = "choose samples by indices=, files= or classes="
_SHUFFLED = 1000
"""The number of samples in the buffer of `shuffle()`."""
_BY_HAND = "apply it to the batches, or prepare the members once"
_WHAT_TO_DO = {
    "_select": _SELECT,
    "_rsample": _SELECT,
    "_slice": _SELECT,
    "_map": "pass transforms= to ImageDataset, and apply the rest to the batches",
    "_xdecode": 'use .decode("pil")',
}


@dataclass
class _Pipeline:
    """The settings from the stages of a pipeline so far."""

    urls: list[str] | None = None
    keys: list[str] | None = None
    renamed: dict[str, str] = field(default_factory=dict)
    decoded: str | None = None
    steps: list[transforms.Transform] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def original(self, key: str) -> str:
        """Return the names of members, in WebDataset's notation, of a key before all renaming."""
        return self.renamed.get(key, key)


def settings_of(source: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of `foreload.torch.ImageDataset` that are equivalent to `source`.

    Args:
        source: A URL or path of shards, with braces or without, a list of these, or a pipeline of webdataset.
        given: The caller's own settings, which set the transforms of images if the pipeline does not.

    Raises:
        ConfigError: It does something that Foreload does not support; the message says what, and what to do.
    """
    if isinstance(source, str | os.PathLike):
        return {"path": _local(os.fspath(source))}
    if isinstance(source, list | tuple):
        return {"path": one_name([_local(os.fspath(url)) for url in source])}
    if not hasattr(source, "pipeline"):
        raise config_error("source", f"is a {called(type(source))}, must be URLs or a pipeline of webdataset")
    found = _Pipeline(settings={"shuffle": False})
    _read(source, found)
    if found.urls is None:
        raise config_error("source", "has no list of shards, such as webdataset.SimpleShardList")
    settings = {"path": one_name([_local(url) for url in found.urls]), **found.settings, **_fields(found)}
    if found.decoded is None:
        raise config_error("decode", 'is not a stage of the pipeline, so it gives bytes: add .decode("pil")')
    if found.steps is not None:
        training = is_random(transforms.to_json(found.steps))
        return {**settings, "train": training, "transforms": found.steps}
    if not given.keys() & {"transforms", "image_size"}:
        message = (
            "are not in the pipeline, but a batch needs images of one size: pass transforms= or image_size="
        )
        raise config_error("transforms", message)
    return settings


def _local(url: str) -> str:
    """Return a URL or path in the form that Foreload takes."""
    if url.startswith("pipe:"):
        raise config_error(
            "source", f"has {shown(url)!r}, but Foreload runs no program: pass the URL or path that it reads"
        )
    return url.removeprefix("file:")


def _read(source: Any, found: _Pipeline) -> None:
    for stage in source.pipeline:
        _read_stage(stage, found)
    if getattr(source, "repetitions", 1) != 1:
        warn(
            "with_epoch() and repeat() are not taken over: an epoch has every sample once, and each iteration is the "
            "next epoch"
        )


def _read_stage(stage: Any, found: _Pipeline) -> None:
    if is_a(stage, "torch.utils.data", "DataLoader"):
        _read(stage.dataset, found)
        if stage.batch_size is not None:
            _batch(found, stage.batch_size, partial=not stage.drop_last)
    elif is_a(stage, "webdataset", "SimpleShardList"):
        found.urls = list(stage.urls)
    elif is_a(stage, "webdataset", "StreamingOpen"):
        _handle(getattr(stage, "handler", None), found)
    elif is_a(stage, "webdataset", "FileCache"):
        warn(
            f"cache_dir={stage.cache_dir!r} is not taken over: for a cache, pass cache=foreload.Directory(path, size)"
        )
    elif is_a(stage, "webdataset", "detshuffle"):
        found.settings["shuffle"] = True
    elif is_a(stage, "webdataset", "FilterFunction"):
        _read_filter(stage, found)
    elif is_a(stage, "webdataset", "ResampledShards"):
        message = "draws shards with replacement: remove resampled=True; weights= and ratios= draw samples more often"
        raise config_error("resampled", message)
    elif getattr(stage, "__name__", "") not in _PASSED_OVER:
        raise config_error("source", f"has the stage {called(stage)}, which cannot be taken over: {_BY_HAND}")


def _read_filter(stage: Any, found: _Pipeline) -> None:
    name, args, kw = stage.f.__name__, stage.args, dict(stage.kw)
    _handle(kw.pop("handler", None), found)
    readers: dict[str, Callable[..., None]] = {
        "_to_tuple": _to_tuple,
        "_map_tuple": _map_tuple,
        "_map_dict": _map_dict,
        "_rename": _rename,
        "_batched": _batched,
        "_decode": _decode,
    }
    if name in ("tar_file_expander", "tarfile_samples", "group_by_keys"):
        changed = [key for key in ("select_files", "rename_files") if kw.get(key) is not None]
        if changed:
            raise config_error(changed[0], f"is {called(kw[changed[0]])}, your own function: remove it")
    elif name == "_shuffle":
        found.settings["shuffle"] |= bool(args[0] if args else kw.get("bufsize", _SHUFFLED))
    elif name == "_unbatched":
        found.settings.pop("batch_size", None)
        found.settings.pop("last_batch", None)
    elif name == "_map" and is_a(function := args[0] if args else kw.get("f"), "webdataset", "Decoder"):
        _decode(found, *function.handlers, only=getattr(function, "only", None))
    elif name in readers:
        readers[name](found, *args, **kw)
    else:
        of = f" of {called(args[0])}" if args and callable(args[0]) else ""
        message = f"has the stage {name.strip('_')}{of}, which cannot be taken over: {_WHAT_TO_DO.get(name, _BY_HAND)}"
        raise config_error("source", message)


def _handle(handler: Any, found: _Pipeline) -> None:
    """Translate how samples that fail are handled."""
    name = getattr(handler, "__name__", "reraise_exception")
    if name in ("ignore_and_continue", "warn_and_continue"):
        found.settings["on_error"] = "skip"
    elif name != "reraise_exception":
        raise config_error(
            "handler", f"is {called(handler)}: remove it, and see on_error=, max_errors= and bad_shards="
        )


def _decode(found: _Pipeline, *handlers: Any, only: Any = None, **_: Any) -> None:
    if only:
        raise config_error("only", f"is {only!r}, but to_tuple decides which members are images: remove it")
    for handler in handlers:
        if isinstance(handler, str) or is_a(handler, "webdataset", "ImageHandler"):
            found.decoded = handler if isinstance(handler, str) else handler.imagespec
            if found.decoded not in (*_RGB, *_RGB_FLOATS):
                message = f"is {found.decoded!r}, but images are RGB here: see transforms.Grayscale"
                raise config_error("decode", message)
        elif not getattr(handler, "__module__", "").startswith("webdataset"):
            raise config_error("decode", f"has {called(handler)}, your own decoder: {_BY_HAND}")


def _to_tuple(found: _Pipeline, *keys: str, **_: Any) -> None:
    names = keys[0].split() if len(keys) == 1 and isinstance(keys[0], str) else list(keys)
    found.keys = [found.original(name) for name in names]


def _map_tuple(found: _Pipeline, *functions: Any) -> None:
    if found.keys is None:
        raise config_error(
            "map_tuple", "comes before to_tuple, so the arguments of its functions are unknown"
        )
    for key, function in zip(found.keys, functions, strict=False):
        _apply(found, key, function)


def _map_dict(found: _Pipeline, **functions: Any) -> None:
    for key, function in functions.items():
        _apply(found, found.original(key), function)


def _apply(found: _Pipeline, key: str, function: Any) -> None:
    """Translate a function of one member."""
    if _is_image(key):
        if found.decoded in _RGB_FLOATS:
            message = f'is {found.decoded!r}, so transforms would get floats: use .decode("pil")'
            raise config_error("decode", message)
        found.steps = [*(found.steps or []), *read(function)]
    elif function is not None and function is not {"cls": int, "txt": str}.get(key):
        raise config_error(
            "map", f"passes {key!r} to {called(function)}, which cannot be taken over: {_BY_HAND}"
        )


def _rename(found: _Pipeline, keep: bool = True, **names: str) -> None:
    found.renamed.update({new: found.original(old) for new, old in names.items()})


def _batched(found: _Pipeline, batchsize: int = 20, *more: Any, **kw: Any) -> None:
    collation, partial = (*more, *(kw.get("collation_fn", ...), kw.get("partial", True))[len(more) :])
    if collation is not ... and getattr(collation, "__name__", "") != "default_collation_fn":
        what = "None" if collation is None else called(collation)
        raise config_error("collation_fn", f"is {what}: remove it, and apply it to the batches")
    _batch(found, batchsize, partial=partial)


def _batch(found: _Pipeline, size: int, *, partial: bool) -> None:
    if "batch_size" in found.settings:
        raise config_error("batched", "makes batches of batches: remove one of the two, or add .unbatched()")
    found.settings.update(batch_size=size, last_batch="partial" if partial else "drop")


def _is_image(key: str) -> bool:
    return all(name in IMAGE_EXTENSIONS for name in key.split(";"))


def _fields(found: _Pipeline) -> dict[str, Any]:
    """Return the settings that give batches the content of a pipeline's tuples."""
    keys = found.keys
    if keys is None:
        raise config_error(
            "source", 'gives dicts of all members: choose some with .to_tuple("jpg;png", "cls")'
        )
    for key in keys:
        if key.startswith("__"):
            raise config_error("to_tuple", f"has {key!r}: with_ids=True gives the numbers of samples instead")
        if ";" in key and not _is_image(key):
            raise config_error("to_tuple", f"has {key!r}, but only images may have several names: give one")
    if len(keys) == 2 and _is_image(keys[0]) and keys[1] == "cls":
        return {}
    if len(keys) == 1 and _is_image(keys[0]):
        return {"with_labels": False}
    return {"fields": ["image" if ";" in key else key for key in keys]}
