"""Which records a namespace has, by number, and what filters ask about them, so that none has to be opened for it."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from relayer.domain.record import Dialogue, Record
from relayer.services.dialogues import Dialogues

__all__ = ["Roster", "RosterParts"]

_NEVER = -(2**63)
# What a session's dialogues are stored as: a facet that no filter asks for.
_DIALOGUE = "dialogue"
# Measured: id, number and facets of a record in their dictionaries and sets; a chat session with its newest record.
_RECORD_BYTES = 420
_SESSION_BYTES = 220


class RosterParts(msgspec.Struct, frozen=True, array_like=True):
    """What a `Roster` is stored as; numbers are four little-endian bytes each, times eight.

    ``gone`` are the numbers of records that cannot be read, ``hidden`` of those that recall does not return,
    ``lacking`` of those without a vector, in the order in which they are to get one.
    """

    ids: list[bytes]
    gone: bytes
    hidden: bytes
    lacking: bytes
    occurred: bytes
    facets: list[tuple[str, str, bytes]]
    expiring: list[tuple[int, int]]
    sessions: list[tuple[str, bytes]]
    unreadable: int


class Roster:
    """Records by id and number; a number is given once, in the order of the log.

    Attributes:
        numbers: of the records that can be read.
        shown: numbers of what recall may return.
        without_vector: ids of what is not findable by meaning yet, oldest first.
        unreadable: records of the log that could not be opened.
        dialogues: turns that were kept word for word: they have numbers, and are none of the records.
    """

    def __init__(self) -> None:
        self._ids: list[bytes] = []
        self.numbers: dict[bytes, int] = {}
        self.shown: set[int] = set()
        self.without_vector: dict[bytes, None] = {}
        self.unreadable = 0
        self.dialogues = Dialogues()
        self._facets: dict[tuple[str, str], set[int]] = defaultdict(set)
        self._expiring: dict[int, int] = {}
        self._occurred = array("q")
        self._last_of_session: dict[str, bytes] = {}

    def __len__(self) -> int:
        """How many numbers were given."""
        return len(self._ids)

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        held = len(self._ids) * _RECORD_BYTES + len(self._last_of_session) * _SESSION_BYTES
        return held + self.dialogues.nbytes

    def id_of(self, number: int) -> bytes:
        """Return the id behind a number."""
        return self._ids[number]

    def last_of_session(self, session: str) -> bytes | None:
        """Return the newest record of a host's chat session."""
        return self._last_of_session.get(session)

    def is_of_kind(self, record: bytes, kinds: Iterable[str]) -> bool:
        """Whether a readable record is of one of these kinds."""
        number = self.numbers[record]
        return any(number in self._facets["kind", kind] for kind in kinds)

    def skip(self, record: bytes) -> None:
        """Give a number to a record that cannot be read."""
        self._ids.append(record)
        self._occurred.append(_NEVER)

    def add_dialogue(self, dialogue: Dialogue) -> None:
        """Give a number to a turn that was kept word for word; nothing but `dialogues` knows of it."""
        self.dialogues.add(len(self._ids), dialogue.id, dialogue.source.session)
        self.skip(dialogue.id)

    def add(self, record: Record) -> int:
        """Give a number to a record; recall may return it."""
        number = len(self._ids)
        self._ids.append(record.id)
        self._occurred.append(_NEVER if record.occurred_at is None else record.occurred_at)
        self.numbers[record.id] = number
        self.shown.add(number)
        if record.source.session:
            self._last_of_session[record.source.session] = record.id
        self._facets["kind", record.kind].add(number)
        self._facets["audience", record.audience].add(number)
        self._facets["trust", record.trust].add(number)
        if record.suspect:
            self._facets["suspect", "yes"].add(number)
        if record.expires_at is not None:
            self._expiring[number] = record.expires_at
        return number

    def drop(self, record: bytes) -> int | None:
        """Forget all about a record, or a dialogue, but its place; returns the number it had."""
        if record in self.dialogues:
            return self.dialogues.drop(record)
        self.without_vector.pop(record, None)
        number = self.numbers.pop(record, None)
        if number is not None:
            self.shown.discard(number)
            self._expiring.pop(number, None)
            self._occurred[number] = _NEVER
            for members in self._facets.values():
                members.discard(number)
            ended = [session for session, last in self._last_of_session.items() if last == record]
            for session in ended:
                del self._last_of_session[session]
        return number

    def allowed(
        self,
        *,
        kinds: Sequence[str],
        audiences: Sequence[str],
        trusts: Sequence[str],
        suspect: bool,
        now: int,
    ) -> set[int] | None:
        """Return the numbers that pass the filters, or None when everything passes."""
        passing: set[int] | None = None
        for facet, values in (("kind", kinds), ("audience", audiences), ("trust", trusts)):
            if values:
                having = set().union(*(self._facets[facet, value] for value in values))
                passing = having if passing is None else passing & having
        excluded = set() if suspect else set(self._facets["suspect", "yes"])
        excluded |= {number for number, expires_at in self._expiring.items() if expires_at <= now}
        if excluded:
            passing = (set(range(len(self._ids))) if passing is None else passing) - excluded
        return passing

    def between(self, after: int | None, before: int | None, passing: set[int] | None) -> set[int]:
        """Narrow to records that occurred in ``[after, before)``, in ms; those without a time do not."""
        times = np.array(self._occurred, dtype=np.int64)
        inside = times != _NEVER
        if after is not None:
            inside &= times >= after
        if before is not None:
            inside &= times < before
        found = set(np.flatnonzero(inside).tolist())
        return found if passing is None else found & passing

    def parts(self) -> RosterParts:
        """Return what `of_parts` takes."""
        known = self.numbers.values()
        return RosterParts(
            ids=self._ids.copy(),
            gone=_packed(set(range(len(self._ids))).difference(known)),
            hidden=_packed(set(known) - self.shown),
            lacking=_packed(self.numbers[record] for record in self.without_vector),
            occurred=np.array(self._occurred, "<i8").tobytes(),
            facets=[
                (facet, value, _packed(members))
                for (facet, value), members in self._facets.items()
                if members
            ]
            + [(_DIALOGUE, session, _packed(numbers)) for session, numbers in self.dialogues.numbers()],
            expiring=list(self._expiring.items()),
            sessions=list(self._last_of_session.items()),
            unreadable=self.unreadable,
        )

    @classmethod
    def of_parts(cls, parts: RosterParts) -> Roster:
        """Return a roster from its parts; raises `ValueError` when they do not fit each other."""
        roster = cls()
        count = len(parts.ids)
        gone, hidden = _unpacked(parts.gone), _unpacked(parts.hidden)
        roster._ids = parts.ids
        roster._occurred.frombytes(
            np.frombuffer(parts.occurred, "<i8").astype(np.int64, copy=False).tobytes()
        )
        roster.shown = set(range(count)).difference(gone, hidden)
        roster.numbers = dict(zip(parts.ids, range(count), strict=True))
        for number in gone:
            del roster.numbers[parts.ids[number]]
        for facet, value, members in parts.facets:
            if facet == _DIALOGUE:
                for number in _unpacked(members):
                    roster.dialogues.add(number, parts.ids[number], value)
            else:
                roster._facets[facet, value] = set(_unpacked(members))
        roster._expiring = dict(parts.expiring)
        roster._last_of_session = dict(parts.sessions)
        roster.without_vector = dict.fromkeys(parts.ids[number] for number in _unpacked(parts.lacking))
        roster.unreadable = parts.unreadable
        if len(roster._occurred) != count or len(roster.numbers) != count - len(gone):
            raise ValueError("the stored records do not fit each other")
        return roster


def _packed(numbers: Iterable[int]) -> bytes:
    return np.fromiter(numbers, "<u4").tobytes()


def _unpacked(data: bytes) -> list[int]:
    numbers: list[int] = np.frombuffer(data, "<u4").tolist()
    return numbers
