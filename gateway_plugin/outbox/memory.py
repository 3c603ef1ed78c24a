"""The outbox in memory: what is in it when the process dies is lost, and the plugin says so in its status."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection

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
    OutboxFull,
    OutboxItem,
)


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

    def kept(self, owner: NamespaceRef, name: str) -> Kept:
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
