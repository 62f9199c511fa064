"""The errors of settings, in the core's form: which setting, and what about it."""

from __future__ import annotations

from foreload._core import ConfigError


def config_error(setting: str, message: str) -> ConfigError:
    """Return the error of a setting. The message goes on behind its name: `is 0, must be at least 1`."""
    return ConfigError(f"config: {setting}: {message}")
