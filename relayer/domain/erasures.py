"""What was erased, and which slots of the log hold bodies that must not stay.

A slot is known to hold a body of a record because the record was stored there, or because its text came again, its
vectors came later, or a job read it: everything here follows from the outer form of operations, so that it is the same
whether the bodies are still there or not. How far the store has got with it is the erasure report's to say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

import msgspec


class Erasure(msgspec.Struct, frozen=True, array_like=True):
    """One erase operation that took effect.

    Attributes:
        erasure: its id, that of the first record it named.
        seq: the entry that decided it.
        at: the entry's time, in ms.
        records: what it named and found.
        derived: what came from those, in part or alone, and went with them.
        rest: live sources of what went with them, and live inputs of the jobs it ended: what is to be read again.
        slots: where the log holds, or held, a body that must go; in order.
    """

    erasure: bytes
    seq: int
    at: int
    records: tuple[bytes, ...]
    derived: tuple[bytes, ...]
    rest: tuple[bytes, ...]
    slots: tuple[int, ...]


@dataclass(slots=True)
class Traces:
    """Slots that hold a body beside the one that its record was first stored in, by what it is a body of."""

    slots: dict[bytes, tuple[int, ...]] = field(default_factory=dict)

    def note(self, what: bytes, seq: int) -> None:
        """Note that the entry in a slot has a body of a text (by its MAC), of a record, or of a job."""
        known = self.slots.get(what, ())
        if seq not in known[-1:]:
            self.slots[what] = (*known, seq)

    def of(self, *whats: bytes) -> Iterable[int]:
        """Yield the slots noted for any of these."""
        for what in whats:
            yield from self.slots.get(what, ())


@dataclass(slots=True)
class Erased:
    """All erasures of a log.

    Attributes:
        known: by id, in order.
        late: entries after an erasure that hold, or held, bodies of what was erased: lost tries that arrived after all,
            results of jobs that nobody wanted any more.
        traces: see there.
    """

    known: dict[bytes, Erasure] = field(default_factory=dict)
    late: dict[int, None] = field(default_factory=dict)
    traces: Traces = field(default_factory=Traces)

    @property
    def last_seq(self) -> int:
        """The last entry up to which the store has to be cleaned; 0 if there is nothing to clean."""
        last = next(reversed(self.known.values()), None)
        return max(0 if last is None else last.seq, self.last_late)

    @property
    def last_late(self) -> int:
        """The last of the late entries; 0 if there is none."""
        return next(reversed(self.late), 0)

    def slots(self) -> set[int]:
        """Every slot that holds, or held, a body that must go."""
        return set(self.late).union(*(erasure.slots for erasure in self.known.values()))

    def erasure_of(self, record: bytes) -> Erasure | None:
        """Return what a record was erased by, if it was."""
        return next(
            (one for one in self.known.values() if record in one.records or record in one.derived), None
        )


@dataclass(slots=True)
class Readers:
    """Who read a record: what was derived from it, what it is the context of, and the jobs that were given it.

    Only erasing asks; a log in which nothing was erased keeps none of this.
    """

    _derived: dict[bytes, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _following: dict[bytes, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _jobs: dict[bytes, list[bytes]] = field(default_factory=lambda: defaultdict(list))

    def add(self, record: bytes, *, sources: Iterable[bytes], context_of: bytes) -> None:
        """Note a record."""
        for source in sources:
            self._derived[source].append(record)
        if context_of:
            self._following[context_of].append(record)

    def add_job(self, job: bytes, records: Iterable[bytes]) -> None:
        """Note a job."""
        for record in records:
            self._jobs[record].append(job)

    def derived_from(self, records: Iterable[bytes], there: Container[bytes]) -> list[bytes]:
        """Return what came from these, from what came from them, and so on, without themselves.

        Only what is ``there`` counts, also in between: a state that was stored, and knows no more of what had gone
        before, must find the same.
        """
        found = list(records)
        count, known = len(found), set(found)
        for record in found:  # grows while it is read
            # Each once, although a record may name one source twice.
            read_by = dict.fromkeys(self._derived.get(record, ()))
            new = [one for one in read_by if one not in known and one in there]
            known.update(new)
            found += new
        return found[count:]

    def following(self, records: Iterable[bytes]) -> list[bytes]:
        """Return the records of which these are the context."""
        return [one for record in records for one in self._following.get(record, ())]

    def jobs_of(self, records: Iterable[bytes]) -> list[bytes]:
        """Return the jobs that were given any of these, in order, each once."""
        return list(dict.fromkeys(job for record in records for job in self._jobs.get(record, ())))
