"""From the plugin's configuration in the host to the core's: without what concerns the host, and with references resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["HOST_KEYS", "SECRET_KEYS", "core_config"]

HOST_KEYS: Final = ("command",)
"""``command``: the program that is the bridge, as one path or as a list with its first arguments."""

SECRET_KEYS: Final = ("key", "privateKey")
"""The spellings of the gateway's secret, which may be a reference."""


def core_config(config: object, environ: Mapping[str, str]) -> object:
    """Return the core's part of a configuration; what is no object is the core's to complain about.

    The host resolves references to secrets for its gateway, and not for its own commands, which search memory, too: one to
    a variable that is set is resolved here.
    """
    if not isinstance(config, Mapping):
        return config
    return {
        key: _resolved(value, environ) if key in SECRET_KEYS else value
        for key, value in config.items()
        if key not in HOST_KEYS
    }


def _resolved(value: object, environ: Mapping[str, str]) -> object:
    if isinstance(value, Mapping) and value.get("source") == "env":
        return environ.get(str(value.get("id", ""))) or value
    return value
