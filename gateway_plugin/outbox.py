"""Where captured turns wait until the relayer has them, and what a gateway remembers beside them.

An outbox keeps order, never loses an item silently and never delivers one twice under two keys. Beside its items it
keeps *marks*: small values such as a session's cursor, which must move in the same instant as an item is queued, or a
crash in between would capture a turn twice or never. `gateway_plugin.outbox_file` is the durable one; the one here
lives in memory: what is in it when the process dies is lost, and the plugin says so in its status.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway_plugin.errors import GatewayError
from relayer.wire.schemas import AnalyzeRequest

__all__ = [
    "MAX_DEAD",
    "MAX_MARKS",
    "Kept",
    "Letter",
    "Mark",
    "MarkMoved",
    "MemoryOutbox",
    "Outbox",
    "OutboxFull",
    "OutboxItem",
    "OutboxUnavailable",
    "Waiting",
]

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

    owner: Waiting
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

    def kept(self, owner: Waiting, name: str) -> Kept:
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


class MemoryOutbox:
    """The outbox of a process that does not outlive its turns.

    Args:
        capacity: how many items it takes. Beyond them, and up to as many again, a namespace may still have eight: what
            piles up for one that is refused must not keep the others' turns out.
    """

    blocking = False
    durable = False

    def __init__(self, capacity: int = 1000) -> None:
        self._capacity = capacity
        self._items: deque[OutboxItem] = deque()
        self._keys: set[str] = set()
        self._dead: deque[tuple[OutboxItem, str]] = deque(maxlen=MAX_DEAD)
        self._marks: OrderedDict[tuple[str, str], Kept] = OrderedDict()
        self._lasting: dict[tuple[str, str], Kept] = {}

    def put(self, item: OutboxItem, mark: Mark | None = None) -> bool:
        """Queue an item; see `Outbox.put`."""
        if item.key in self._keys:
            if mark is not None:
                self.keep(mark)
            return False
        if not self._has_room(item.owner.namespace):
            raise OutboxFull(f"{len(self._items)} captured turns wait for the relayer already")
        if mark is not None:
            self.keep(mark)
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

    def letters(self, *, dead: bool) -> tuple[Letter, ...]:
        """Return the dead letters with their reasons, or what waits, oldest first."""
        found = self._dead if dead else [(item, "") for item in self._items]
        return tuple(Letter(item.key, reason, item) for item, reason in found)

    def remove(self, matches: Callable[[OutboxItem], bool]) -> int:
        """Destroy what matches; see `Outbox.remove`."""
        found = [item for item in self._items if matches(item)]
        for item in found:
            self.delivered(item)
        letters = [letter for letter in self._dead if matches(letter[0])]
        for letter in letters:
            self._dead.remove(letter)
        return len(found) + len(letters)

    def kept(self, owner: Waiting, name: str) -> Kept:
        """Return a mark; see `Outbox.kept`."""
        place = (owner.namespace, name)
        return self._lasting.get(place) or self._marks.get(place, NOTHING_KEPT)

    def keep(self, mark: Mark) -> None:
        """Set a mark; see `Mark` for how long it is kept."""
        place = (mark.owner.namespace, mark.name)
        before = self.kept(mark.owner, mark.name)
        if mark.replaces is not None and before.revision != mark.replaces:
            raise MarkMoved
        kept = Kept(before.revision + 1, mark.value)
        if mark.lasting:
            self._lasting[place] = kept
            return
        self._marks[place] = kept
        self._marks.move_to_end(place)
        if len(self._marks) > MAX_MARKS:
            self._marks.popitem(last=False)

    def claim(self) -> bool:
        """Return True: nobody else sees it."""
        return True

    def release(self) -> None:
        """Do nothing: there is nobody to give it to."""

    def close(self) -> None:
        """Do nothing: nothing outside the process is held."""

    def _has_room(self, namespace: str) -> bool:
        held = len(self._items)
        if held < self._capacity:
            return True
        return held < 2 * self._capacity and self.waiting(namespace) < OWN_ROOM
