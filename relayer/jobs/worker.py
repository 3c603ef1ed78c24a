"""The worker that runs extractions and summaries in the background, next to the requests.

`working` starts as many pending jobs at once as the queue allows, each only while its namespace has a live key. Everything can be
interrupted at any moment: a job is pending in the log until the one operation that ends it, and the next replica that has a
live key for its namespace runs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from relayer.domain.operations import EXTRACT, SUMMARISE, JobFinished, JobState
from relayer.errors import (
    EmbedderUnavailable,
    ModelAnswerUnusable,
    ModelUnavailable,
    QueueFull,
    Refused,
    RelayerError,
)
from relayer.extraction.llm.extractor import Extraction
from relayer.jobs.tasks import begin, end, facts_of, summary_of
from relayer.lib.job_queue import JobQueue, PendingJob, Place
from relayer.lib.scheduler import OnError, Periodic, Scheduler
from relayer.namespaces.context import Context, FactWork
from relayer.namespaces.namespace import OpenNamespace
from relayer.wire.errors import UnsealError

INTERVAL_SECONDS = 1.0
_STEP_SECONDS = 60.0
_WORKS = frozenset({EXTRACT, SUMMARISE})


def pending_jobs(opened: OpenNamespace) -> list[JobState]:
    """Return the pending jobs of a namespace that need the language model."""
    return [job for job in opened.jobs() if job.work in _WORKS and job.outcome is None]


def check_room(ctx: Context, queue: JobQueue, opened: OpenNamespace) -> None:
    """Check that another job of this namespace may be queued; raises `QueueFull` when too many are waiting."""
    account = opened.account
    others = [one for one in ctx.namespaces.all() if one.account == account]
    queue.check_room(len(pending_jobs(opened)), sum(len(pending_jobs(one)) for one in others))


def working(ctx: Context, work: FactWork, scheduler: Scheduler) -> Periodic:
    """Return the periodic task that runs jobs; unexpected errors are reported, and the job is retried later."""
    runs: list[tuple[OpenNamespace, asyncio.Task[None]]] = []

    async def round_(on_error: OnError) -> None:
        runs[:] = [(opened, task) for opened, task in runs if not task.done()]
        now = ctx.clock.now_ms()
        live = set(map(id, ctx.namespaces.all()))
        for opened, task in runs:
            # Its last key has expired, or it was evicted.
            if id(opened) not in live or opened.key_not_after < now:
                task.cancel()
        for opened, item in _startable(ctx, work):
            run = _run(ctx, work, opened, item.job, on_error)
            runs.append((opened, scheduler.spawn(run, "job")))

    return Periodic("job", round_, INTERVAL_SECONDS, wake=work.queue.wake)


def _startable(ctx: Context, work: FactWork) -> Iterator[tuple[OpenNamespace, PendingJob]]:
    now = ctx.clock.now_ms()
    places: dict[Place, OpenNamespace] = {
        (opened.account, opened.name): opened
        for opened in ctx.namespaces.all()
        if opened.key_not_after >= now and not opened.broken
    }
    own = ctx.own_works
    waiting = [
        PendingJob(place, job)
        for place, opened in places.items()
        for job in pending_jobs(opened)
        if job.work in own
    ]
    while (item := work.queue.choose(waiting)) is not None:
        work.queue.started(item)
        yield places[item.place], item


async def _run(ctx: Context, work: FactWork, opened: OpenNamespace, job: JobState, on_error: OnError) -> None:
    opened.users += 1
    try:
        await _attempt(ctx, work, opened, job)
    except RelayerError as error:
        on_error(error)
        work.queue.put_off(job.job, "store_unavailable", getattr(error, "retry_after", 0.0))
    except Exception as error:  # noqa: BLE001 - whatever it was, the other jobs continue
        on_error(error)
        work.queue.put_off(job.job, "internal_error")
    finally:
        opened.users -= 1
        work.queue.stopped(job.job)


async def _attempt(ctx: Context, work: FactWork, opened: OpenNamespace, job: JobState) -> None:
    """Run a job once, and decide whether a failure ends it or it is retried."""
    queue, account = work.queue, opened.account
    wait = work.budget.wait_ms(account, ctx.clock.now_ms())
    if wait:
        queue.put_off(job.job, "budget_used_up", wait / 1000)
        return
    try:
        async with asyncio.timeout(work.seconds + 2 * _STEP_SECONDS):
            found = await finish(ctx, work, opened, job)
    except (ModelUnavailable, EmbedderUnavailable, QueueFull, TimeoutError) as error:
        waited = ctx.clock.now_ms() - job.accepted_at
        if waited > queue.limits.patience_ms:
            await fail(work, opened, job, "model_unavailable")
        else:
            queue.put_off(job.job, "model_unavailable", getattr(error, "retry_after", 0.0))
    except ModelAnswerUnusable as error:
        work.budget.spend(account, error.tokens, ctx.clock.now_ms())
        reason = f"model_answer_{error.reason}"
        queue.counts[reason] += 1
        progress = queue.put_off(job.job, reason, bad_answer=True)
        if progress.bad_answers >= queue.limits.bad_answers:
            await fail(work, opened, job, reason)
    except (UnsealError, msgspec.MsgspecError):
        await fail(work, opened, job, "input_unreadable")
    except Refused as error:
        await fail(work, opened, job, error.code)
    else:
        queue.ended(job.job, "done")
        if found is not None:
            queue.counts["facts"] += len(found.facts)
            queue.counts.update({f"dropped_{why}": count for why, count in found.dropped.items()})


async def finish(ctx: Context, work: FactWork, opened: OpenNamespace, job: JobState) -> Extraction | None:
    """Run a job to its end, unless it has ended: one call of the model, one log entry; return None if the model was not asked."""
    task = await begin(opened, job)
    if task is None:
        return None
    if job.work == SUMMARISE and work.summariser is not None:
        made = await summary_of(work.summariser, work.seconds, task)
    else:
        made = await facts_of(ctx, work, task)
    if made is not None:
        work.budget.spend(opened.account, made.found.tokens, ctx.clock.now_ms())
    # If too little is left to ask about, the messages were forgotten or erased since.
    await end(ctx, task, made)
    return made.found if made is not None else None


async def fail(work: FactWork, opened: OpenNamespace, job: JobState, reason: str) -> None:
    """End a job permanently, with a reason that is one word."""
    await opened.append([JobFinished(job.job, failed=True, reason=reason)])
    work.queue.ended(job.job, "failed")
