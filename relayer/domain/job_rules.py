"""What becomes of a promised piece of work: accepted, or ended with what it made of its records."""

from __future__ import annotations

from relayer.domain.contents import Contents
from relayer.domain.operations import JobAccepted, JobFinished
from relayer.domain.outcomes import Outcome, Refusal, Result
from relayer.domain.record_rules import put, replace
from relayer.domain.standing import JobState

__all__ = ["accept", "finish", "needs_its_input"]

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
