"""memrelay for programs: long-term memory for an agent, by the name that it is installed under.

    from memrelay import MemoryPlugin

Importing this package is light: what a name needs is loaded when it is first asked for. Each name is one of the public
modules of `gateway_plugin`; ``docs/python-api.md`` shows them in use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from gateway_plugin import __version__

if TYPE_CHECKING:
    from gateway_plugin.client import RelayerClient
    from gateway_plugin.errors import (
        DeadlineExceeded,
        GatewayError,
        IdentityError,
        RelayerRefused,
        RelayerUnreachable,
        RelayerUntrusted,
        SettingsError,
        SettingsIssue,
    )
    from gateway_plugin.plugin import (
        AsyncMemoryPlugin,
        CaptureReport,
        HostTurn,
        Injection,
        MemoryPlugin,
        PluginStatus,
    )
    from gateway_plugin.settings import PluginSettings
    from gateway_plugin.sync_client import SyncRelayerClient

__all__ = [
    "AsyncMemoryPlugin",
    "CaptureReport",
    "DeadlineExceeded",
    "GatewayError",
    "HostTurn",
    "IdentityError",
    "Injection",
    "MemoryPlugin",
    "PluginSettings",
    "PluginStatus",
    "RelayerClient",
    "RelayerRefused",
    "RelayerUnreachable",
    "RelayerUntrusted",
    "SettingsError",
    "SettingsIssue",
    "SyncRelayerClient",
    "__version__",
]

# Where a name is that is no error.
_MODULES: Final = {
    "AsyncMemoryPlugin": "plugin",
    "CaptureReport": "plugin",
    "HostTurn": "plugin",
    "Injection": "plugin",
    "MemoryPlugin": "plugin",
    "PluginSettings": "settings",
    "PluginStatus": "plugin",
    "RelayerClient": "client",
    "SyncRelayerClient": "sync_client",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"gateway_plugin.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
