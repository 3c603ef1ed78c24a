"""Keeps a copy of what is damaged before it is replaced: somebody may still make sense of it."""

from __future__ import annotations

from collections.abc import Sequence

from relayer.errors import StoreUnavailable
from relayer.log.log_ports import LogPorts
from relayer.ports import Created, Exists, Found
from relayer.wire import ulid

__all__ = ["PREFIX", "quarantine"]

PREFIX = "quarantine/"
_ULID_RANDOM = 10


async def quarantine(ports: LogPorts, keys: Sequence[str], now_ms: int) -> list[str]:
    """Copy objects below `PREFIX`; returns the keys of those that were there.

    Raises:
        StoreError: one could not be copied; the originals are untouched.
    """
    name = ulid.render(ulid.make(now_ms, ports.randomness.bytes(_ULID_RANDOM)))
    copied = []
    for key in keys:
        found = await ports.store.get(ports.layout.at(key))
        if not isinstance(found, Found):
            continue
        outcome = await ports.store.create(ports.layout.at(f"{PREFIX}{name}/{key}"), found.data)
        if not isinstance(outcome, Created | Exists):
            raise StoreUnavailable("a damaged object could not be copied to quarantine; nothing was changed")
        copied.append(key)
    return copied
