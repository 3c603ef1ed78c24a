"""What a promised job of the model is given, and what is appended when it ends.

The input, messages and the memories that hold them, is sealed in the log beside the promise. When the job runs, only what
is still live of it counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from relayer.domain.operations import JobAccepted, JobFinished, Operation, Origin, Stored
from relayer.domain.outcomes import JobState, Status
from relayer.domain.record import Audience, Kind, Model, Record, Role, Source, Trust
from relayer.extraction.language import guess_language
from relayer.extraction.llm.conversation import MOST_CHARACTERS, Line
from relayer.extraction.normal_text import normal_text
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.wire import schemas
from relayer.wire.sealing import SALT_SIZE
from relayer.writing.drafts import EMBED, Draft, new_id

# The works of these jobs, as the log names them.
EXTRACT = "extract"
SUMMARISE = "summarise"
_MOST_SHOWN = 48_000  # characters of one capture: about 12,000 tokens of English


class JobLine(msgspec.Struct, frozen=True, array_like=True):
    """One message of a job's input; ``record`` is the memory that holds it verbatim, empty when none was asked for."""

    role: Role
    text: str
    occurred_at: int | None = None
    speaker: str = ""
    message_id: str = ""
    record: bytes = b""


class JobInput(msgspec.Struct, frozen=True, array_like=True):
    """What a job needs to know, sealed in the log beside its promise."""

    lines: tuple[JobLine, ...]
    audience: Audience
    host: str
    agent: str
    session: str
    author: bytes


Shown = Sequence[tuple[JobLine, tuple[bytes, ...]]]

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(JobInput)


def input_of(records: Sequence[Record]) -> JobInput:
    """Return the input of a job about memories of one session, one at least."""
    lines = tuple(
        JobLine(
            record.source.role,
            record.text,
            record.occurred_at,
            record.source.speaker,
            "".join(record.source.message_ids[:1]),
            record.id,
        )
        for record in records
    )
    first = records[0]
    source = first.source
    return JobInput(lines, first.audience, source.host, source.agent, source.session, first.author)


def seal_input(ctx: Context, opened: OpenNamespace, job: bytes, given: JobInput) -> bytes:
    """Seal a job's input under its id."""
    return opened.keys.seal_record(job, _ENCODER.encode(given), salt=ctx.randomness.bytes(SALT_SIZE))


def unseal_input(opened: OpenNamespace, job: JobState) -> JobInput:
    """Open a job's input; raises `relayer.wire.errors.UnsealError` or `msgspec.MsgspecError`."""
    return _DECODER.decode(opened.keys.unseal_record(job.job, job.sealed))


def live_lines(opened: OpenNamespace, given: JobInput) -> list[tuple[JobLine, tuple[bytes, ...]]]:
    """Return the newest lines that fit one question, of what is still live, each with the memories that hold it."""
    sources = _sources(opened, given.lines)
    return _fitting(
        [
            (line, records)
            for line, records in zip(given.lines, sources, strict=True)
            if records or not line.record
        ]
    )


def _sources(opened: OpenNamespace, lines: Sequence[JobLine]) -> list[tuple[bytes, ...]]:
    """Return for each line the live memories that hold it verbatim: its own, or those it was a duplicate of."""
    alike: dict[bytes, list[bytes]] = {
        opened.keys.content_mac(normal_text(line.text)): []
        for line in lines
        if line.record and opened.state(line.record) is None
    }
    if alike:
        for state in opened.states():
            if state.content in alike and state.status is Status.LIVE:
                alike[state.content].append(state.record)
    found: list[tuple[bytes, ...]] = []
    for line in lines:
        own = opened.state(line.record)
        if own is not None:
            found.append((line.record,) if own.status is Status.LIVE else ())
        elif line.record:
            found.append(tuple(alike[opened.keys.content_mac(normal_text(line.text))]))
        else:
            found.append(())
    return found


def _fitting(shown: Shown) -> list[tuple[JobLine, tuple[bytes, ...]]]:
    """Keep the newest lines that fit one question."""
    kept: list[tuple[JobLine, tuple[bytes, ...]]] = []
    room = _MOST_SHOWN
    for line, records in reversed(shown):
        room -= min(len(line.text), MOST_CHARACTERS)
        if room < 0:
            break
        kept.append((line, records))
    return kept[::-1]


def all_of(shown: Shown) -> tuple[bytes, ...]:
    """Return the memories that hold any of the lines, each once."""
    return tuple(dict.fromkeys(record for _, records in shown for record in records))


async def begin(opened: OpenNamespace, job: JobState) -> tuple[JobState, JobInput, Shown] | None:
    """Return the job as it is now, its input, and what is live of it; None when it has ended meanwhile.

    Raises:
        UnsealError, msgspec.MsgspecError: the input cannot be read.
        RelayerError: the log could not be read.
    """
    await opened.read(schemas.Consistency.STRONG)
    current = opened.job(job.job)
    if current is None or current.outcome is not None:
        return None
    given = unseal_input(opened, current)
    return current, given, live_lines(opened, given)


def lines_of(shown: Shown) -> list[Line]:
    """Return what the model reads."""
    return [Line(line.role, line.text, line.occurred_at, line.speaker) for line, _ in shown]


async def end_without_results(opened: OpenNamespace, job: JobState) -> None:
    """End a job of which too little is left: what was said is forgotten or erased by now."""
    await opened.append([JobFinished(job.job)])


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
    await opened.append(operations)


def _vectors_later(ctx: Context, job: JobState, results: Sequence[Stored]) -> JobAccepted:
    """Promise the vectors of results that could not be embedded; the job's second operation, however often it runs."""
    missing = tuple(stored.record for stored in results if not stored.vector)
    return JobAccepted(Origin(author=b"", nonce=job.job, index=1), new_id(ctx), EMBED, missing)


def summary_draft(opened: OpenNamespace, given: JobInput, shown: Shown, text: str, extractor: Model) -> Draft:
    """Return a summary of all that was shown."""
    times = [line.occurred_at for line, _ in shown if line.occurred_at is not None]
    record = Record(
        id=b"",
        namespace=opened.name,
        text=text,
        kind=Kind.SUMMARY,
        audience=given.audience,
        trust=Trust.ASSISTANT,
        lang=guess_language(text),
        occurred_at=max(times, default=None),
        source=Source(host=given.host, agent=given.agent, session=given.session, role=Role.ASSISTANT),
        extractor=extractor,
        author=given.author,
    )
    return Draft(record, captured=True, sources=all_of(shown))
