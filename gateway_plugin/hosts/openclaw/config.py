"""The keys of the plugin's configuration that concern how it sits in the host, apart from those of the plugin's core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["HOST_KEYS", "without_host_keys"]

HOST_KEYS: Final = ("command",)
"""``command``: the program that is the bridge, as one path or as a list with its first arguments."""


def without_host_keys(config: object) -> object:
    """Return the core's part of a configuration; what is no object is the core's to complain about."""
    if not isinstance(config, Mapping):
        return config
    return {key: value for key, value in config.items() if key not in HOST_KEYS}
