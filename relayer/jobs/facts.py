"""Facts from a promised job: what is known already, the one call of the model, and what its answer becomes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from relayer.domain.operations import Model, Record, Role, Trust
from relayer.errors import EmbedderUnavailable, QueueFull
from relayer.extraction.llm.extractor import Fact
from relayer.jobs.inputs import JobInput, JobTask, Made
from relayer.namespaces.context import Context, FactWork
from relayer.namespaces.projection import header_of
from relayer.wire import codec as ulid
from relayer.wire.memories import RecallRequest
from relayer.writing.drafts import Draft

_MOST_KNOWN = 12
_LOOKED_AT = 48
_QUERY_CHARACTERS = 2000
_KNOWN_FLOOR = 0.1


async def facts_of(ctx: Context, work: FactWork, task: JobTask) -> Made | None:
    """Ask the model once; None when nothing is left to ask about.

    Raises:
        ModelUnavailable, ModelAnswerUnusable, QueueFull: as `LlmExtractor.extract`.
    """
    if not task.sources:
        return None
    known = await _known(ctx, task)
    headers = [header_of(record) for record in known]
    found = await work.extractor.extract(task.lines, headers, seconds=work.seconds)
    drafts = [_draft(work, task, known, fact) for fact in found.facts if fact.relation != "duplicate"]
    if found.summary:
        drafts.append((task.summary(found.summary, _made_by(work)), b""))
    return Made(found, drafts)


async def _known(ctx: Context, task: JobTask) -> list[Record]:
    """Return memories that the facts may repeat, replace or contradict: none that is itself a verbatim turn."""
    opened = task.opened
    query = "\n".join(line.text for line, _ in task.shown if line.role is Role.USER)[:_QUERY_CHARACTERS]
    if not query:
        return []
    model = opened.model
    try:
        vector = (await opened.embed(ctx.embedder_of(model), [query], query=True))[0]
    except (EmbedderUnavailable, QueueFull):
        vector = None
    await opened.wait_indexed()
    if model != opened.model:
        vector = None
    among = RecallRequest(query=query, audiences=(task.given.audience.value,))
    allowed = opened.allowed(among, ctx.clock.now_ms())
    found = opened.search(vector, query, _LOOKED_AT, allowed=allowed, floor=_KNOWN_FLOOR)
    records = [opened.hit(hit.key).record for hit in found.hits]
    return [record for record in records if record.extractor.name != ctx.extractor.name][:_MOST_KNOWN]


def _may_replace(work: FactWork, given: JobInput, old: Record) -> bool:
    """Whether a model's word is enough: for what a model noted, among the same people, and nobody pinned."""
    return old.extractor.name == work.extractor.name and old.audience is given.audience and not old.pinned


def _draft(work: FactWork, task: JobTask, known: Sequence[Record], fact: Fact) -> tuple[Draft, bytes]:
    """Return the memory of a fact, and the one whose place it takes."""
    line, records = task.shown[fact.line]
    replaced = contradicted = b""
    if fact.known is not None and fact.relation != "new":
        old = known[fact.known]
        if fact.relation == "supersedes" and _may_replace(work, task.given, old):
            replaced = old.id
        else:
            contradicted = old.id
    trust = Trust.USER if line.role is Role.USER else Trust.ASSISTANT
    record = task.record(fact.text, _made_by(work), trust, fact.occurred_at_ms)
    source = replace(
        record.source,
        speaker=line.speaker,
        role=line.role,
        message_ids=(line.message_id,) if line.message_id else (),
        span=fact.span,
        reference=ulid.render(records[0]) if records else "",
    )
    contradicts = (contradicted,) if contradicted else ()
    record = replace(
        record, kind=fact.kind, importance=fact.importance, contradicts=contradicts, source=source
    )
    # A message that is no memory itself was read beside the others, and goes with any of them.
    return Draft(record, captured=True, sources=records or task.sources), replaced


def _made_by(work: FactWork) -> Model:
    return Model(work.extractor.name, work.extractor.model, work.extractor.version)
