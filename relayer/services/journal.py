"""What became of each memory last, in the log's order: the same on every relayer that read the same log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

__all__ = ["Change", "Journal", "What"]

Mark = tuple[int, int]


class What(StrEnum):
    """What became of a memory."""

    REMEMBERED = "remembered"
    SUPERSEDED = "superseded"
    FORGOTTEN = "forgotten"
    RESTORED = "restored"
    ERASED = "erased"


@dataclass(frozen=True, slots=True)
class Change:
    """The last change of a memory; ``mark`` is the slot that made it, and its number among that slot's changes."""

    mark: Mark
    what: What
    record: bytes


class Journal:
    """One change for each memory, the last one. It grows with the number of memories, not of operations."""

    def __init__(self) -> None:
        self._changes: OrderedDict[bytes, Change] = OrderedDict()
        self._last: Mark = (0, 0)

    def note(self, seq: int, what: What, record: bytes) -> None:
        """Note a change; called in the log's order."""
        self._last = (seq, self._last[1] + 1 if self._last[0] == seq else 1)
        self._changes[record] = Change(self._last, what, record)
        self._changes.move_to_end(record)

    def after(self, mark: Mark) -> list[Change]:
        """Return what changed after a mark, in the log's order."""
        newest_first: Iterator[Change] = reversed(self._changes.values())
        return list(takewhile(lambda change: change.mark > mark, newest_first))[::-1]
