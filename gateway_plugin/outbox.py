"""Where captured turns wait until the relayer has them.

An outbox keeps order, never loses an item silently and never delivers one twice under two keys. This one lives in
memory; what is in it when the process dies is lost, and the plugin says so in its status.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

from relayer.wire.schemas import AnalyzeRequest

__all__ = ["MAX_DEAD", "MemoryOutbox", "Outbox", "OutboxFull", "OutboxItem", "Waiting"]

MAX_DEAD: Final = 100
_OWN_ROOM: Final = 8


class OutboxFull(Exception):
    """Raised when an outbox takes no more: the turn is not captured, and the status shows it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """For whom an item is delivered: enough to find the keys again after a restart."""

    agent: str
    namespace: str
    generation: int


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """One captured turn. The request's idempotency key is the item's identity."""

    owner: Waiting
    request: AnalyzeRequest = field(repr=False)
    queued_at: int

    @property
    def key(self) -> str:
        """The idempotency key."""
        assert self.request.idempotency_key is not None
        return self.request.idempotency_key


class Outbox(Protocol):
    """A bounded queue of captured turns, in order within each namespace."""

    def put(self, item: OutboxItem) -> bool:
        """Queue an item; False when one with its key is already waiting.

        Raises:
            OutboxFull: no room.
        """
        ...

    def head(self, besides: Collection[str] = ()) -> OutboxItem | None:
        """Return the oldest item whose namespace is not among ``besides``, or None."""
        ...

    def delivered(self, item: OutboxItem) -> None:
        """Remove an item that the relayer has."""
        ...

    def refused(self, item: OutboxItem, reason: str) -> None:
        """Move an item that will never be taken to the dead letters."""
        ...

    def waiting(self, namespace: str | None = None) -> int:
        """Count items, of one namespace or of all."""
        ...

    def dead(self) -> tuple[tuple[OutboxItem, str], ...]:
        """Return the dead letters with their reasons, oldest first."""
        ...


class MemoryOutbox:
    """The outbox of a process that does not outlive its turns.

    Args:
        capacity: how many items it takes. Beyond them, and up to as many again, a namespace may still have eight: what
            piles up for one that is refused must not keep the others' turns out.
    """

    def __init__(self, capacity: int = 1000) -> None:
        self._capacity = capacity
        self._items: deque[OutboxItem] = deque()
        self._keys: set[str] = set()
        self._dead: deque[tuple[OutboxItem, str]] = deque(maxlen=MAX_DEAD)

    def put(self, item: OutboxItem) -> bool:
        """Queue an item; see `Outbox.put`."""
        if item.key in self._keys:
            return False
        if not self._has_room(item.owner.namespace):
            raise OutboxFull(f"{len(self._items)} captured turns wait for the relayer already")
        self._items.append(item)
        self._keys.add(item.key)
        return True

    def head(self, besides: Collection[str] = ()) -> OutboxItem | None:
        """Return the oldest item whose namespace is not among ``besides``, or None."""
        return next((item for item in self._items if item.owner.namespace not in besides), None)

    def delivered(self, item: OutboxItem) -> None:
        """Remove an item that the relayer has."""
        if item.key in self._keys:
            self._keys.remove(item.key)
            self._items.remove(item)

    def refused(self, item: OutboxItem, reason: str) -> None:
        """Move an item that will never be taken to the dead letters, of which the newest 100 are kept."""
        self.delivered(item)
        self._dead.append((item, reason))

    def waiting(self, namespace: str | None = None) -> int:
        """Count items, of one namespace or of all."""
        if namespace is None:
            return len(self._items)
        return sum(1 for item in self._items if item.owner.namespace == namespace)

    def dead(self) -> tuple[tuple[OutboxItem, str], ...]:
        """Return the dead letters with their reasons, oldest first."""
        return tuple(self._dead)

    def _has_room(self, namespace: str) -> bool:
        held = len(self._items)
        if held < self._capacity:
            return True
        return held < 2 * self._capacity and self.waiting(namespace) < _OWN_ROOM
