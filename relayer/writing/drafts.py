"""From an item of a request to a stored memory: redact secrets, make a draft, compare it with existing memories, seal it.

`without_secrets` redacts texts before anything else reads them, and `record_of` turns an item into a record. `append_drafts`
embeds the drafts of a request in one batch, asks `relayer.writing.merging` what each of them does to the memories near it, seals
them and appends them to the log in one entry. `seal_results` does the same for what a job made, which the job appends itself.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from relayer.access.accounts import Access
from relayer.domain import operations as ops
from relayer.errors import AccountBusy, EmbedderUnavailable, QueueFull, Refused
from relayer.extraction.normal_text import normal_text
from relayer.extraction.readings import Readings, read_part
from relayer.extraction.wishes import wish_in
from relayer.lib.work import Deadline, weight
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.projection import encode_vector, headed, header_of
from relayer.ports import EmbeddingModel
from relayer.search.essentials import LONGEST
from relayer.search.rows import Vector
from relayer.search.terms import CONTEXT_CHARACTERS, context_text
from relayer.wire import codec as ulid
from relayer.wire.fields import Trust
from relayer.wire.labels import encode_metadata
from relayer.wire.redaction import redact_in_steps
from relayer.wire.schemas import MemoryItem, TurnItem
from relayer.wire.sealing import SALT_SIZE
from relayer.wire.service import ImportItem
from relayer.writing.merging import NOTHING_KNOWN, MergeDecision, Replaced, classify, is_noted

_Said = TypeVar("_Said", MemoryItem, TurnItem, ImportItem)


# Gateways redact before they send. This is for clients that do not: other clients, and older gateways.
async def without_secrets(ctx: Context, account: str, said: tuple[_Said, ...]) -> tuple[_Said, ...]:
    """Return the items without secrets, before the extractor, the model and the log read them.

    The same tuple is returned if there are no secrets or redaction is off.
    """
    given = [one.text for one in said]
    texts = await _redacted(ctx, account, given)
    if texts == given:
        return said
    return tuple(one.model_copy(update={"text": text}) for one, text in zip(said, texts, strict=True))


async def without_secrets_in(ctx: Context, account: str, text: str) -> str:
    """Return a text without secrets; the same text if redaction is off."""
    return (await _redacted(ctx, account, [text]))[0]


async def _redacted(ctx: Context, account: str, texts: list[str]) -> list[str]:
    if not ctx.redacts:
        return texts
    steps = (step for text in texts for step in redact_in_steps(text))
    made = await ctx.texts.make(account, steps, weight(texts))
    return [step.text for step in made if step is not None]


# Two of these are created for every memory: a struct is created and copied in a third of the time of a dataclass.
class Draft(msgspec.Struct, frozen=True):
    """A memory before it is sealed: its record, still without an id, and how the log is to store it.

    Attributes:
        record: complete but for ``id``, ``embedding`` and ``created_at``.
        vector: a unit vector from the client, used if it agrees with the text; None to have one computed.
        context_draft: the index of an earlier draft of the same request, whose text was said just before.
        captured: whether an extractor made it; a memory that a user stores explicitly is never merged.
        replaces: the live record whose next version it is; empty for a new memory.
        created_at: in ms, for a memory that was stored elsewhere before; None is now.
    """

    record: ops.Record
    vector: Vector | None = None
    context_draft: int | None = None
    captured: bool = False
    sources: tuple[bytes, ...] = ()
    replaces: bytes = b""
    created_at: int | None = None


def record_of(item: MemoryItem | ImportItem, access: Access, idempotency_key: str | None) -> ops.Record:
    """Return the record of a memory that an agent sends; the caller adds the fields that only one kind of item has."""
    if isinstance(item, ImportItem):
        unmentioned = tuple(" ".join(words.casefold().split()) for words in item.unmentioned if words.strip())
    else:
        unmentioned = wish_in(item.text) if item.trust == "user" else ()
    return ops.Record(
        id=b"",
        namespace=access.namespace,
        text=item.text,
        kind=item.kind,
        audience=item.audience,
        trust=item.trust,
        suspect=item.suspect,
        pinned=item.pinned,
        importance=item.importance,
        lang=item.lang,
        occurred_at=item.occurred_at,
        valid_from=item.valid_from,
        valid_to=item.valid_to,
        source=ops.Source(agent=access.principal.certificate.agent, **dict(item.source)),
        idempotency_key=idempotency_key or "",
        author=access.principal.author,
        tags=item.tags,
        metadata=encode_metadata(item.metadata),
        unmentioned=unmentioned,
    )


def next_version(
    old: ops.Record, access: Access, idempotency_key: str | None, **changed: object
) -> ops.Record:
    """Return a memory's next version, made by this requester; fields that are not in ``changed`` stay."""
    mine: dict[str, object] = {
        "id": b"",
        "namespace": access.namespace,
        "supersedes": (),
        "idempotency_key": idempotency_key or "",
        "author": access.principal.author,
    }
    return msgspec.structs.replace(old, **mine | changed)


def voice_of(record: ops.Record) -> tuple[str, ...]:
    """Return what its MAC covers of a memory besides its text: place, sender, metadata, tags, and the words of a wish.

    It is empty if the memory has none of them. The same wish ("please don't mention her") can be about another person.
    """
    source = record.source
    labels = (record.metadata, *record.tags) if record.metadata or record.tags else ()
    if record.unmentioned:
        labels = (*(labels or (record.metadata,)), "\n".join(("", *record.unmentioned)))
    return (source.place, source.sender, *labels) if source.place or source.sender or labels else ()


_FLOATS = np.dtype("<f4")
_TINY = 1e-6
# The length in characters from which sealing a text is a step of the event loop of its own.
_LONG = 4096
_AT_ONCE = 10
# The share of the time that is left in which a model reads texts.
_READING = 0.3
# The number of texts that are read at once: what was read of a page of imports is kept when the time is over.
_READ_AT_ONCE = 16
# The deadline for embedding a job's results, for which no request waits.
_RESULTS_SECONDS = 60.0
# Embedders read this many characters of a text and ignore the rest.
_EMBEDDED = 16_384
# Least cosine of a given vector and that of its text: two runtimes of one model differ by less than 0.01, paraphrases by 0.07.
_AGREEMENT = 0.95

# The vector of the text, the vector with its context, and the model that computed them.
_Vectors = tuple[Vector | None, Vector | None, EmbeddingModel]
# The plaintext of each seal, by record, part and seal: see `OpenNamespace.append`.
_Plaintexts = dict[tuple[bytes, str, bytes], bytes]


@dataclass(frozen=True, slots=True)
class AppendedDrafts:
    """The result of appending drafts.

    Attributes:
        records: the ids that were requested, one for each draft.
        job_id: the job that computes them, as clients know it.
        promised: the job that was appended with them; empty without one.
    """

    records: list[bytes]
    outcomes: list[ops.Outcome]
    degraded: bool
    job_id: str | None = None
    promised: bytes = b""


def parse_vector(raw: bytes, model: EmbeddingModel) -> Vector:
    """Return a request's float32 bytes as a unit vector of the model's dimension.

    Raises:
        Refused: ``bad_vector``: other dimension, not finite, or zero.
    """
    if len(raw) != 4 * model.dimension:
        raise Refused(
            "bad_vector", f"vector must have {model.dimension} numbers; this one has {len(raw) // 4}"
        )
    # In double precision, so that the norm of large but finite numbers does not overflow.
    vector = np.frombuffer(raw, _FLOATS).astype(np.float64)
    norm = math.sqrt(vector.dot(vector))
    if not math.isfinite(norm):
        raise Refused("bad_vector", "vector must hold finite numbers only")
    if norm < _TINY:
        raise Refused("bad_vector", "vector must not be zero: it has no direction")
    return (vector / norm).astype(np.float32)


async def append_drafts(
    ctx: Context,
    opened: OpenNamespace,
    access: Access,
    drafts: Sequence[Draft],
    *,
    idempotency_key: str | None,
    deadline: Deadline,
    promise: Callable[[list[bytes]], ops.JobAccepted | None] = lambda _: None,
) -> AppendedDrafts:
    """Embed, seal and append drafts in one entry; without an embedder, append them without vectors and with a job for these.

    ``promise`` is called with the ids of the records, and returns the pending job that the entry contains as well.
    """
    await opened.wait_indexed()
    records = [new_id(ctx) for _ in drafts]
    contexts = [_context_of(draft, drafts, records, opened) for draft in drafts]
    # A hundred drafts would hold up the event loop in any of these steps, so other tasks run in between; a single draft is done
    # sooner than yielding is worth.
    many = len(drafts) > 1
    if many:
        await asyncio.sleep(0)
    drafts = await _with_essentials(ctx, drafts, deadline)
    vectors = await _embed(ctx, opened, drafts, [text for _, text in contexts], deadline)
    if many:
        await asyncio.sleep(0)
    macs = await _macs(ctx, opened, drafts)
    await opened.wait_indexed()
    operations: list[ops.Operation] = []
    plaintexts: _Plaintexts = {}
    over: Replaced = {}
    for index, draft in enumerate(drafts):
        own, _, model = vectors[index]
        merge = NOTHING_KNOWN
        # A memory that a user stores explicitly is stored as it is. Only vectors of the same model can be compared.
        if draft.captured and not draft.replaces:
            merge = await classify(
                ctx, opened, draft.record, own if model == opened.model else None, over=over
            )
        record = _merged(ctx, draft.record, merge, id=records[index], context_of=contexts[index][0])
        named = msgspec.structs.replace(draft, record=record)
        stored, known = _seal(ctx, opened, named, macs[index], vectors[index])
        plaintexts |= known
        origin = request_origin(opened, access, index, idempotency_key)
        if draft.replaces:
            operations.append(ops.Supersede(origin, draft.replaces, stored))
        else:
            replaced = merge.replaces if merge.span is None else b""
            operations.append(ops.Put(origin, stored, merge.duplicate_of, replaced))
        if draft.captured or len(record.text) >= _LONG or index % _AT_ONCE == _AT_ONCE - 1:
            # Other tasks may run during comparing and sealing; the log decides on conflicts, so nothing is lost.
            await asyncio.sleep(0)
    count = len(drafts)
    without = tuple(record for record, (own, _, _) in zip(records, vectors, strict=True) if own is None)
    if without:
        origin = request_origin(opened, access, count, idempotency_key)
        operations.append(ops.JobAccepted(origin, new_id(ctx), ops.EMBED, without))
    promised = promise(records)
    if promised is not None:
        operations.append(promised)
    outcomes = await opened.append(operations, deadline, plaintexts)
    if many:
        await asyncio.sleep(0)
    embedding = outcomes[count].subject if without else b""
    return AppendedDrafts(
        records,
        outcomes[:count],
        degraded=bool(without),
        job_id=ulid.render(embedding) if embedding else None,
        promised=outcomes[-1].subject if promised is not None else b"",
    )


def new_id(ctx: Context) -> bytes:
    """Return a new id for a record or a job."""
    return ulid.make(ctx.clock.now_ms(), ctx.randomness.bytes(10))


def _merged(ctx: Context, record: ops.Record, merge: MergeDecision, **known: object) -> ops.Record:
    """Return a record with the fields in ``known``, what it replaces or follows, and the time from which it does so."""
    if merge.follows:
        known["follows"] = (merge.follows,)
    if merge.replaces:
        known["replaces"] = ((merge.replaces, *(merge.span or ops.WHOLE)),)
        if record.valid_from is None:
            known["valid_from"] = ctx.clock.now_ms() if record.occurred_at is None else record.occurred_at
    return msgspec.structs.replace(record, **known)


async def seal_results(
    ctx: Context, opened: OpenNamespace, drafts: Sequence[Draft]
) -> list[ops.Stored | None]:
    """Embed and seal the results of a job; without an embedder, without vectors.

    None marks a result that repeats an earlier one in other words, or that was forgotten since.
    """
    deadline = Deadline.after(ctx.clock, _RESULTS_SECONDS)
    drafts = await _with_essentials(ctx, drafts, deadline)
    vectors = await _embed(ctx, opened, drafts, [None] * len(drafts), deadline)
    macs = await _macs(ctx, opened, drafts)
    await opened.wait_indexed()
    results: list[ops.Stored | None] = []
    for draft, mac, made in zip(drafts, macs, vectors, strict=True):
        own = made[0] if made[2] == opened.model else None
        merge = await classify(ctx, opened, draft.record, own, derived=True)
        if is_noted(opened.memory(merge.duplicate_of), draft.record):
            results.append(None)
            continue
        record = msgspec.structs.replace(draft.record, id=new_id(ctx))
        named = msgspec.structs.replace(draft, record=record)
        results.append(_seal(ctx, opened, named, mac, made)[0])
    return results


def request_origin(
    opened: OpenNamespace, access: Access, index: int, idempotency_key: str | None
) -> ops.Origin:
    """Return the origin of the ``index``-th operation of this request, or of the first request with its idempotency key."""
    origin = access.origin(index)
    if idempotency_key is None:
        return origin
    return msgspec.structs.replace(
        origin,
        idempotency=opened.keys.idempotency_mac("key", idempotency_key),
        body=opened.keys.idempotency_mac("body", access.principal.body_digest),
    )


def _context_of(
    draft: Draft, drafts: Sequence[Draft], records: Sequence[bytes], opened: OpenNamespace
) -> tuple[bytes, str | None]:
    """Return id and indexed text of the turn before a draft, if it is known."""
    if draft.context_draft is not None:
        before = drafts[draft.context_draft].record
        is_long = len(before.text) >= CONTEXT_CHARACTERS
        end = before.text[-CONTEXT_CHARACTERS:] if is_long else header_of(before)
        return records[draft.context_draft], end
    neighbour = opened.record(draft.record.context_of) if draft.record.context_of else None
    return (b"", None) if neighbour is None else (neighbour.id, header_of(neighbour))


async def read_messages(ctx: Context, texts: Sequence[str], deadline: Deadline) -> Readings:
    """Return what the reader of messages says of the texts that it reads soon enough; n-grams do without it."""
    rows: list[NDArray[np.float32]] = []
    with suppress(EmbedderUnavailable, TimeoutError):
        async with asyncio.timeout(deadline.remaining() * _READING):
            while ctx.messages is not None and len(rows) < len(texts):
                rows += list(await ctx.messages.messages(texts[len(rows) : len(rows) + _READ_AT_ONCE]))
    return Readings(texts[: len(rows)], rows)


async def _with_essentials(ctx: Context, drafts: Sequence[Draft], deadline: Deadline) -> list[Draft]:
    """Return drafts with what the reader of messages takes each for; most that an extractor made were read as messages."""
    unread = [draft.record for draft in drafts if not draft.record.essential]
    told = (one for one in unread if one.trust is Trust.USER and not one.suspect and len(one.text) <= LONGEST)
    texts = tuple(dict.fromkeys(read_part(one.text) for one in told))
    readings = await read_messages(ctx, texts, deadline)
    found = []
    for draft in drafts:
        record = draft.record
        essential = record.essential or readings.essential(record.text)
        found.append(
            msgspec.structs.replace(draft, record=msgspec.structs.replace(record, essential=essential))
        )
    return found


async def _embed(
    ctx: Context,
    opened: OpenNamespace,
    drafts: Sequence[Draft],
    contexts: Sequence[str | None],
    deadline: Deadline,
) -> list[_Vectors]:
    """Return vectors for each draft, computed in one batch by the model that the namespace is searched by.

    A given vector is used if it agrees with its text. Otherwise the memory would be found by questions that its text does not
    answer, so the vector of the text replaces it. Without an embedder to compare with, no given vector is used.
    """
    embedder = ctx.embedder_of(opened.model)
    model = embedder.model
    texts = [
        (headed(draft.record, draft.record.text[:_EMBEDDED]), before)
        if draft.vector is None
        else (draft.record.text[:_EMBEDDED], None)
        for draft, before in zip(drafts, contexts, strict=True)
    ]
    try:
        async with deadline.step("embed"):
            computed = await embed_with_contexts(partial(opened.embed, embedder), texts)
    except AccountBusy:
        raise
    except (EmbedderUnavailable, QueueFull):
        return [(None, None, ctx.embedder.model) for _ in drafts]
    comparable = model == ctx.embedder.model
    vectors: list[_Vectors] = []
    for draft, (own, context) in zip(drafts, computed, strict=True):
        given = draft.vector if comparable else None
        agrees = given is not None and float(given @ own) >= _AGREEMENT
        vectors.append((given if agrees else own, context, model))
    return vectors


async def embed_with_contexts(
    embed: Callable[[Sequence[str]], Awaitable[NDArray[np.float32]]], texts: Sequence[tuple[str, str | None]]
) -> list[tuple[Vector, Vector | None]]:
    """Return vectors of texts, computed in one batch: of each text alone and, where there is one, with its context."""
    batch: list[str] = []
    for own, before in texts:
        batch += [own] if before is None else [own, context_text(before, own)]
    vectors: Iterator[Vector] = iter(await embed(batch) if batch else ())
    return [(next(vectors), None if before is None else next(vectors)) for _, before in texts]


async def _macs(ctx: Context, opened: OpenNamespace, drafts: Sequence[Draft]) -> list[tuple[bytes, bytes]]:
    """Return the MACs by which repetitions of each draft are recognised: of its text alone, and with place and sender."""
    keys = opened.keys

    def macs_of(new: ops.Record) -> tuple[bytes, bytes]:
        normal = normal_text(new.text)
        likeness = keys.likeness_mac(normal, new.audience, new.trust, *voice_of(new), suspect=new.suspect)
        return keys.content_mac(normal), likeness

    records = [draft.record for draft in drafts]
    return await ctx.texts.make(opened.account, map(macs_of, records), weight(one.text for one in records))


def _seal(
    ctx: Context, opened: OpenNamespace, draft: Draft, macs: tuple[bytes, bytes], vectors: _Vectors
) -> tuple[ops.Stored, _Plaintexts]:
    """Seal a draft whose record has its id; also return the plaintexts of the seals."""
    own, context, model = vectors
    record = msgspec.structs.replace(
        draft.record,
        created_at=ctx.clock.now_ms() if draft.created_at is None else draft.created_at,
        embedding=ops.Model(model.name, model.sha256, str(model.dimension)),
    )
    encoded = ops.encode_stored(record)
    plain_own = None if own is None else encode_vector(own)
    plain_context = None if context is None else encode_vector(context)
    stored = ops.Stored(
        record=record.id,
        content=macs[0],
        likeness=macs[1],
        sealed=opened.keys.seal_record(record.id, encoded, salt=ctx.randomness.bytes(SALT_SIZE)),
        vector=seal_vector(ctx, opened, record.id, "own", plain_own),
        context_vector=seal_vector(ctx, opened, record.id, "context", plain_context),
        context_of=record.context_of,
        created_at=record.created_at,
        expires_at=record.expires_at,
        sources=draft.sources,
        captured=draft.captured,
    )
    plaintexts = {(record.id, "record", stored.sealed): encoded}
    if plain_own is not None:
        plaintexts[record.id, "own", stored.vector] = plain_own
    if plain_context is not None:
        plaintexts[record.id, "context", stored.context_vector] = plain_context
    return stored, plaintexts


def seal_vector(
    ctx: Context, opened: OpenNamespace, record: bytes, part: str, encoded: bytes | None
) -> bytes:
    """Return a record's encoded vectors, ``own`` or ``context``, sealed; empty without any."""
    if encoded is None:
        return b""
    return opened.keys.seal_vector(record, part, encoded, salt=ctx.randomness.bytes(SALT_SIZE))
