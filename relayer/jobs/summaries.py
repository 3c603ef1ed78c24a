"""Notes of a session that has ended: a promised job over what was kept of it, and the one summary that it ends with.

What was said stays as it was kept, whatever becomes of the summary. The summary is derived from all that it was made of: it goes
when one of these is erased, and is made again of the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from relayer.domain.operations import Audience, JobAccepted, Kind, Model, Origin, Record
from relayer.domain.outcomes import JobState
from relayer.extraction.llm.extractor import Extraction
from relayer.extraction.llm.summariser import Summariser
from relayer.jobs.inputs import SUMMARISE, JobTask, Made, input_of, seal_input
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.wire.fields import SPOKEN_ROLES

# A session of fewer messages is its own summary.
_FEWEST = 3
# Of the newest memories so many are looked at; what a session left is among them when it ends.
_LOOKED_AT = 1000
_AT_ONCE = 50
_LLM = "llm"  # who made what a language model wrote


async def said_in(opened: OpenNamespace, session: str, audience: Audience) -> list[Record]:
    """Return what is live of a session among these people, oldest first; nothing that is doubted, and no summary."""
    found: list[Record] = []
    newest = [one for one in opened.ids() if opened.is_memory(one)][-_LOOKED_AT:]
    for place, one in enumerate(reversed(newest)):
        memory = opened.memory(one)
        if memory is not None and memory.is_live and _belongs(memory.record, session, audience):
            found.append(memory.record)
        if place % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return found[::-1]


def _belongs(record: Record, session: str, audience: Audience) -> bool:
    return (
        record.source.session == session
        and record.audience is audience
        and not record.suspect
        # What was made by a model of the same session is no source beside it.
        and record.source.role in SPOKEN_ROLES
        and record.kind is not Kind.SUMMARY
        and record.extractor.name != _LLM
    )


def promise_summary(
    ctx: Context, opened: OpenNamespace, origin: Origin, job: bytes, said: Sequence[Record]
) -> JobAccepted | None:
    """Return the promise of a summary of these memories of one session; None when they are too few for one."""
    if len(said) < _FEWEST:
        return None
    sealed = seal_input(ctx, opened, job, input_of(said))
    return JobAccepted(origin, job, SUMMARISE, tuple(record.id for record in said), sealed)


async def summary_of(summariser: Summariser, seconds: float, task: JobTask) -> Made | None:
    """Ask the model once; None when too little is left for a summary.

    Raises:
        ModelUnavailable, ModelAnswerUnusable, QueueFull: as `Summariser.summarise`.
    """
    if len(task.shown) < _FEWEST:
        return None
    summary = await summariser.summarise(task.lines, seconds=seconds)
    made_by = Model(_LLM, summariser.model, summariser.version)
    drafts = [(task.summary(summary.text, made_by), _earlier(task))] if summary.points else []
    return Made(Extraction((), summary.text, summary.tokens, summary.dropped), drafts)


def _earlier(task: JobTask) -> bytes:
    """Return the live summary of the same session that an earlier job made, because the session went on after it."""
    for one in _results(task.opened.jobs(), task.job):
        memory = task.opened.memory(one)
        if memory is None or not memory.is_live or memory.record.pinned:
            continue
        source, audience = memory.record.source, memory.record.audience
        if source.session == task.given.session and audience is task.given.audience:
            return one
    return b""


def _results(jobs: Sequence[JobState], but: JobState) -> Iterable[bytes]:
    return (
        one for job in reversed(jobs) if job.work == SUMMARISE and job.job != but.job for one in job.results
    )
