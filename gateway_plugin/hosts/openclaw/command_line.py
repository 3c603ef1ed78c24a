"""``openclaw memrelay ...``: the commands of ``memrelay-gateway`` with the settings of the host's plugin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from gateway_plugin.errors import SettingsError, SettingsIssue
from gateway_plugin.hosts.openclaw.config import SECRET_KEYS, core_config
from gateway_plugin.settings import DEFAULT_NAMESPACE_VARIABLE, safe_load

__all__ = ["CONFIG_VARIABLE", "command_environment"]

CONFIG_VARIABLE: Final = "MEMRELAY_OPENCLAW_CONFIG"
"""Where the host's plugin puts its configuration, as JSON."""

_SECRET: Final = "MEMRELAY_SECRET"  # noqa: S105 - the name of a variable


def command_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make a command use the plugin's settings.

    Args:
        environ: the environment as the host's plugin left it.

    Raises:
        SettingsError: the secret is a reference that only the gateway resolves. Another secret would be another account:
            no answer is better than a wrong one.
    """
    config = _config(environ.get(CONFIG_VARIABLE, ""))
    given = _places(config, environ)
    key = next((config[name] for name in SECRET_KEYS if config.get(name)), None)
    if isinstance(key, Mapping) and key.get("source") == "env":
        # The host resolves references for its gateway, not for its commands.
        key = environ.get(str(key.get("id", "")), key)
    given[_SECRET] = key
    found = {name: value for name, value in given.items() if isinstance(value, str) and value.strip()}
    if key and _SECRET not in found and not environ.get(_SECRET):
        problem = "is a reference that only the gateway resolves"
        raise SettingsError(SettingsIssue("config.key", problem, f"set {_SECRET} for this command"))
    return found


def _places(config: Mapping[str, object], environ: Mapping[str, str]) -> dict[str, object]:
    """Return relayer and agent, in whichever of the accepted spellings the configuration names them."""
    plain = core_config({name: value for name, value in config.items() if name not in SECRET_KEYS}, environ)
    settings = safe_load(plain, environ).settings
    if settings is None:
        # What is wrong elsewhere in it must not send the command to another relayer.
        return {"MEMRELAY_URL": config.get("url"), "MEMRELAY_AGENT": config.get("agent")}
    return {
        "MEMRELAY_URL": settings.url if "url" in settings.model_fields_set else None,
        "MEMRELAY_AGENT": settings.agent,
        DEFAULT_NAMESPACE_VARIABLE: settings.namespace.default
        if "default" in settings.namespace.model_fields_set
        else None,
    }


def _config(text: str) -> Mapping[str, object]:
    try:
        config = json.loads(text) if text else {}
    except ValueError:
        return {}
    return config if isinstance(config, Mapping) else {}
