"""What a namespace holds after an entry, and the rules that decide it: for records, for jobs, for what was erased.

The rules read and change `Contents` while an entry is applied; between entries nothing does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from relayer.domain.duplicates import Duplicates
from relayer.domain.erasures import Erased, Erasure, Readers
from relayer.domain.namespace import Position
from relayer.domain.operations import JobAccepted, JobFinished, Malformed, Operation, Put, Stored, Supersede
from relayer.domain.outcomes import JobState, Outcome, RecordState, Refusal, Result, Status
from relayer.domain.paged_rows import PagedRows


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
        duplicates: which records say the same.
        repeats: of the entry that is being applied: ids that were asked for, and what they repeat.
    """

    position: Position
    last_time: int = 0
    closed: bool = False
    records: dict[bytes, RecordState] | PagedRows[RecordState, Any] = field(default_factory=dict)
    jobs: dict[bytes, JobState] = field(default_factory=dict)
    erased: set[bytes] = field(default_factory=set)
    erasures: Erased = field(default_factory=Erased)
    duplicates: Duplicates = field(default_factory=Duplicates)
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

    def was_taken_back(self, content: bytes) -> bool:
        """Whether somebody forgot or erased this text: a capture must not bring it back, only a person may."""
        known = (self.records[record] for record in self.duplicates.of_text(content))
        return self.duplicates.was_erased(content) or any(one.status is Status.FORGOTTEN for one in known)

    def head(self, head: bytes) -> RecordState | Refusal:
        """Return a record that is live, or why there is none."""
        found = self.records.get(head)
        if found is None:
            return Refusal.UNKNOWN_RECORD
        return found if found.status is Status.LIVE else Refusal.STALE_HEAD

    def set_status(self, record: RecordState, status: Status) -> None:
        """Change where a record is in its life."""
        record.status = status
        record.changed_at = self.last_time

    def done(self, result: Result, subject: bytes = b"") -> Outcome:
        """Return the outcome of an operation that took effect."""
        return Outcome(result, subject, self.position.seq)

    def refused(self, refusal: Refusal, subject: bytes = b"") -> Outcome:
        """Return the outcome of an operation that did not."""
        return Outcome(Result.REFUSED, subject, self.position.seq, refusal)


def put(contents: Contents, stored: Stored, author: bytes, *, twin: bytes = b"") -> Outcome:
    """Store a record, unless it is known, must not come back, or comes from what was erased.

    Args:
        contents: changed.
        stored: the record.
        author: who sent it; empty for a job.
        twin: the record that a capture found to say the same in other words; empty for none.
    """
    known = _duplicate_for(contents, stored, contents.duplicates.newest(stored.dedupe_key)) or _duplicate_for(
        contents, stored, twin
    )
    if known is not None:
        known.reinforced += 1
        known.reinforced_at = contents.last_time
        contents.repeats[stored.record] = known.record
        return contents.done(Result.DUPLICATE, known.record)
    if stored.captured and (contents.was_taken_back(stored.content) or _is_taken_back(contents, twin)):
        return contents.refused(Refusal.TOMBSTONED, stored.record)
    if stored.record in contents.records or stored.record in contents.erased:
        return contents.refused(Refusal.RECORD_EXISTS, stored.record)
    if not contents.erased.isdisjoint(stored.sources):
        return contents.refused(Refusal.SOURCE_ERASED, stored.record)
    _keep(contents, stored, author)
    return contents.done(Result.STORED, stored.record)


def supersede(contents: Contents, head: bytes, stored: Stored, author: bytes) -> Outcome:
    """Store a record in the place of a live one."""
    old = contents.head(head)
    if isinstance(old, Refusal):
        return contents.refused(old, head)
    if stored.record in contents.records or stored.record in contents.erased:
        return contents.refused(Refusal.RECORD_EXISTS, stored.record)
    contents.set_status(old, Status.SUPERSEDED)
    old.superseded_by = stored.record
    _keep(contents, stored, author, supersedes=head)
    return contents.done(Result.SUPERSEDED, stored.record)


def forget(contents: Contents, head: bytes) -> Outcome:
    """Take a live record out of recall."""
    found = contents.head(head)
    if isinstance(found, Refusal):
        return contents.refused(found, head)
    contents.set_status(found, Status.FORGOTTEN)
    return contents.done(Result.FORGOTTEN, head)


def restore(contents: Contents, record: bytes, head: bytes) -> Outcome:
    """Make a record live again; what took its place, the live ``head``, is superseded by it."""
    found = contents.records.get(record)
    if found is None:
        return contents.refused(Refusal.UNKNOWN_RECORD, record)
    if found.status is Status.LIVE:
        return contents.refused(Refusal.STALE_HEAD, record)
    if found.status is Status.SUPERSEDED:
        current = contents.head(head)
        if isinstance(current, Refusal):
            return contents.refused(Refusal.STALE_HEAD, head)
        contents.set_status(current, Status.SUPERSEDED)
        current.superseded_by = record
    contents.set_status(found, Status.LIVE)
    found.superseded_by = b""
    contents.duplicates.add(record, text=found.content, likeness=found.likeness)
    return contents.done(Result.RESTORED, record)


def replace(contents: Contents, head: bytes, record: bytes) -> None:
    """Let a record take the place of another one, unless somebody else did something to it meanwhile."""
    old = contents.head(head)
    if not isinstance(old, Refusal) and head != record:
        contents.set_status(old, Status.SUPERSEDED)
        old.superseded_by = record
        contents.records[record].supersedes = head


def replace_or_conflict(contents: Contents, head: bytes, record: bytes) -> None:
    """Let a captured memory take another one's place, or note that somebody was first and both are kept."""
    replace(contents, head, record)
    old, new = contents.records.get(head), contents.records[record]
    if old is not None and old.status is Status.SUPERSEDED and new.supersedes != head:
        new.conflicts_with = head


def _keep(contents: Contents, stored: Stored, author: bytes, *, supersedes: bytes = b"") -> None:
    contents.records[stored.record] = RecordState(
        record=stored.record,
        content=stored.content,
        likeness=stored.dedupe_key,
        seq=contents.position.seq,
        created_at=stored.created_at,
        expires_at=stored.expires_at,
        size=stored.size,
        sources=stored.sources,
        author=author,
        supersedes=supersedes,
        context_of=stored.context_of,
    )
    contents.duplicates.add(stored.record, text=stored.content, likeness=stored.dedupe_key)
    contents.note_reader(stored.record, sources=stored.sources, context_of=stored.context_of)


def _duplicate_for(contents: Contents, stored: Stored, twin: bytes) -> RecordState | None:
    """Return the record, if it can stand for the equal memory."""
    known = contents.records.get(twin)
    if known is None or not known.live_at(contents.last_time) or not known.lasts_as_long_as(stored):
        return None
    return known


def _is_taken_back(contents: Contents, twin: bytes) -> bool:
    """Whether the memory that a capture repeats in other words is forgotten or erased."""
    known = contents.records.get(twin)
    return twin in contents.erased or (known is not None and known.status is Status.FORGOTTEN)


# Works whose promise has no input of its own: they read their records when they run.
_WITHOUT_INPUT = frozenset({"embed"})


def needs_its_input(work: str) -> bool:
    """Whether a job of this work has an input of its own, sealed, in which the texts of its records stand."""
    return work not in _WITHOUT_INPUT


def accept(contents: Contents, operation: JobAccepted) -> Outcome:
    """Note a promise, unless its input holds what was erased."""
    if operation.job in contents.jobs:
        return contents.refused(Refusal.RECORD_EXISTS, operation.job)
    # What repeated a memory was read as that memory.
    records = tuple(contents.repeats.get(record, record) for record in operation.records)
    if needs_its_input(operation.work) and not contents.erased.isdisjoint(records):
        return contents.refused(Refusal.SOURCE_ERASED, operation.job)
    contents.jobs[operation.job] = JobState(
        operation.job,
        operation.work,
        records,
        operation.sealed,
        contents.last_time,
        seq=contents.position.seq,
    )
    contents.note_job(operation.job, records)
    return contents.done(Result.ACCEPTED, operation.job)


def finish(contents: Contents, operation: JobFinished, job: JobState) -> Outcome:
    """End a job that is there, and store its results; those of erased records are left out."""
    kept = []
    heads = dict(operation.supersedes)
    for stored in operation.stored:
        # A result that names no source comes from all that the job saw.
        if not contents.erased.isdisjoint(stored.sources or job.records):
            continue
        outcome = put(contents, stored, author=b"")
        if outcome.result is Result.STORED:
            kept.append(stored.record)
            replace(contents, heads.get(stored.record, b""), stored.record)
    for vectors in operation.vectors:
        _note_context(contents, vectors.record, vectors.context_of)
    job.state = "failed" if operation.failed else "done"
    job.reason = operation.reason
    job.results = tuple(kept)
    job.sealed = b""
    job.finished_at = contents.last_time
    job.outcome = contents.done(Result.FINISHED, operation.job)
    return job.outcome


def _note_context(contents: Contents, record: bytes, context_of: bytes) -> None:
    known = contents.records.get(record)
    if known is not None and context_of and not known.context_of:
        known.context_of = context_of
        contents.note_reader(record, sources=(), context_of=context_of)


def erase(contents: Contents, records: Sequence[bytes]) -> Outcome:
    """Destroy records and what was derived from them, and note where the log holds their bodies."""
    named = [record for record in dict.fromkeys(records) if record in contents.records]
    if not named:
        return contents.refused(Refusal.UNKNOWN_RECORD)
    derived = contents.readers().derived_from(named, contents.records)
    gone = [contents.records[record] for record in (*named, *derived)]
    slots = _slots_of(contents, gone)
    for record in gone:
        del contents.records[record.record]
        contents.erased.add(record.record)
        contents.duplicates.erase(record.record, text=record.content, likeness=record.likeness)
    read = [source for record in gone for source in record.sources]
    read += _cancel_jobs(contents, [record.record for record in gone])
    rest = tuple(one for one in dict.fromkeys(read) if isinstance(contents.head(one), RecordState))
    contents.erasures.known[named[0]] = Erasure(
        named[0], contents.position.seq, contents.last_time, tuple(named), tuple(derived), rest, slots
    )
    return contents.done(Result.ERASED, named[0])


def trace(contents: Contents, operation: Operation | Malformed) -> None:
    """Note the bodies of an operation of this entry that a record's own slot does not tell of."""
    seq, traces = contents.position.seq, contents.erasures.traces
    match operation:
        case Put(stored=stored, twin=twin):
            _trace_stored(contents, stored)
            if twin:
                traces.note(twin, seq)  # the text of what it repeats, in other words
                _note_late(contents, (twin,))
        case Supersede(stored=stored):
            _trace_stored(contents, stored)
        case JobAccepted(job=job, records=records):
            traces.note(job, seq)
            _note_late(contents, records)
        case JobFinished(job=job, stored=results, vectors=vectors):
            traces.note(job, seq)
            for stored in results:
                _trace_stored(contents, stored)
            for vector in vectors:
                traces.note(vector.record, seq)
                _note_late(contents, (vector.record, vector.context_of))
            known = contents.jobs.get(job)
            _note_late(contents, known.records if known is not None and results else ())
        case _:
            pass


def _slots_of(contents: Contents, gone: Sequence[RecordState]) -> tuple[int, ...]:
    """Return the slots with a body of these records: texts, vectors, job inputs, their neighbours' context."""
    ids, traces = [record.record for record in gone], contents.erasures.traces
    following = [contents.records[one] for one in contents.following(ids)]
    slots: set[int] = set()
    for record in (*gone, *following):
        slots.update((record.seq, *traces.of(record.record, record.content)))
    for job in contents.readers().jobs_of(ids):
        slots.update((contents.jobs[job].seq, *traces.of(job)))
    return tuple(sorted(slots))


def _cancel_jobs(contents: Contents, gone: Sequence[bytes]) -> list[bytes]:
    """End the jobs of which no input is left, or whose sealed input holds an erased text; return their inputs."""
    inputs: list[bytes] = []
    for job in [contents.jobs[one] for one in contents.readers().jobs_of(gone)]:
        if job.outcome is None and (needs_its_input(job.work) or contents.erased.issuperset(job.records)):
            job.state = "failed"
            job.reason = Refusal.SOURCE_ERASED.value
            job.sealed = b""
            job.finished_at = contents.last_time
            job.outcome = contents.refused(Refusal.SOURCE_ERASED, job.job)
            inputs += job.records
    return inputs


def _trace_stored(contents: Contents, stored: Stored) -> None:
    kept = contents.records.get(stored.record)
    if kept is None or kept.seq != contents.position.seq:
        contents.erasures.traces.note(stored.content, contents.position.seq)
        if contents.duplicates.was_erased(stored.content) and not contents.duplicates.of_text(stored.content):
            contents.erasures.late[contents.position.seq] = None
    _note_late(contents, (stored.record, stored.context_of, *stored.sources))


def _note_late(contents: Contents, records: Iterable[bytes]) -> None:
    if not contents.erased.isdisjoint(records):
        contents.erasures.late[contents.position.seq] = None
