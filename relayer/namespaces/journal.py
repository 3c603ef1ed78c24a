"""What became of each memory last, in the log's order: the same on every relayer that read the same log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

import msgspec

from relayer.domain.operations import (
    Erase,
    Forget,
    JobFinished,
    Malformed,
    Operation,
    Put,
    Restore,
    Supersede,
)
from relayer.domain.outcomes import Outcome, Result
from relayer.domain.state import NamespaceState

Mark = tuple[int, int]
# Measured: a change with its place in the dictionary; one that is stored.
_CHANGE_BYTES = 230
_STORED_BYTES = 40
_PAGE_CHANGES = 512


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
    """What a `Journal` is stored as: the last mark, and pages of each record with its slot, number and change, in order.

    A page is a MessagePack array, encoded by itself: only what was changed lately is ever asked for.
    """

    last: Mark
    count: int
    pages: list[bytes]


_Row = tuple[bytes, tuple[int, int, What]]
_PAGE = msgspec.msgpack.Decoder(list[_Row])


class Journal:
    """One change for each memory, the last one. It grows with the number of memories, not of operations."""

    def __init__(self) -> None:
        # In the order of the last changes; as little as can be for each, because there is one for every memory.
        self._changes: dict[bytes, tuple[int, int, What]] = {}
        self._last: Mark = (0, 0)
        # What was stored, all of it before the changes above, which come in its place where they are of one record.
        self._pages: list[bytes] = []
        self._stored = 0

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        return len(self._changes) * _CHANGE_BYTES + self._stored * _STORED_BYTES

    def note(self, seq: int, what: What, record: bytes) -> None:
        """Note a change; called in the log's order."""
        self._last = (seq, self._last[1] + 1 if self._last[0] == seq else 1)
        self._changes.pop(record, None)
        self._changes[record] = (*self._last, what)

    def after(self, mark: Mark) -> list[Change]:
        """Return what changed after a mark, in the log's order."""
        newest_first: Iterator[Change] = (
            Change((seq, number), what, record) for record, (seq, number, what) in self._newest_first()
        )
        return list(takewhile(lambda change: change.mark > mark, newest_first))[::-1]

    def _newest_first(self) -> Iterator[_Row]:
        yield from reversed(self._changes.items())
        for page in reversed(self._pages):
            yield from reversed(self._left_of(page))

    def _left_of(self, page: bytes) -> list[_Row]:
        return [row for row in _PAGE.decode(page) if row[0] not in self._changes]

    def parts(self) -> JournalParts:
        """Return what `of_parts` takes; nothing may be noted meanwhile."""
        left = [row for page in self._pages for row in self._left_of(page)] if self._changes else []
        pages = [] if self._changes else list(self._pages)
        rows: Sequence[_Row] = left + list(self._changes.items())
        pages += [
            msgspec.msgpack.encode(rows[start : start + _PAGE_CHANGES])
            for start in range(0, len(rows), _PAGE_CHANGES)
        ]
        return JournalParts(self._last, len(rows) if self._changes else self._stored, pages)

    @classmethod
    def of_parts(cls, parts: JournalParts) -> Journal:
        """Return a journal from its parts."""
        journal = cls()
        journal._last, journal._pages, journal._stored = parts.last, parts.pages, parts.count
        return journal


def changes_of(
    state: NamespaceState, operation: Operation | Malformed, outcome: Outcome
) -> Iterator[tuple[What, bytes]]:
    """Yield what an operation that was done changed, in its order."""
    match operation:
        case Put(stored=stored) if outcome.result is Result.STORED:
            yield from _remembered(state, stored.record)
        case Supersede(head=head, stored=stored):
            yield from ((What.SUPERSEDED, head), (What.REMEMBERED, stored.record))
        case Forget(head=head):
            yield What.FORGOTTEN, head
        case Restore(record=record, head=head):
            yield from [(What.SUPERSEDED, head)] if head else []
            yield What.RESTORED, record
        case Erase():
            erasure = state.erasures.known[outcome.subject]
            yield from ((What.ERASED, record) for record in (*erasure.records, *erasure.derived))
        case JobFinished(stored=results):
            kept = set(state.jobs[operation.job].results)
            for stored in results:
                if stored.record in kept:
                    yield from _remembered(state, stored.record)
        case _:
            return


def _remembered(state: NamespaceState, record: bytes) -> Iterator[tuple[What, bytes]]:
    """Yield that a memory was stored, after the one whose place it took."""
    known = state.records.get(record)
    if known is not None and known.supersedes:
        yield What.SUPERSEDED, known.supersedes
    yield What.REMEMBERED, record
