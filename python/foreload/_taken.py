"""The common part of the modules that translate datasets of other libraries: names of shards, and merged settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from foreload._core import without_secrets
from foreload._errors import config_error

_SPECIAL = frozenset("{},")
"""Characters with a meaning in a name with braces."""


def whole(taken: dict[str, Any], given: dict[str, Any], batch_size: int | None) -> dict[str, Any]:
    """Return the settings of a dataset together with the caller's, which may not repeat them.

    Raises:
        ConfigError: A setting is given twice, or the batch size is missing.
    """
    given = dict(given) if batch_size is None else {**given, "batch_size": batch_size}
    for name in taken.keys() & given.keys():
        message = (
            f"is {shown(given[name])!r}, but {shown(taken[name])!r} in the dataset: remove it, or change the "
            "dataset"
        )
        raise config_error(name, message)
    if "batch_size" not in {**taken, **given}:
        raise config_error("batch_size", "is not set by the dataset: pass batch_size=")
    return {**taken, **given}


def one_name(names: Sequence[str]) -> str | list[str]:
    """Return one name with braces for these shards; if there can be none, their list."""
    if len(names) == 1:
        return names[0]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise config_error("dataset", f"has {shown(twice)} twice: list each shard once")
    if any(_SPECIAL & set(name) for name in names):
        return list(names)
    prefix = _common(names).rstrip("0123456789")
    suffix = _common([name[len(prefix) :][::-1] for name in names])[::-1]
    middle = [name[len(prefix) : len(name) - len(suffix)] for name in names]
    if not all(middle):
        return list(names)
    first, last = middle[0], middle[-1]
    if first.isascii() and first.isdigit() and last.isdigit() and len(first) == len(last):
        counted = [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]
        if middle == counted:
            return f"{prefix}{{{first}..{last}}}{suffix}"
    return f"{prefix}{{{','.join(middle)}}}{suffix}"


def _common(names: Sequence[str]) -> str:
    """Return the common beginning of all names."""
    first, last = min(names), max(names)
    same = (at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return first[: next(same, min(len(first), len(last)))]


def shown(value: Any) -> Any:
    """Return a value as messages may show it: URLs without user, password and query."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [shown(item) for item in value]
    return os.fspath(without_secrets(value)) if isinstance(value, str) else value


def called(thing: Any) -> str:
    """Return the name of a function or of an object's class, for messages."""
    name = getattr(thing, "__qualname__", None) or type(thing).__qualname__
    module = getattr(thing, "__module__", None) or type(thing).__module__
    return f"{module}.{name}"
