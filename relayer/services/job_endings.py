"""How a promised job of the model begins and ends: opened unless it has an end, and ended by one entry in the log."""

from __future__ import annotations

from collections.abc import Sequence

from relayer.domain.operations import JobAccepted, JobFinished, Operation, Origin, Stored
from relayer.domain.record import Kind, Model, Role, Source, Trust
from relayer.domain.standing import JobState
from relayer.extraction.language import guess_language
from relayer.extraction.llm.conversation import Line
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.draft import Draft
from relayer.services.drafting import EMBED, seal_results
from relayer.services.job_inputs import JobInput, Shown, all_of, live_lines, unseal_input
from relayer.services.open_namespace import OpenNamespace
from relayer.wire import schemas, ulid

__all__ = ["begin", "end", "end_without_results", "lines_of", "seal_in_time", "summary_draft"]

_APPEND_SECONDS = 60.0


async def begin(opened: OpenNamespace, job: JobState) -> tuple[JobState, JobInput, Shown] | None:
    """Return the job as it is now, its input, and what is live of it; None when it has ended meanwhile.

    Raises:
        UnsealError, msgspec.MsgspecError: the input cannot be read.
        RelayerError: the log could not be read.
    """
    await opened.read(schemas.Consistency.STRONG)
    current = opened.log.state.jobs.get(job.job)
    if current is None or current.outcome is not None:
        return None
    given = unseal_input(opened, current)
    return current, given, live_lines(opened, given)


def lines_of(shown: Shown) -> list[Line]:
    """Return what the model reads."""
    return [Line(line.role, line.text, line.occurred_at, line.speaker) for line, _ in shown]


async def seal_in_time(
    ctx: Context, opened: OpenNamespace, drafts: Sequence[Draft], given: JobInput
) -> list[Stored | None]:
    """Seal what the model made of an input, as `relayer.services.drafting.seal_results` does."""
    return await seal_results(ctx, opened, drafts, given.author, Deadline.after(ctx.clock, _APPEND_SECONDS))


async def end_without_results(opened: OpenNamespace, job: JobState) -> None:
    """End a job of which too little is left: what was said is forgotten or erased by now."""
    await opened.log.append([JobFinished(job.job)])


async def end(
    ctx: Context,
    opened: OpenNamespace,
    job: JobState,
    results: Sequence[Stored],
    supersedes: tuple[tuple[bytes, bytes], ...],
) -> None:
    """End a job with its results, each with the memory whose place it takes; vectors that are missing come later."""
    operations: list[Operation] = [JobFinished(job.job, stored=tuple(results), supersedes=supersedes)]
    if any(not stored.vector for stored in results):
        operations.append(_vectors_later(ctx, job, results))
    await opened.log.append(operations)


def _vectors_later(ctx: Context, job: JobState, results: Sequence[Stored]) -> JobAccepted:
    """Promise the vectors of results that could not be embedded; the job's second operation, however often it runs."""
    missing = tuple(stored.record for stored in results if not stored.vector)
    promised = ulid.make(ctx.clock.now_ms(), ctx.randomness.bytes(10))
    return JobAccepted(Origin(author=b"", nonce=job.job, index=1), promised, EMBED, missing)


def summary_draft(given: JobInput, shown: Shown, text: str, extractor: Model) -> Draft:
    """Return a summary of all that was shown."""
    times = [line.occurred_at for line, _ in shown if line.occurred_at is not None]
    return Draft(
        text=text,
        kind=Kind.SUMMARY,
        audience=given.audience,
        trust=Trust.ASSISTANT,
        lang=guess_language(text),
        occurred_at=max(times, default=None),
        extractor=extractor,
        captured=True,
        sources=all_of(shown),
        source=Source(host=given.host, agent=given.agent, session=given.session, role=Role.ASSISTANT),
    )
