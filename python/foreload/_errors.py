"""The errors of settings, in the core's form: which setting, and what about it; and settings as the core reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from foreload._core import ConfigError


def config_error(setting: str, message: str) -> ConfigError:
    """Return the error of a setting. The message goes on after its name: `is 0, must be at least 1`."""
    return ConfigError(f"config: {setting}: {message}")


def json_of(setting: str, document: Callable[[], Any]) -> str:
    """Return the JSON of the document that a setting makes.

    Raises:
        ConfigError: It cannot be written, because its objects hold one another too deeply.
    """
    try:
        return json.dumps(document())
    except RecursionError:
        raise config_error(setting, "holds objects that lie in one another too deeply") from None
