"""Errors about settings in the core's format, and settings as JSON for the core."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from foreload._core import ConfigError


def config_error(setting: str, message: str) -> ConfigError:
    """Return the error of a setting. The message continues its name: `is 0, must be at least 1`."""
    return ConfigError(f"config: {setting}: {message}")


def json_of(setting: str, document: Callable[[], Any]) -> str:
    """Return the JSON of the document of a setting.

    Raises:
        ConfigError: It cannot be written, because its objects are nested too deeply.
    """
    try:
        return json.dumps(document())
    except RecursionError:
        raise config_error(setting, "has objects that are nested too deeply") from None
