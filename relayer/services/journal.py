"""What became of each memory last, in the log's order: the same on every relayer that read the same log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

import msgspec

__all__ = ["Change", "Journal", "JournalParts", "What"]

Mark = tuple[int, int]
# Measured: a change with its place in the dictionary.
_CHANGE_BYTES = 230


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


class JournalParts(msgspec.Struct, frozen=True, array_like=True):
    """What a `Journal` is stored as: the last mark, and each record with its slot, number and change, in order."""

    last: Mark
    changes: list[tuple[bytes, tuple[int, int, What]]]


class Journal:
    """One change for each memory, the last one. It grows with the number of memories, not of operations."""

    def __init__(self) -> None:
        # In the order of the last changes; as little as can be for each, because there is one for every memory.
        self._changes: dict[bytes, tuple[int, int, What]] = {}
        self._last: Mark = (0, 0)

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        return len(self._changes) * _CHANGE_BYTES

    def note(self, seq: int, what: What, record: bytes) -> None:
        """Note a change; called in the log's order."""
        self._last = (seq, self._last[1] + 1 if self._last[0] == seq else 1)
        self._changes.pop(record, None)
        self._changes[record] = (*self._last, what)

    def after(self, mark: Mark) -> list[Change]:
        """Return what changed after a mark, in the log's order."""
        newest_first: Iterator[Change] = (
            Change((seq, number), what, record)
            for record, (seq, number, what) in reversed(self._changes.items())
        )
        return list(takewhile(lambda change: change.mark > mark, newest_first))[::-1]

    def parts(self) -> JournalParts:
        """Return what `of_parts` takes."""
        return JournalParts(self._last, list(self._changes.items()))

    @classmethod
    def of_parts(cls, parts: JournalParts) -> Journal:
        """Return a journal from its parts."""
        journal = cls()
        journal._last, journal._changes = parts.last, dict(parts.changes)
        return journal
