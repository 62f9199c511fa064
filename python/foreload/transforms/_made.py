"""The classes of the core's table of transforms. `make stub` writes their types to `_made.pyi`."""

from __future__ import annotations

import json
from dataclasses import MISSING, field, make_dataclass
from typing import Any

from foreload._core import TRANSFORMS
from foreload.transforms import _base, _checks


def _made(row: dict[str, Any]) -> type:
    """Return the dataclass of a transform."""
    base = getattr(_base, row["base"])
    parameters, checks = [], {}
    for parameter in row["parameters"]:
        default = parameter.get("default", MISSING)
        default = tuple(default) if isinstance(default, list) else default
        parameters.append((parameter["name"], parameter["annotation"], field(default=default)))
        check = getattr(_checks, parameter["check"])
        check = check if parameter["must"] is None else check(parameter["must"])
        checks[parameter["name"]] = _checks.optional(check) if parameter["optional"] else check
    namespace = {"__doc__": row["doc"], "_checks": checks}
    by_name = issubclass(base, _base.Mix)
    made = make_dataclass(
        row["name"], parameters, bases=(base,), namespace=namespace, frozen=True, kw_only=by_name
    )
    # Pickles find the class by this name.
    made.__module__ = "foreload.transforms"
    return made


_ROWS = json.loads(TRANSFORMS)
__all__ = [row["name"] for row in _ROWS]
globals().update({row["name"]: _made(row) for row in _ROWS})
