"""Where captured turns wait until the relayer has them, and what a gateway remembers beside them.

An outbox keeps order, never loses an item silently and never delivers one twice under two keys. Beside its items it
keeps *marks*: small values such as a session's cursor, which must move in the same instant as an item is queued, or a
crash in between would capture a turn twice or never. `gateway_plugin.outbox.file` is the durable one,
`gateway_plugin.outbox.memory` the one of a process that does not outlive its turns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway_plugin.errors import GatewayError
from relayer.wire.schemas import AnalyzeRequest

MAX_DEAD: Final = 100
MAX_MARKS: Final = 10_000
OWN_ROOM: Final = 8


class OutboxFull(Exception):
    """Raised when an outbox takes no more: the turn is not captured, and the status shows it."""


class OutboxUnavailable(GatewayError):
    """Raised when the outbox's file cannot be read or written: the turn is not captured now, the next one tries again."""


class MarkMoved(Exception):
    """Raised when a mark is not what it was when it was read: another process captured; read it and decide again."""


@dataclass(frozen=True, slots=True)
class NamespaceRef:
    """A namespace and whose it is: enough to find the keys again after a restart."""

    agent: str
    namespace: str
    generation: int


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """One captured turn. The request's idempotency key is the item's identity."""

    owner: NamespaceRef
    request: AnalyzeRequest = field(repr=False)
    queued_at: int

    @property
    def key(self) -> str:
        """The idempotency key."""
        assert self.request.idempotency_key is not None
        return self.request.idempotency_key


@dataclass(frozen=True, slots=True)
class Kept:
    """A mark as it was found; ``revision`` counts its changes."""

    revision: int
    value: bytes = field(repr=False)


NOTHING_KEPT: Final = Kept(0, b"")


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark as it is to be: of an owner, by name, in place of the revision that was read (None: of any).

    Beyond 10,000 the one that was set longest ago is forgotten, unless it is ``lasting``.
    """

    owner: NamespaceRef
    name: str = field(repr=False)
    value: bytes = field(repr=False)
    replaces: int | None = None
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class Letter:
    """An item as a person is shown it.

    Attributes:
        id: what names it to the command line.
        reason: why it will never be taken; "" while it waits.
        item: the turn, or None when it does not open.
    """

    id: str
    reason: str
    item: OutboxItem | None = field(repr=False)


class Outbox(Protocol):
    """A bounded queue of captured turns, in order within each namespace, and the marks beside it.

    Attributes:
        blocking: whether its writes wait for a disk, and belong off the event loop. Reads never wait long.
        durable: whether what is in it survives the process.
    """

    blocking: bool
    durable: bool

    def put(self, item: OutboxItem, mark: Mark | None = None) -> bool:
        """Queue an item and set a mark, both or neither; False when an item with its key is already waiting.

        Raises:
            OutboxFull: no room.
            MarkMoved: the mark is not the one that was read.
            OutboxUnavailable: the file cannot be written.
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

    def letters(self, *, dead: bool) -> tuple[Letter, ...]:
        """Return the dead letters with their reasons, or what waits, oldest first.

        Raises:
            OutboxUnavailable: the file cannot be read.
        """
        ...

    def remove(self, matches: Callable[[OutboxItem], bool]) -> int:
        """Destroy the items, waiting or dead, that match, and no others; return how many there were."""
        ...

    def kept(self, owner: NamespaceRef, name: str) -> Kept:
        """Return a mark; one that was never set has revision 0 and no value."""
        ...

    def keep(self, mark: Mark) -> None:
        """Set a mark; raises as `put`."""
        ...

    def claim(self) -> bool:
        """Take, or confirm, the sole right to deliver; False while another process has it."""
        ...

    def release(self) -> None:
        """Give the right to deliver back."""
        ...

    def close(self) -> None:
        """Let go of everything outside this process; later calls open it again."""
        ...
