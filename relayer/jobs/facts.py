"""Facts from a promised job: what is known already, the one call of the model, and what its answer becomes."""

from __future__ import annotations

from collections.abc import Sequence

from relayer.domain.outcomes import JobState
from relayer.domain.record import Model, Record, Role, Source, Trust
from relayer.errors import EmbedderUnavailable, QueueFull
from relayer.extraction.language import guess_language
from relayer.extraction.llm.extractor import Extraction, Fact
from relayer.jobs.inputs import (
    JobInput,
    Shown,
    all_of,
    begin,
    end,
    end_without_results,
    lines_of,
    summary_draft,
)
from relayer.namespaces.context import Context, FactWork
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.projection import header_of
from relayer.wire import codec as ulid
from relayer.wire.memories import RecallRequest
from relayer.writing.drafts import Draft, seal_results

_MOST_KNOWN = 12
_LOOKED_AT = 48
_QUERY_CHARACTERS = 2000
_KNOWN_FLOOR = 0.1


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
    begun = await begin(opened, job)
    if begun is None:
        return None
    current, given, shown = begun
    if not any(records for _, records in shown):
        await end_without_results(opened, current)
        return None
    known = await _known(ctx, opened, given, shown)
    headers = [header_of(record) for record in known]
    found = await work.extractor.extract(lines_of(shown), headers, seconds=work.seconds)
    work.budget.spend(opened.account, found.tokens, ctx.clock.now_ms())
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
    drafts = [_draft(work, opened, given=given, shown=shown, known=known, fact=fact) for fact in facts]
    if found.summary:
        drafts.append(summary_draft(opened, given, shown, found.summary, _made_by(work)))
    results = await seal_results(ctx, opened, drafts)
    replaced = tuple(
        (stored.record, known[fact.known].id)
        for fact, stored in zip(facts, results, strict=False)
        if stored is not None
        and fact.known is not None
        and fact.relation == "supersedes"
        and _may_replace(work, given, known[fact.known])
    )
    await end(ctx, opened, job, [stored for stored in results if stored is not None], replaced)


async def _known(ctx: Context, opened: OpenNamespace, given: JobInput, shown: Shown) -> list[Record]:
    """Return memories that the facts may repeat, replace or contradict: none that is itself a verbatim turn."""
    query = "\n".join(line.text for line, _ in shown if line.role is Role.USER)[:_QUERY_CHARACTERS]
    if not query:
        return []
    model = opened.model
    try:
        vector = (await opened.embed(ctx.embedder_of(model), [query]))[0]
    except (EmbedderUnavailable, QueueFull):
        vector = None
    await opened.wait_indexed()
    if model != opened.model:
        vector = None
    among = RecallRequest(query=query, audiences=(given.audience.value,))
    allowed = opened.allowed(among, ctx.clock.now_ms())
    found = opened.search(vector, query, _LOOKED_AT, allowed=allowed, floor=_KNOWN_FLOOR)
    records = [opened.hit(hit.key).record for hit in found.hits]
    return [record for record in records if record.extractor.name != ctx.extractor.name][:_MOST_KNOWN]


def _may_replace(work: FactWork, given: JobInput, old: Record) -> bool:
    """Whether a model's word is enough: for what a model noted, among the same people, and nobody pinned."""
    return old.extractor.name == work.extractor.name and old.audience is given.audience and not old.pinned


def _draft(
    work: FactWork,
    opened: OpenNamespace,
    *,
    given: JobInput,
    shown: Shown,
    known: Sequence[Record],
    fact: Fact,
) -> Draft:
    line, records = shown[fact.line]
    contradicted: tuple[bytes, ...] = ()
    if fact.known is not None and fact.relation != "new":
        old = known[fact.known]
        replaces = fact.relation == "supersedes" and _may_replace(work, given, old)
        contradicted = () if replaces else (old.id,)
    record = Record(
        id=b"",
        namespace=opened.name,
        text=fact.text,
        kind=fact.kind,
        audience=given.audience,
        trust=Trust.USER if line.role is Role.USER else Trust.ASSISTANT,
        importance=fact.importance,
        lang=guess_language(fact.text),
        occurred_at=fact.occurred_at_ms,
        extractor=_made_by(work),
        author=given.author,
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
    # A message that is no memory itself was read beside the others, and goes with any of them.
    return Draft(record, captured=True, sources=records or all_of(shown))


def _made_by(work: FactWork) -> Model:
    return Model(work.extractor.name, work.extractor.model, work.extractor.version)
