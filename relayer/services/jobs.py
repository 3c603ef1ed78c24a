"""Jobs: the truth about promised work, read from the log and from nowhere else."""

from __future__ import annotations

from relayer.domain.standing import JobState
from relayer.errors import Refused
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.open_namespace import OpenNamespace
from relayer.services.shares import Place
from relayer.wire import schemas, ulid
from relayer.wire.errors import Malformed

__all__ = ["get_job", "wait_for_end"]

_POLL_SECONDS = 1.0  # how soon an end written by another replica is noticed


async def get_job(
    ctx: Context, access: Access, job_id: str, wait_ms: int, deadline: Deadline
) -> schemas.JobResponse:
    """Return a job's state, waiting up to ``wait_ms`` for its end.

    Raises:
        Refused: ``not_found``, also for an id that is none.
    """
    try:
        wanted = ulid.parse(job_id)
    except Malformed as error:
        raise _not_found() from error
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            raise _not_found()
        job = await _look(opened, wanted, deadline)
        if ctx.facts is not None:
            ctx.facts.queue.wake()
        if job.outcome is None and wait_ms:
            with ctx.polls.place(access.account) as place:
                job = await wait_for_end(ctx, opened, wanted, wait_ms, deadline, place=place)
        return _show(ctx, job)


async def wait_for_end(
    ctx: Context,
    opened: OpenNamespace,
    job_id: bytes,
    wait_ms: int,
    deadline: Deadline,
    *,
    place: Place | None = None,
) -> JobState:
    """Return a job when it has ended, wherever it ran, after ``wait_ms``, or when there is no more waiting for it here."""
    patience = Deadline.after(ctx.clock, min(wait_ms / 1000, max(0.0, deadline.remaining() - 0.5)))
    while True:
        job = await _look(opened, job_id, deadline)
        if job.outcome is not None or patience.remaining() <= 0 or (place is not None and place.lost):
            return job
        await opened.changed(min(_POLL_SECONDS, patience.remaining()))
        if not ctx.namespaces.holds(opened):
            return job


async def _look(opened: OpenNamespace, wanted: bytes, deadline: Deadline) -> JobState:
    async with deadline.step("read"):
        await opened.read(schemas.Consistency.STRONG, None)
    job = opened.log.state.jobs.get(wanted)
    if job is None:
        raise _not_found()
    return job


def _show(ctx: Context, job: JobState) -> schemas.JobResponse:
    shown: dict[str, object] = {
        "id": ulid.render(job.job),
        "work": job.work,
        "state": job.state if job.outcome is not None else "queued",
        "accepted_at": job.accepted_at,
        "finished_at": job.finished_at or None,
        "memories": tuple(map(ulid.render, job.results or job.records)),
        "reason": job.reason or None,
    }
    if job.outcome is None and ctx.facts is not None:
        state, progress, wait = ctx.facts.queue.look(job.job)
        shown |= {"state": state, "attempts": progress.attempts, "reason": progress.reason or None}
        shown["retry_in_ms"] = int(wait * 1000) if wait else None
    return schemas.JobResponse.model_validate(shown)


def _not_found() -> Refused:
    return Refused("not_found", "no such job in this namespace")
