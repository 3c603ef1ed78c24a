"""What every part of the log is given from outside, and what it raises."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from relayer.crypto.relayer_keys import RelayerKeys
from relayer.domain.namespace import Position
from relayer.errors import RelayerError
from relayer.log.layout import Layout
from relayer.ports import Clock, Found, ObjectInfo, ObjectStore, Randomness

TRUST_MS = 10 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogPorts:
    """The store and where in it, the clock, the randomness, and the relayer's keys.

    Attributes:
        trust_ms: for how long an answer of the manifest vouches for slots, by the store's time; 0 reads it again for
            every answer. Must be well below the time that any relayer of this store lets pass before it deletes.
    """

    store: ObjectStore
    clock: Clock
    randomness: Randomness
    keys: RelayerKeys = field(repr=False)
    layout: Layout = field(default_factory=Layout)
    trust_ms: int = TRUST_MS

    async def get(self, key: str) -> Found | None:
        """Return the object at a key of the layout, None if it is absent; raises `StoreError`."""
        found = await self.store.get(self.layout.at(key))
        return found if isinstance(found, Found) else None

    async def rows_below(self, start: str) -> AsyncIterator[ObjectInfo]:
        """Yield the objects whose keys begin so, with keys of the layout, in no order; raises `StoreError`."""
        strip = len(self.layout.at("x")) - 1
        async for row in self.store.list(self.layout.at(start)):
            yield replace(row, key=row.key[strip:])

    async def keys_below(self, start: str) -> list[str]:
        """Return the keys of the layout that begin so, in order; raises `StoreError`."""
        return sorted([row.key async for row in self.rows_below(start)])


class RollbackDetected(RelayerError):
    """Raised when a remembered position is above the log's head, or is in the log with another digest."""


class PositionUnknown(RelayerError):
    """Raised when a remembered position is older than every digest that is kept.

    Attributes:
        current: the log's position, which the caller may remember instead.
    """

    def __init__(self, current: Position) -> None:
        super().__init__("the remembered position is older than what this relayer keeps")
        self.current = current
