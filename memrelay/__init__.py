"""The public Python interface of memrelay: long-term memory for AI agents.

    from memrelay import Memory

`Memory` adds, searches and manages memories of an agent and its users; `AsyncMemory` does the same on an event loop.
`MemoryPlugin` recalls memories before a turn and captures the turn afterwards; `AsyncMemoryPlugin` does the same on an event loop. `SyncRelayerClient` and `RelayerClient` call the relayer's API directly. `PluginSettings` holds the settings,
and every deliberate error is a `MemrelayError`. All of these are defined in `gateway_plugin` and
imported on first access, so ``import memrelay`` itself is fast. See ``docs/python-api.md`` for examples.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from gateway_plugin import __version__

if TYPE_CHECKING:
    from gateway_plugin.client import RelayerClient, SyncRelayerClient
    from gateway_plugin.errors import (
        DeadlineExceeded,
        GatewayError,
        IdentityError,
        InvalidInput,
        MemrelayError,
        RelayerRefused,
        RelayerUnreachable,
        RelayerUntrusted,
        SettingsError,
        SettingsIssue,
    )
    from gateway_plugin.memory import (
        Added,
        AskAnswer,
        AsyncMemory,
        ErasureReport,
        ImportReport,
        Memory,
        MemoryChange,
        MemoryChanges,
        MemoryProfile,
        SearchHit,
        StoredMemory,
    )
    from gateway_plugin.plugin import (
        AsyncMemoryPlugin,
        CaptureReport,
        HostTurn,
        Injection,
        MemoryPlugin,
        PluginStatus,
    )
    from gateway_plugin.settings.model import PluginSettings

__all__ = [
    "Added",
    "AskAnswer",
    "AsyncMemory",
    "AsyncMemoryPlugin",
    "CaptureReport",
    "DeadlineExceeded",
    "ErasureReport",
    "GatewayError",
    "HostTurn",
    "IdentityError",
    "ImportReport",
    "Injection",
    "InvalidInput",
    "Memory",
    "MemoryChange",
    "MemoryChanges",
    "MemoryPlugin",
    "MemoryProfile",
    "MemrelayError",
    "PluginSettings",
    "PluginStatus",
    "RelayerClient",
    "RelayerRefused",
    "RelayerUnreachable",
    "RelayerUntrusted",
    "SearchHit",
    "SettingsError",
    "SettingsIssue",
    "StoredMemory",
    "SyncRelayerClient",
    "__version__",
]

# The names of each module of `gateway_plugin`. Those that are not listed here are in its module `errors`.
_NAMES: Final = {
    "client": ("RelayerClient", "SyncRelayerClient"),
    "memory": (
        "Added", "AskAnswer", "AsyncMemory", "ErasureReport", "ImportReport", "Memory", "MemoryChange", "MemoryChanges",
        "MemoryProfile", "SearchHit", "StoredMemory",
    ),
    "plugin": ("AsyncMemoryPlugin", "CaptureReport", "HostTurn", "Injection", "MemoryPlugin", "PluginStatus"),
    "settings.model": ("PluginSettings",),
}  # fmt: skip
_MODULES: Final = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"gateway_plugin.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
