"""The erasures of a log, and the slots that hold bodies of erased records.

A slot holds a body of a record if the record was stored there, its text was repeated there, its vectors were added there,
or a job that read the record was written there. `Erased` keeps the erasures and the slots beyond the first kind, and `Readers`
what was derived from each record. All of this follows from the outer form of operations, so it is the same
whether the bodies still exist or not. How far the deletion in the store has got is in the erasure report, not here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

import msgspec


class Erasure(msgspec.Struct, frozen=True, array_like=True):
    """An erase operation that took effect.

    Attributes:
        erasure: the id of the erasure, which is the id of the first record that it erased by name.
        seq: the slot of its entry.
        at: the time of that entry, in ms.
        records: ids of the records that the operation named and that existed.
        derived: ids of the records that were derived from those, wholly or in part, and were erased with them.
        rest: ids of live sources of the erased records, and of live inputs of the jobs that it ended: they are to be
            processed again.
        slots: the slots that hold, or held, a body that must be deleted, in ascending order.
    """

    erasure: bytes
    seq: int
    at: int
    records: tuple[bytes, ...]
    derived: tuple[bytes, ...]
    rest: tuple[bytes, ...]
    slots: tuple[int, ...]


@dataclass(slots=True)
class Erased:
    """All erasures of a log.

    Attributes:
        known: the erasures by id, in the order of the log.
        late: the slots after an erasure that hold, or held, bodies of what was erased: from writes that were thought lost and
            arrived late, or from jobs that the erasure had ended. A dictionary because it keeps the order.
        traces: the slots that hold a body in addition to the slot in which its record was first stored, in ascending order, by
            the MAC of a text, the id of a record, or the id of a job.
    """

    known: dict[bytes, Erasure] = field(default_factory=dict)
    late: dict[int, None] = field(default_factory=dict)
    traces: dict[bytes, tuple[int, ...]] = field(default_factory=dict)

    def note(self, what: bytes, seq: int) -> None:
        """Record that the entry in slot ``seq`` has a body of a text (given by its MAC), of a record, or of a job.

        Example:
            >>> erased = Erased()
            >>> erased.note(b"text", 7)
            >>> list(erased.slots_of(b"text", b"other"))
            [7]
        """
        known = self.traces.get(what, ())
        if seq not in known[-1:]:
            self.traces[what] = (*known, seq)

    def slots_of(self, *whats: bytes) -> Iterable[int]:
        """Yield the slots recorded for any of these texts, records or jobs."""
        for what in whats:
            yield from self.traces.get(what, ())

    @property
    def last_late(self) -> int:
        """Return the last of the ``late`` slots; 0 if there is none."""
        return next(reversed(self.late), 0)

    def erasure_of(self, record: bytes) -> Erasure | None:
        """Return the erasure that erased a record, None if it was not erased."""
        return next(
            (one for one in self.known.values() if record in one.records or record in one.derived), None
        )


@dataclass(slots=True)
class Readers:
    """The readers of each record: the records derived from it, the records whose context it is, and the jobs that read it.

    Only erasures need this, so it is not kept for a log in which nothing was erased.
    """

    _derived: dict[bytes, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _following: dict[bytes, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _jobs: dict[bytes, list[bytes]] = field(default_factory=lambda: defaultdict(list))

    def add(self, record: bytes, *, sources: Iterable[bytes], context_of: bytes) -> None:
        """Add a record with its sources and its context; ``context_of`` is empty if it has none."""
        for source in sources:
            self._derived[source].append(record)
        if context_of:
            self._following[context_of].append(record)

    def add_job(self, job: bytes, records: Iterable[bytes]) -> None:
        """Add a job with the records that are its input."""
        for record in records:
            self._jobs[record].append(job)

    def derived_from(self, records: Iterable[bytes], there: Container[bytes]) -> list[bytes]:
        """Return the records that were derived from these, directly or indirectly, without these themselves.

        Only records in ``there`` are followed: a state that was read from the store does not know records that had been
        erased before, and it must find the same ones.

        Example:
            >>> readers = Readers()
            >>> readers.add(b"fact", sources=[b"said"], context_of=b"")
            >>> readers.derived_from([b"said"], {b"said", b"fact"})
            [b'fact']
        """
        found = list(records)
        count, known = len(found), set(found)
        for record in found:  # the list grows during the iteration
            # A record may name the same source twice.
            read_by = dict.fromkeys(self._derived.get(record, ()))
            new = [one for one in read_by if one not in known and one in there]
            known.update(new)
            found += new
        return found[count:]

    def following(self, records: Iterable[bytes]) -> list[bytes]:
        """Return the records whose context one of these is."""
        return [one for record in records for one in self._following.get(record, ())]

    def jobs_of(self, records: Iterable[bytes]) -> list[bytes]:
        """Return the jobs that have any of these records as input, each once, in the order in which they were found.

        Example:
            >>> readers = Readers()
            >>> readers.add_job(b"job", [b"said"])
            >>> readers.jobs_of([b"said", b"other"])
            [b'job']
        """
        return list(dict.fromkeys(job for record in records for job in self._jobs.get(record, ())))
