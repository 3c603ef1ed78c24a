"""Facts from a promised job: its sealed input, the one call of the model, and the one operation that ends it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from relayer.domain.operations import JobAccepted, JobFinished, Operation, Origin, Stored
from relayer.domain.record import Audience, Kind, Model, Record, Role, Source, Trust
from relayer.domain.standing import JobState, Standing
from relayer.errors import EmbedderUnavailable, QueueFull
from relayer.extraction.language import guess_language
from relayer.extraction.llm.conversation import MOST_CHARACTERS, Line
from relayer.extraction.llm.extractor import Extraction, Fact
from relayer.extraction.normal_text import normal_text
from relayer.services.context import Context, FactWork
from relayer.services.deadline import Deadline
from relayer.services.draft import Draft
from relayer.services.drafting import EMBED, seal_results
from relayer.services.open_namespace import OpenNamespace
from relayer.services.view import header_of
from relayer.wire import schemas, ulid
from relayer.wire.sealing import SALT_SIZE

__all__ = [
    "APPEND_SECONDS",
    "EXTRACT",
    "LLM",
    "SUMMARISE",
    "JobInput",
    "JobLine",
    "Shown",
    "all_of",
    "finish_facts",
    "input_of",
    "live_lines",
    "seal_input",
    "unseal_input",
    "vectors_later",
]

EXTRACT = "extract"
SUMMARISE = "summarise"
LLM = "llm"  # who made what a language model wrote
APPEND_SECONDS = 60.0
_MOST_KNOWN = 12
_LOOKED_AT = 48
_QUERY_CHARACTERS = 2000
_KNOWN_FLOOR = 0.1
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


async def finish_facts(
    ctx: Context, work: FactWork, opened: OpenNamespace, job: JobState
) -> Extraction | None:
    """Run a job to its end, unless it has one: one call of the model, one entry in the log.

    Returns:
        What the model said; None when it was not asked.

    Raises:
        ModelUnavailable, ModelAnswerUnusable, QueueFull: as `LlmExtractor.extract`.
        UnsealError, msgspec.MsgspecError: the input cannot be read.
        RelayerError: the log could not be read or written.
    """
    await opened.read(schemas.Consistency.STRONG)
    current = opened.log.state.jobs.get(job.job)
    if current is None or current.outcome is not None:
        return None
    given = unseal_input(opened, current)
    shown = live_lines(opened, given)
    if not any(records for _, records in shown):
        # Whatever was said is forgotten or erased by now: nothing may be made of it any more.
        await opened.log.append([JobFinished(job.job)])
        return None
    lines = [Line(line.role, line.text, line.occurred_at, line.speaker) for line, _ in shown]
    known = await _known(ctx, opened, given, shown)
    found = await work.extractor.extract(lines, [header_of(record) for record in known], seconds=work.seconds)
    work.budget.spend(opened.namespace.account, found.tokens, ctx.clock.now_ms())
    await _append(ctx, work, opened, current, given=given, shown=shown, known=known, found=found)
    return found


async def _append(
    ctx: Context,
    work: FactWork,
    opened: OpenNamespace,
    job: JobState,
    *,
    given: JobInput,
    shown: Shown,
    known: Sequence[Record],
    found: Extraction,
) -> None:
    facts = [fact for fact in found.facts if fact.relation != "duplicate"]
    drafts = [_draft(work, given, shown, known, fact) for fact in facts]
    if found.summary:
        drafts.append(_summary(work, given, shown, found.summary))
    deadline = Deadline.after(ctx.clock, APPEND_SECONDS)
    results = await seal_results(ctx, opened, drafts, given.author, deadline)
    replaced = tuple(
        (stored.record, known[fact.known].id)
        for fact, stored in zip(facts, results, strict=False)
        if stored is not None
        and fact.known is not None
        and fact.relation == "supersedes"
        and _may_replace(work, given, known[fact.known])
    )
    kept = [stored for stored in results if stored is not None]
    operations: list[Operation] = [JobFinished(job.job, stored=tuple(kept), supersedes=replaced)]
    if any(not stored.vector for stored in kept):
        operations.append(vectors_later(ctx, job, kept))
    await opened.log.append(operations)


def vectors_later(ctx: Context, job: JobState, results: Sequence[Stored]) -> JobAccepted:
    """Promise the vectors of results that could not be embedded; the job's second operation, however often it runs."""
    missing = tuple(stored.record for stored in results if not stored.vector)
    promised = ulid.make(ctx.clock.now_ms(), ctx.randomness.bytes(10))
    return JobAccepted(Origin(author=b"", nonce=job.job, index=1), promised, EMBED, missing)


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
    records = opened.log.state.records
    alike: dict[bytes, list[bytes]] = {
        opened.keys.content_mac(normal_text(line.text)): []
        for line in lines
        if line.record and line.record not in records
    }
    if alike:
        for state in records.values():
            if state.content in alike and state.standing is Standing.LIVE:
                alike[state.content].append(state.record)
    found: list[tuple[bytes, ...]] = []
    for line in lines:
        own = records.get(line.record)
        if own is not None:
            found.append((line.record,) if own.standing is Standing.LIVE else ())
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


async def _known(ctx: Context, opened: OpenNamespace, given: JobInput, shown: Shown) -> list[Record]:
    """Return memories that the facts may repeat, replace or contradict: none that is itself a verbatim turn."""
    query = "\n".join(line.text for line, _ in shown if line.role is Role.USER)[:_QUERY_CHARACTERS]
    if not query:
        return []
    model = opened.view.model
    try:
        vector = (await ctx.embedder_of(model).embed([query]))[0]
    except (EmbedderUnavailable, QueueFull):
        vector = None
    await opened.settle()
    if model != opened.view.model:
        vector = None
    allowed = opened.view.roster.allowed(
        kinds=(), audiences=(given.audience.value,), trusts=(), suspect=False, now=ctx.clock.now_ms()
    )
    found = opened.view.index.search(vector, query, _LOOKED_AT, allowed=allowed, floor=_KNOWN_FLOOR)
    records = [opened.view.by_number(hit.key) for hit in found.hits]
    return [record for record in records if record.extractor.name != ctx.extractor.name][:_MOST_KNOWN]


def _may_replace(work: FactWork, given: JobInput, old: Record) -> bool:
    """Whether a model's word is enough: for what a model noted, among the same people, and nobody pinned."""
    return old.extractor.name == work.extractor.name and old.audience is given.audience and not old.pinned


def _draft(work: FactWork, given: JobInput, shown: Shown, known: Sequence[Record], fact: Fact) -> Draft:
    line, records = shown[fact.line]
    contradicted: tuple[bytes, ...] = ()
    if fact.known is not None and fact.relation != "new":
        old = known[fact.known]
        replaces = fact.relation == "supersedes" and _may_replace(work, given, old)
        contradicted = () if replaces else (old.id,)
    return Draft(
        text=fact.text,
        kind=fact.kind,
        audience=given.audience,
        trust=Trust.USER if line.role is Role.USER else Trust.ASSISTANT,
        importance=fact.importance,
        lang=guess_language(fact.text),
        occurred_at=fact.occurred_at_ms,
        extractor=_made_by(work),
        captured=True,
        # A message that is no memory itself was read beside the others, and goes with any of them.
        sources=records or all_of(shown),
        contradicts=contradicted,
        source=Source(
            host=given.host,
            agent=given.agent,
            session=given.session,
            speaker=line.speaker,
            role=line.role,
            message_ids=(line.message_id,) if line.message_id else (),
            span=fact.span,
            reference=ulid.render(records[0]) if records else "",
        ),
    )


def _summary(work: FactWork, given: JobInput, shown: Shown, text: str) -> Draft:
    times = [line.occurred_at for line, _ in shown if line.occurred_at is not None]
    return Draft(
        text=text,
        kind=Kind.SUMMARY,
        audience=given.audience,
        trust=Trust.ASSISTANT,
        lang=guess_language(text),
        occurred_at=max(times, default=None),
        extractor=_made_by(work),
        captured=True,
        sources=all_of(shown),
        source=Source(host=given.host, agent=given.agent, session=given.session, role=Role.ASSISTANT),
    )


def all_of(shown: Shown) -> tuple[bytes, ...]:
    """Return the memories that hold any of the lines, each once."""
    return tuple(dict.fromkeys(record for _, records in shown for record in records))


def _made_by(work: FactWork) -> Model:
    return Model(work.extractor.name, work.extractor.model, work.extractor.version)
