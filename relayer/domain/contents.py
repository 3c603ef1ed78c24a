"""What a namespace holds after an entry: records and jobs, which of them say the same, and what was erased.

The rules of `record_rules`, `job_rules` and `erasing_rules` read and change it while an entry is applied; between
entries nothing does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from relayer.domain.erasures import Erased, Readers
from relayer.domain.namespace import Position
from relayer.domain.outcomes import Outcome, Refusal, Result
from relayer.domain.paged_rows import PagedRows
from relayer.domain.standing import JobState, RecordState, Standing
from relayer.domain.twins import Twins

__all__ = ["Contents"]


@dataclass(slots=True, eq=False)
class Contents:
    """The contents after ``position``.

    Attributes:
        position: of the last entry; while one is applied, of that.
        last_time: the latest time of an entry, in ms.
        closed: whether the namespace takes nothing any more.
        records: by id.
        jobs: by id.
        erased: ids of the records that were destroyed.
        erasures: what destroyed them, and where bodies of them are.
        twins: which records say the same.
        repeats: of the entry that is being applied: ids that were asked for, and what they repeat.
    """

    position: Position
    last_time: int = 0
    closed: bool = False
    records: dict[bytes, RecordState] | PagedRows[RecordState, Any] = field(default_factory=dict)
    jobs: dict[bytes, JobState] = field(default_factory=dict)
    erased: set[bytes] = field(default_factory=set)
    erasures: Erased = field(default_factory=Erased)
    twins: Twins = field(default_factory=Twins)
    repeats: dict[bytes, bytes] = field(default_factory=dict)
    # Made when something is first erased, of what is there then.
    _readers: Readers | None = field(default=None, repr=False)

    def readers(self) -> Readers:
        """Return who read what; from now on it is kept."""
        if self._readers is None:
            self._readers = Readers()
            for record in self.records.values():
                self._readers.add(record.record, sources=record.sources, context_of=record.context_of)
            for job in self.jobs.values():
                self._readers.add_job(job.job, job.records)
        return self._readers

    def note_reader(self, record: bytes, *, sources: Iterable[bytes], context_of: bytes) -> None:
        """Note what a record was made of, if that is kept."""
        if self._readers is not None:
            self._readers.add(record, sources=sources, context_of=context_of)

    def note_job(self, job: bytes, records: Iterable[bytes]) -> None:
        """Note what a job was given, if that is kept."""
        if self._readers is not None:
            self._readers.add_job(job, records)

    def following(self, records: Iterable[bytes]) -> list[bytes]:
        """Return the records whose context one of these is, or was."""
        return [one for one in self.readers().following(records) if one in self.records]

    def head(self, head: bytes) -> RecordState | Refusal:
        """Return a record that is live, or why there is none."""
        found = self.records.get(head)
        if found is None:
            return Refusal.UNKNOWN_RECORD
        return found if found.standing is Standing.LIVE else Refusal.STALE_HEAD

    def stand(self, record: RecordState, standing: Standing) -> None:
        """Change how a record stands."""
        record.standing = standing
        record.changed_at = self.last_time

    def done(self, result: Result, subject: bytes = b"") -> Outcome:
        """Return the outcome of an operation that took effect."""
        return Outcome(result, subject, self.position.seq)

    def refused(self, refusal: Refusal, subject: bytes = b"") -> Outcome:
        """Return the outcome of an operation that did not."""
        return Outcome(Result.REFUSED, subject, self.position.seq, refusal)
