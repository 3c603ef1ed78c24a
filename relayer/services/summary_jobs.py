"""Notes of a session that has ended: a promised job over what was kept of it, and the one summary that it ends with.

What was said stays as it was kept, whatever becomes of the summary. The summary is derived from all that it was made of: it goes
when one of these is erased, and is made again of the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from relayer.domain.operations import JobAccepted, JobFinished, Operation, Origin
from relayer.domain.record import Audience, Kind, Model, Record, Role, Source, Trust
from relayer.domain.standing import JobState, Standing
from relayer.extraction.language import guess_language
from relayer.extraction.llm.conversation import Line
from relayer.extraction.llm.extractor import Extraction
from relayer.extraction.llm.summariser import Summariser
from relayer.services.context import Context, FactWork
from relayer.services.deadline import Deadline
from relayer.services.draft import Draft
from relayer.services.drafting import seal_results
from relayer.services.fact_jobs import (
    APPEND_SECONDS,
    LLM,
    SUMMARISE,
    JobInput,
    Shown,
    all_of,
    input_of,
    live_lines,
    seal_input,
    unseal_input,
    vectors_later,
)
from relayer.services.open_namespace import OpenNamespace
from relayer.wire import schemas

__all__ = ["finish_summary", "promise_summary", "said_in"]

# A session of fewer messages is its own summary.
_FEWEST = 3
# Of the newest memories so many are looked at; what a session left is among them when it ends.
_LOOKED_AT = 1000
_AT_ONCE = 50


async def said_in(opened: OpenNamespace, session: str, audience: Audience) -> list[Record]:
    """Return what is live of a session among these people, oldest first; nothing that is doubted, and no summary."""
    found: list[Record] = []
    states = opened.log.state.records
    newest = list(opened.view.ids())[-_LOOKED_AT:]
    for place, one in enumerate(reversed(newest)):
        record = opened.view.get(one)
        known = states.get(one)
        is_live = known is not None and known.standing is Standing.LIVE
        if record is not None and is_live and _belongs(record, session, audience):
            found.append(record)
        if place % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return found[::-1]


def _belongs(record: Record, session: str, audience: Audience) -> bool:
    return (
        record.source.session == session
        and record.audience is audience
        and not record.suspect
        # What was made by a model of the same session is no source beside it.
        and record.source.role in {Role.USER, Role.ASSISTANT}
        and record.kind is not Kind.SUMMARY
        and record.extractor.name != LLM
    )


def promise_summary(
    ctx: Context, opened: OpenNamespace, origin: Origin, job: bytes, said: Sequence[Record]
) -> JobAccepted | None:
    """Return the promise of a summary of these memories of one session; None when they are too few for one."""
    if len(said) < _FEWEST:
        return None
    sealed = seal_input(ctx, opened, job, input_of(said))
    return JobAccepted(origin, job, SUMMARISE, tuple(record.id for record in said), sealed)


async def finish_summary(
    ctx: Context, work: FactWork, summariser: Summariser, opened: OpenNamespace, job: JobState
) -> Extraction | None:
    """Run a job to its end, unless it has one: one call of the model, one entry in the log.

    Returns:
        What was counted; None when the model was not asked.

    Raises:
        ModelUnavailable, ModelAnswerUnusable, QueueFull: as `Summariser.summarise`.
        UnsealError, msgspec.MsgspecError: the input cannot be read.
        RelayerError: the log could not be read or written.
    """
    await opened.read(schemas.Consistency.STRONG)
    current = opened.log.state.jobs.get(job.job)
    if current is None or current.outcome is not None:
        return None
    given = unseal_input(opened, current)
    shown = live_lines(opened, given)
    if len(shown) < _FEWEST:
        # Too much of it is forgotten or erased by now.
        await opened.log.append([JobFinished(job.job)])
        return None
    lines = [Line(line.role, line.text, line.occurred_at, line.speaker) for line, _ in shown]
    summary = await summariser.summarise(lines, seconds=work.seconds)
    work.budget.spend(opened.namespace.account, summary.tokens, ctx.clock.now_ms())
    drafts = [_draft(summariser, given, shown, summary.text)] if summary.points else []
    deadline = Deadline.after(ctx.clock, APPEND_SECONDS)
    sealed = await seal_results(ctx, opened, drafts, given.author, deadline)
    results = [stored for stored in sealed if stored is not None]
    earlier = _earlier(opened, current, given)
    replaced = tuple((stored.record, earlier) for stored in results if earlier)
    operations: list[Operation] = [JobFinished(job.job, stored=tuple(results), supersedes=replaced)]
    if any(not stored.vector for stored in results):
        operations.append(vectors_later(ctx, job, results))
    await opened.log.append(operations)
    return Extraction((), summary.text, summary.tokens, summary.dropped)


def _draft(summariser: Summariser, given: JobInput, shown: Shown, text: str) -> Draft:
    times = [line.occurred_at for line, _ in shown if line.occurred_at is not None]
    return Draft(
        text=text,
        kind=Kind.SUMMARY,
        audience=given.audience,
        trust=Trust.ASSISTANT,
        lang=guess_language(text),
        occurred_at=max(times, default=None),
        extractor=Model(LLM, summariser.model, summariser.version),
        captured=True,
        sources=all_of(shown),
        source=Source(host=given.host, agent=given.agent, session=given.session, role=Role.ASSISTANT),
    )


def _earlier(opened: OpenNamespace, job: JobState, given: JobInput) -> bytes:
    """Return the live summary of the same session that an earlier job made, because the session went on after it."""
    states = opened.log.state
    for one in _results(states.jobs.values(), job):
        known, record = states.records.get(one), opened.view.get(one)
        if known is None or record is None or known.standing is not Standing.LIVE or record.pinned:
            continue
        if record.source.session == given.session and record.audience is given.audience:
            return one
    return b""


def _results(jobs: Iterable[JobState], but: JobState) -> Iterable[bytes]:
    return (
        one
        for job in reversed(list(jobs))
        if job.work == SUMMARISE and job.job != but.job
        for one in job.results
    )
