"""What is to become a memory, before it is sealed: without secrets, from an item of a request, merged with what is known already."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from relayer.access.accounts import Access
from relayer.domain.operations import (
    EMBED,
    Audience,
    JobAccepted,
    Kind,
    Model,
    Operation,
    Origin,
    Outcome,
    Put,
    Record,
    Role,
    Source,
    Status,
    Stored,
    Supersede,
    Trust,
    encode_record,
)
from relayer.errors import AccountBusy, EmbedderUnavailable, QueueFull, Refused
from relayer.extraction.gist import LONGEST, gist_of
from relayer.extraction.normal_text import normal_text
from relayer.extraction.similarity import NEAR, Newer, Older, Relation, judged, says_the_same
from relayer.lib.work import Deadline, weight
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.projection import encode_vector, header_of
from relayer.namespaces.records import Memory
from relayer.ports import Embedder, EmbeddingModel
from relayer.search.rows import Vector
from relayer.search.terms import CONTEXT_CHARACTERS, context_text, indexed_text
from relayer.wire import codec as ulid
from relayer.wire.memories import MemoryItem, TurnItem
from relayer.wire.redaction import redact
from relayer.wire.sealing import SALT_SIZE
from relayer.wire.service import ImportItem

_Said = TypeVar("_Said", MemoryItem, TurnItem)


# Gateways redact before they send. This is for those that do not: other clients, and older gateways.
async def without_secrets(ctx: Context, account: str, said: tuple[_Said, ...]) -> tuple[_Said, ...]:
    """Return what was said without secrets, before the extractor, the model and the log see it.

    It is the same tuple where there are none or redaction is off.
    """
    given = [one.text for one in said]
    texts = await _redacted(ctx, account, given)
    if texts == given:
        return said
    return tuple(one.model_copy(update={"text": text}) for one, text in zip(said, texts, strict=True))


async def without_secrets_in(ctx: Context, account: str, text: str) -> str:
    """Return a text that holds no secrets; the same one where redaction is off."""
    return (await _redacted(ctx, account, [text]))[0]


async def _redacted(ctx: Context, account: str, texts: list[str]) -> list[str]:
    if not ctx.redacts:
        return texts
    return await ctx.texts.make(account, (redact(text).text for text in texts), weight(texts))


# Two of these are made for every memory: a struct is made, and changed, in a third of the time that a dataclass takes.
class Draft(msgspec.Struct, frozen=True):
    """A memory before it is sealed: its record, still without an id, and what the log is to make of it.

    Attributes:
        record: complete but for ``id``, ``embedding`` and ``created_at``.
        vector: a unit vector, which counts if it agrees with the text; None to have one computed.
        context_draft: the index of an earlier draft of the same request, which was said just before.
        captured: whether an extractor made it: what somebody stores by hand is meant as it stands.
        sources: the records it was derived from.
        replaces: the live one whose next version it is; empty for a memory of its own.
        created_at: in ms, of what was stored elsewhere before; None is now.
    """

    record: Record
    vector: Vector | None = None
    context_draft: int | None = None
    captured: bool = False
    sources: tuple[bytes, ...] = ()
    replaces: bytes = b""
    created_at: int | None = None


def record_of(item: MemoryItem | ImportItem, access: Access, idempotency_key: str | None) -> Record:
    """Return what an agent sends as a memory; what only one of the two kinds of items has is the caller's to add."""
    given = item.source
    return Record(
        id=b"",
        namespace=access.namespace,
        text=item.text,
        kind=Kind(item.kind),
        audience=Audience(item.audience),
        trust=Trust(item.trust),
        suspect=item.suspect,
        pinned=item.pinned,
        importance=item.importance,
        lang=item.lang,
        occurred_at=item.occurred_at,
        valid_from=item.valid_from,
        valid_to=item.valid_to,
        source=Source(
            host=given.host,
            agent=access.principal.certificate.agent,
            session=given.session,
            speaker=given.speaker,
            role=Role(given.role),
            message_ids=given.message_ids,
            transcript=given.transcript,
            reference=given.reference,
            place=given.place,
            sender=given.sender,
        ),
        idempotency_key=idempotency_key or "",
        author=access.principal.author,
    )


def next_version(old: Record, access: Access, idempotency_key: str | None, **changed: object) -> Record:
    """Return a memory's next version, in somebody's name; what is not ``changed`` stays."""
    mine: dict[str, object] = {
        "id": b"",
        "namespace": access.namespace,
        "supersedes": (),
        "idempotency_key": idempotency_key or "",
        "author": access.principal.author,
    }
    return msgspec.structs.replace(old, **mine | changed)


LOOKED_AT = 12
"""How many of the nearest memories one is compared with."""
_MOST_CONTRADICTED = 3


@dataclass(frozen=True, slots=True)
class MergeDecision:
    """Records that a draft is about: at most one of ``duplicate_of`` and ``replaces`` is given."""

    duplicate_of: bytes = b""
    replaces: bytes = b""
    contradicts: tuple[bytes, ...] = ()


NOTHING_KNOWN = MergeDecision()


# Of the nearest memories as many are compared as this allows, a capture's own text counted with each: two dozen where
# they are as long as most.
_COMPARED_CHARACTERS = 8_000
# What it takes to compare, as a multiple of what it takes to look for secrets.
_COMPARING = 6


async def classify(ctx: Context, opened: OpenNamespace, draft: Draft, vector: Vector | None) -> MergeDecision:
    """Return what a draft does to the memories near it; wait until it is indexed first, and append as soon as may be.

    Only what was captured is judged: what somebody stores by hand is meant as it stands. Only memories of the same voice
    among the same people count, and without a vector, or in a text too long for one statement, nothing does.
    """
    new = draft.record
    if not draft.captured or vector is None or len(new.text) > LONGEST or draft.replaces:
        return NOTHING_KNOWN
    near: list[_Near] = []
    room = _COMPARED_CHARACTERS
    async for memory, cosine in _nearest(opened, new, vector):
        room -= len(new.text) + min(len(memory.record.text), LONGEST)
        if near and room < 0:
            break
        near.append((memory.record, cosine, memory.state.status))
    work = _COMPARING * (_COMPARED_CHARACTERS - room)
    await asyncio.sleep(0)
    return (await ctx.texts.make(opened.account, _decisions(new, near), work))[-1]


async def _is_noted(ctx: Context, opened: OpenNamespace, draft: Draft, vector: Vector | None) -> bool:
    """Whether what a job made says what one made before, or what was forgotten; wait until it is indexed first.

    A verbatim turn that says the same is no reason to leave it out: it has neither a kind nor a weight.
    """
    if draft.record.kind is Kind.SUMMARY:
        return False
    same = opened.memory((await classify(ctx, opened, draft, vector)).duplicate_of)
    if same is None:
        return False
    return not same.is_live or same.record.extractor.name == draft.record.extractor.name


# A memory near a draft, their cosine, and how it stood when it was looked up.
_Near = tuple[Record, float, Status]


async def _nearest(opened: OpenNamespace, new: Record, vector: Vector) -> AsyncIterator[tuple[Memory, float]]:
    """Yield the nearest memories of the same voice with their cosine: live ones first, then those that are not.

    What is live, and over, stands for nothing; one near it that is not over may.
    """
    for past in (False, True):
        # Searching is a step of the event loop by itself, and so is opening each memory: some are long. What a statement
        # changes is near it in meaning: looking for its words, too, costs more than it finds.
        await asyncio.sleep(0)
        hits = opened.search(vector, None, LOOKED_AT, past=past).hits
        found = [(opened.state_of_hit(hit.key).record, hit.cosine or 0.0) for hit in hits]
        for record, cosine in found:
            await asyncio.sleep(0)
            memory = opened.memory(record)
            # Erased since.
            if memory is None:
                continue
            is_over = memory.is_live and not memory.state.live_at(opened.last_time)
            if same_voice(memory.record, new) and not is_over:
                yield memory, cosine


def voice_of(record: Record) -> tuple[str, ...]:
    """Return where a memory was said and by whom, for its MAC; nothing where neither is known."""
    source = record.source
    return (source.place, source.sender) if source.place or source.sender else ()


def same_voice(one: Record, other: Record) -> bool:
    """Whether both were said by the same voice among the same people."""
    return (
        one.audience is other.audience
        and one.trust is other.trust
        and one.suspect is other.suspect
        and one.source.speaker == other.source.speaker
        and one.source.place == other.source.place
        and one.source.sender == other.source.sender
        # In a group nobody can tell whose words they are when no name stands by them.
        and not (other.audience is Audience.GROUP and not other.source.speaker)
    )


def _decisions(new: Record, near: Sequence[_Near]) -> Iterator[MergeDecision]:
    """Yield what a draft does to the memories near it, as far as is known after each of them; the last one counts."""
    yield NOTHING_KNOWN
    gist, texts = gist_of(new.text), [Older(old.text) for old, _, _ in near]
    for (old, cosine, status), text in zip(near, texts, strict=True):
        # Live, or forgotten, and then the log refuses the capture.
        may_repeat = cosine >= NEAR and status is not Status.SUPERSEDED and len(old.text) <= LONGEST
        if may_repeat and says_the_same(text.gist, gist):
            yield MergeDecision(duplicate_of=old.id)
            return
        yield NOTHING_KNOWN
    # Only the user's own word is enough to question what is known.
    if new.suspect or new.trust is not Trust.USER:
        return
    said = Newer(new.text)
    doubtful: list[tuple[float, bytes]] = []
    for (old, cosine, status), text in zip(near, texts, strict=True):
        if status is not Status.LIVE:
            continue
        relation, likely = judged(text, said, cosine)
        # A turn word for word and what a model noted of another tell the same without changing it.
        if likely < 1 and old.extractor.name != new.extractor.name:
            continue
        if relation is Relation.REPLACES and not old.pinned and not _is_later(old, new):
            yield MergeDecision(replaces=old.id)
            return
        if relation is not Relation.NONE:
            doubtful.append((-likely, old.id))
        yield MergeDecision(contradicts=tuple(old for _, old in sorted(doubtful)[:_MOST_CONTRADICTED]))


def _is_later(old: Record, new: Record) -> bool:
    """Whether the known memory is of a later time: old conversations that are captured late replace nothing."""
    return new.occurred_at is not None and old.occurred_at is not None and old.occurred_at > new.occurred_at


_FLOATS = np.dtype("<f4")
_TINY = 1e-6
# Characters of a text that is sealed in a step of the event loop of its own.
_LONG = 4096
_AT_ONCE = 10
# No request waits for what a job made.
_RESULTS_SECONDS = 60.0
# Characters of a text that embedders look at: they cut it there themselves.
_EMBEDDED = 16_384
# Least cosine of a given vector and that of its text: two runtimes of one model differ by less than 0.01, a paraphrase by 0.07.
_AGREEMENT = 0.95

# Own, with context, and the model that made them.
_Vectors = tuple[Vector | None, Vector | None, EmbeddingModel]
# What is in each seal, by record, part and seal: see `OpenNamespace.append`.
_Plaintexts = dict[tuple[bytes, str, bytes], bytes]


@dataclass(frozen=True, slots=True)
class Written:
    """What became of drafts.

    Attributes:
        records: the ids that were asked for, one of each draft.
        outcomes: of each draft.
        degraded: whether vectors are missing.
        job_id: the job that makes them, as clients know it.
        promised: the job that was promised with them; empty without one.
    """

    records: list[bytes]
    outcomes: list[Outcome]
    degraded: bool
    job_id: str | None = None
    promised: bytes = b""


def parse_vector(raw: bytes, model: EmbeddingModel) -> Vector:
    """Turn a request's float32 bytes into a unit vector of the model's dimension.

    Raises:
        Refused: ``bad_vector``: other dimension, not finite, or zero.
    """
    if len(raw) != 4 * model.dimension:
        raise Refused(
            "bad_vector", f"vector must have {model.dimension} numbers; this one has {len(raw) // 4}"
        )
    # In double precision, so that huge but finite numbers do not overflow on their way to length 1.
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
    promise: Callable[[list[bytes]], JobAccepted | None] = lambda _: None,
) -> Written:
    """Embed, seal and append drafts in one entry; without an embedder, without vectors and with a job for them.

    ``promise`` is given the ids of the records, and returns the job that the entry promises beside them.
    """
    await opened.wait_indexed()
    records = [new_id(ctx) for _ in drafts]
    contexts = [_context_of(draft, drafts, records, opened) for draft in drafts]
    # A hundred drafts are a step of the event loop whatever is done with them, so others get their turn between; one is
    # over before a turn is worth taking.
    many = len(drafts) > 1
    if many:
        await asyncio.sleep(0)
    vectors = await _embed(ctx, opened, drafts, [text for _, text in contexts], deadline)
    if many:
        await asyncio.sleep(0)
    macs = await _macs(ctx, opened, drafts)
    await opened.wait_indexed()
    operations: list[Operation] = []
    plaintexts: _Plaintexts = {}
    for index, draft in enumerate(drafts):
        own, _, model = vectors[index]
        # Compared with what is known by vectors of one model only.
        merge = await classify(ctx, opened, draft, own if model == opened.model else None)
        record = _merged(ctx, draft.record, merge, id=records[index], context_of=contexts[index][0])
        named = msgspec.structs.replace(draft, record=record)
        stored, known = _seal(ctx, opened, named, macs[index], vectors[index])
        plaintexts |= known
        origin = request_origin(opened, access, index, idempotency_key)
        if draft.replaces:
            operations.append(Supersede(origin, draft.replaces, stored))
        else:
            operations.append(Put(origin, stored, merge.duplicate_of, merge.replaces))
        if draft.captured or len(record.text) >= _LONG or index % _AT_ONCE == _AT_ONCE - 1:
            # Comparing and sealing take a while; the log decides, so nothing is lost by others' turns.
            await asyncio.sleep(0)
    count = len(drafts)
    without = tuple(record for record, (own, _, _) in zip(records, vectors, strict=True) if own is None)
    if without:
        origin = request_origin(opened, access, count, idempotency_key)
        operations.append(JobAccepted(origin, new_id(ctx), EMBED, without))
    promised = promise(records)
    if promised is not None:
        operations.append(promised)
    outcomes = await opened.append(operations, deadline, plaintexts)
    if many:
        await asyncio.sleep(0)
    embedding = outcomes[count].subject if without else b""
    return Written(
        records,
        outcomes[:count],
        degraded=bool(without),
        job_id=ulid.render(embedding) if embedding else None,
        promised=outcomes[-1].subject if promised is not None else b"",
    )


def new_id(ctx: Context) -> bytes:
    """Return an id for a record or a job."""
    return ulid.make(ctx.clock.now_ms(), ctx.randomness.bytes(10))


def _merged(ctx: Context, record: Record, merge: MergeDecision, **known: object) -> Record:
    """Return a record with what is ``known``, what it contradicts, and from when on it holds instead of another one."""
    if merge.contradicts:
        known["contradicts"] = (*record.contradicts, *merge.contradicts)
    if merge.replaces and record.valid_from is None:
        known["valid_from"] = ctx.clock.now_ms() if record.occurred_at is None else record.occurred_at
    return msgspec.structs.replace(record, **known)


async def seal_results(ctx: Context, opened: OpenNamespace, drafts: Sequence[Draft]) -> list[Stored | None]:
    """Embed and seal what a job made of memories; without an embedder, without vectors.

    None stands for what was noted before in other words, or was noted and forgotten.
    """
    deadline = Deadline.after(ctx.clock, _RESULTS_SECONDS)
    vectors = await _embed(ctx, opened, drafts, [None] * len(drafts), deadline)
    macs = await _macs(ctx, opened, drafts)
    await opened.wait_indexed()
    results: list[Stored | None] = []
    for draft, mac, made in zip(drafts, macs, vectors, strict=True):
        if await _is_noted(ctx, opened, draft, made[0] if made[2] == opened.model else None):
            results.append(None)
            continue
        record = msgspec.structs.replace(draft.record, id=new_id(ctx))
        named = msgspec.structs.replace(draft, record=record)
        results.append(_seal(ctx, opened, named, mac, made)[0])
    return results


def request_origin(opened: OpenNamespace, access: Access, index: int, idempotency_key: str | None) -> Origin:
    """Return whose operation it is: the ``index``-th of this request, or of the first one with its idempotency key."""
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
    """Return the id and the indexed text of what was said before, if that is known."""
    if draft.context_draft is not None:
        return records[draft.context_draft], _end_of(drafts[draft.context_draft].record)
    neighbour = opened.record(draft.record.context_of) if draft.record.context_of else None
    return (b"", None) if neighbour is None else (neighbour.id, header_of(neighbour))


def _headed(new: Record) -> str:
    """Return what is embedded of a draft: more than any model here reads, and not a copy of all that there may be."""
    return indexed_text(new.source.speaker or None, new.occurred_at, new.text[:_EMBEDDED])


def _end_of(new: Record) -> str:
    """Return what counts of a draft as the context of the next."""
    return new.text[-CONTEXT_CHARACTERS:] if len(new.text) >= CONTEXT_CHARACTERS else _headed(new)


async def _embed(
    ctx: Context,
    opened: OpenNamespace,
    drafts: Sequence[Draft],
    contexts: Sequence[str | None],
    deadline: Deadline,
) -> list[_Vectors]:
    """Return vectors for each draft, in one batch, of the model that the namespace is searched by.

    A given vector counts if it agrees with its text. One that does not would be found by questions that its text does not
    answer, so it gives way to that of the text alone. None counts while there is no embedder to compare it with.
    """
    embedder = ctx.embedder_of(opened.model)
    model = embedder.model
    texts = [
        (_headed(draft.record), before) if draft.vector is None else (draft.record.text[:_EMBEDDED], None)
        for draft, before in zip(drafts, contexts, strict=True)
    ]
    try:
        computed = await _computed(opened, embedder, texts, deadline)
    except AccountBusy:
        raise
    except (EmbedderUnavailable, QueueFull):
        return [(None, None, ctx.embedder.model) for _ in drafts]
    comparable = model == ctx.embedder.model
    return [
        (draft.vector if comparable and _agree(draft.vector, own) else own, context, model)
        for draft, (own, context) in zip(drafts, computed, strict=True)
    ]


def _agree(given: Vector | None, own: Vector) -> bool:
    return given is not None and float(given @ own) >= _AGREEMENT


async def _computed(
    opened: OpenNamespace, embedder: Embedder, texts: Sequence[tuple[str, str | None]], deadline: Deadline
) -> list[tuple[Vector, Vector | None]]:
    async with deadline.step("embed"):
        return await embed_with_contexts(partial(opened.embed, embedder), texts)


async def embed_with_contexts(
    embed: Callable[[Sequence[str]], Awaitable[NDArray[np.float32]]], texts: Sequence[tuple[str, str | None]]
) -> list[tuple[Vector, Vector | None]]:
    """Embed texts in one batch, each alone and, where there is one, with what was said before it."""
    batch: list[str] = []
    for own, before in texts:
        batch += [own] if before is None else [own, context_text(before, own)]
    vectors: Iterator[Vector] = iter(await embed(batch) if batch else ())
    return [(next(vectors), None if before is None else next(vectors)) for _, before in texts]


async def _macs(ctx: Context, opened: OpenNamespace, drafts: Sequence[Draft]) -> list[tuple[bytes, bytes]]:
    """Return by what each draft is known to repeat another: the MACs of its text alone, and with its voice."""
    keys = opened.keys

    def macs_of(new: Record) -> tuple[bytes, bytes]:
        normal = normal_text(new.text)
        likeness = keys.likeness_mac(normal, new.audience, new.trust, *voice_of(new), suspect=new.suspect)
        return keys.content_mac(normal), likeness

    records = [draft.record for draft in drafts]
    return await ctx.texts.make(opened.account, map(macs_of, records), weight(one.text for one in records))


def _seal(
    ctx: Context,
    opened: OpenNamespace,
    draft: Draft,
    macs: tuple[bytes, bytes],
    vectors: _Vectors,
) -> tuple[Stored, _Plaintexts]:
    """Seal a draft whose record has its id; returns also what is in the seals."""
    own, context, model = vectors
    record = msgspec.structs.replace(
        draft.record,
        created_at=ctx.clock.now_ms() if draft.created_at is None else draft.created_at,
        embedding=Model(model.name, model.sha256, str(model.dimension)),
    )
    encoded = encode_record(record)
    plain_own = None if own is None else encode_vector(own)
    plain_context = None if context is None else encode_vector(context)
    stored = Stored(
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
        key_epoch=opened.keys.epoch,
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
    """Seal a record's encoded vectors, ``own`` or ``context``; empty without any."""
    if encoded is None:
        return b""
    return opened.keys.seal_vector(record, part, encoded, salt=ctx.randomness.bytes(SALT_SIZE))
