"""Captured turns on their way to the relayer: where they wait, who delivers them, and the marks that move with them.

Imports keys and calls to the relayer, and nothing of what decides about a turn; whoever composes a plugin or looks at what waits
may import it. The names here are the contract; `gateway_plugin.outbox.file` is the durable outbox, `gateway_plugin.outbox.memory`
the one of a process that does not outlive its turns.
"""

from gateway_plugin.outbox.contract import (
    MAX_DEAD,
    MAX_MARKS,
    NOTHING_KEPT,
    OWN_ROOM,
    Kept,
    Letter,
    Mark,
    MarkMoved,
    NamespaceRef,
    Outbox,
    OutboxFull,
    OutboxItem,
    OutboxUnavailable,
)

__all__ = [
    "MAX_DEAD",
    "MAX_MARKS",
    "NOTHING_KEPT",
    "OWN_ROOM",
    "Kept",
    "Letter",
    "Mark",
    "MarkMoved",
    "Outbox",
    "OutboxFull",
    "OutboxItem",
    "OutboxUnavailable",
    "NamespaceRef",
]
