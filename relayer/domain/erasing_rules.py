"""What erasing takes along, and which slots of the log hold bodies of what went.

Slots are noted as entries are applied, whatever was erased by then: a body is found by what it is a body of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relayer.domain.contents import Contents
from relayer.domain.erasures import Erasure
from relayer.domain.job_rules import needs_its_input
from relayer.domain.operations import JobAccepted, JobFinished, Malformed, Operation, Put, Stored, Supersede
from relayer.domain.outcomes import Outcome, Refusal, Result
from relayer.domain.standing import RecordState

__all__ = ["erase", "trace"]


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
        contents.twins.erase(record.record, text=record.content, likeness=record.likeness)
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
        if contents.twins.was_erased(stored.content) and not contents.twins.saying(stored.content):
            contents.erasures.late[contents.position.seq] = None
    _note_late(contents, (stored.record, stored.context_of, *stored.sources))


def _note_late(contents: Contents, records: Iterable[bytes]) -> None:
    if not contents.erased.isdisjoint(records):
        contents.erasures.late[contents.position.seq] = None
