"""Long-term memory for an agent: recall before a turn, capture after it.

    from gateway_plugin import MemoryPlugin

Importing this package is cheap: a class and its dependencies are loaded when the class is first accessed, because a host
imports its plugins even if no turn uses them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway_plugin.plugin import AsyncMemoryPlugin, MemoryPlugin

__all__ = ["AsyncMemoryPlugin", "MemoryPlugin", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in {"MemoryPlugin", "AsyncMemoryPlugin"}:
        from gateway_plugin import plugin  # noqa: PLC0415 - the point of this function

        return getattr(plugin, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
