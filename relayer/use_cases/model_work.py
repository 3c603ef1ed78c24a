"""Pending jobs whose prompts are completed by a gateway's language model, because this relayer has none for them.

`model_work` returns the prompt of the next job to a gateway, which sends the completion of its model with its next request.
`_take` then finishes the job with it, using the same code and checks as for the relayer's own models. Any client that may
write to a namespace may do its jobs. Only the time at which a prompt was handed out is remembered, so that two gateways do
not pay for the same job; every replica accepts the completion.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from relayer.access.accounts import Access
from relayer.domain.operations import JobState
from relayer.errors import ModelAnswerUnusable
from relayer.extraction.llm.borrowed import BorrowedModel, ModelToBeAsked
from relayer.extraction.llm.extractor import LlmExtractor
from relayer.extraction.llm.summariser import Summariser
from relayer.jobs.worker import fail, finish, pending_jobs
from relayer.lib.job_queue import DailyLimits, ModelBudget, PendingJob
from relayer.lib.work import Deadline
from relayer.namespaces.context import Context, FactWork, no_such_job, parse_id
from relayer.namespaces.namespace import OpenNamespace
from relayer.wire import codec as ulid
from relayer.wire.errors import UnsealError
from relayer.wire.questions import GivenAnswer, ModelWorkRequest, ModelWorkResponse

# For this long, a prompt that was handed out to one gateway is not handed out again. If that gateway dies, the job is delayed by
# no more than this.
_LEASE_SECONDS = 120.0


async def model_work(
    ctx: Context, access: Access, request: ModelWorkRequest, deadline: Deadline
) -> ModelWorkResponse:
    """Finish a job with the completion in the request, if there is one, and return the prompt of the next job.

    Raises:
        Refused: ``not_found``: the job's id is invalid.
    """
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return ModelWorkResponse()
        await opened.refresh(deadline)
        told = ModelWorkResponse()
        if request.job_id is not None:
            told = await _take(ctx, opened, request, request.job_id)
            if request.answer is None:
                # The gateway's model did not respond, so it does not get the next prompt now.
                return told.model_copy(update={"waiting": len(_lent(ctx, opened))})
        return await _next(ctx, opened, request, told)


async def _take(
    ctx: Context, opened: OpenNamespace, request: ModelWorkRequest, job_id: str
) -> ModelWorkResponse:
    """Finish a job with the completion of the gateway's model; without a completion, retry the job later."""
    job = opened.job(parse_id(job_id, no_such_job()))
    if job is None or job.outcome is not None or job not in _lent(ctx, opened):
        return ModelWorkResponse(outcome="stale")
    if request.answer is None:
        ctx.lent.put_off(job.job, "model_unavailable")
        return ModelWorkResponse()
    work = _work(ctx, request, request.answer)
    try:
        found = await finish(ctx, work, opened, job)
    except ModelToBeAsked:
        ctx.lent.put_off(job.job, "changed")
        return ModelWorkResponse(outcome="stale")
    except ModelAnswerUnusable as error:
        progress = ctx.lent.put_off(job.job, f"model_answer_{error.reason}", bad_answer=True)
        if progress.bad_answers < ctx.lent.limits.bad_answers:
            return ModelWorkResponse(outcome="unusable")
        await fail(work, opened, job, f"model_answer_{error.reason}")
        return ModelWorkResponse(outcome="failed")
    ctx.lent.ended(job.job, "done")
    facts, dropped = (len(found.facts), found.dropped.total()) if found is not None else (0, 0)
    ctx.lent.counts["facts"] += facts
    return ModelWorkResponse(outcome="done", facts=facts, dropped=dropped)


async def _next(
    ctx: Context, opened: OpenNamespace, request: ModelWorkRequest, told: ModelWorkResponse
) -> ModelWorkResponse:
    """Return the prompt of the oldest job that is due, and finish older jobs that turn out to need no model."""
    jobs, soonest = _lent(ctx, opened), None
    for job in jobs:
        _, _, wait = ctx.lent.look(job.job)
        if wait:
            soonest = min(wait, soonest or wait)
            continue
        ctx.lent.started(PendingJob((opened.account, opened.name), job))
        ctx.lent.put_off(job.job, "asked", _LEASE_SECONDS)
        ctx.lent.stopped(job.job)
        work = _work(ctx, request)
        try:
            await finish(ctx, work, opened, job)
        except ModelToBeAsked as asked:
            return told.model_copy(
                update={
                    "job_id": ulid.render(job.job),
                    "work": job.work,
                    "question": asked.question,
                    "waiting": len(_lent(ctx, opened)),
                }
            )
        except (UnsealError, msgspec.MsgspecError):
            await fail(work, opened, job, "input_unreadable")
        else:
            ctx.lent.ended(job.job, "done")
    retry = None if soonest is None else int(soonest * 1000)
    return told.model_copy(update={"waiting": len(_lent(ctx, opened)), "retry_in_ms": retry})


def _lent(ctx: Context, opened: OpenNamespace) -> Sequence[JobState]:
    own = ctx.own_works
    return [job for job in pending_jobs(opened) if job.work not in own]


def _work(ctx: Context, request: ModelWorkRequest, answer: GivenAnswer | None = None) -> FactWork:
    """Return the services that do a job with a gateway's model, without a budget: the gateway counts its own costs."""
    model = BorrowedModel(answer)
    return FactWork(
        extractor=LlmExtractor(model, summaries=request.turn_summaries),
        queue=ctx.lent,
        budget=ModelBudget(DailyLimits()),
        summariser=Summariser(model),
    )
