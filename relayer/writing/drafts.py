"""What is to become a memory, before it is sealed: from an item of a request, merged with what is known already."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from relayer.access.principal import Access
from relayer.domain.operations import JobAccepted, Operation, Origin, Put, Stored, Supersede
from relayer.domain.record import Audience, Kind, Model, Record, Role, Source, Trust, encode_record
from relayer.domain.standing import Standing
from relayer.errors import AccountBusy, EmbedderUnavailable, QueueFull, Refused
from relayer.extraction.gist import LONGEST, Gist, gist_of
from relayer.extraction.normal_text import normal_text
from relayer.extraction.similarity import NEAR, Relation, relation_of, says_the_same
from relayer.lib.deadline import Deadline
from relayer.lib.shares import weight
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.projection import encode_vector, header_of
from relayer.namespaces.records import Unsealed
from relayer.ports import EmbeddingModel
from relayer.search.terms import CONTEXT_CHARACTERS, context_text, indexed_text
from relayer.wire import codec as ulid
from relayer.wire.fields import SourceInfo
from relayer.wire.memories import MemoryItem
from relayer.wire.sealing import SALT_SIZE
from relayer.wire.service import ImportItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A memory before it has an id. Times in ms; ``vector`` a unit vector or None to have one computed.

    ``context_of`` is an existing record, ``context_draft`` the index of an earlier draft of the same request;
    ``sources`` are the records it was derived from, ``supersedes`` is the live one whose place it takes. ``created_at`` is
    given for what was stored elsewhere before; None is now.
    """

    text: str
    kind: Kind
    audience: Audience
    trust: Trust
    source: Source
    suspect: bool = False
    pinned: bool = False
    importance: float = 0.5
    lang: str = ""
    occurred_at: int | None = None
    valid_from: int | None = None
    valid_to: int | None = None
    expires_at: int | None = None
    vector: NDArray[np.float32] | None = None
    context_of: bytes = b""
    context_draft: int | None = None
    extractor: Model = field(default_factory=Model)
    captured: bool = False
    sources: tuple[bytes, ...] = ()
    contradicts: tuple[bytes, ...] = ()
    supersedes: bytes = b""
    created_at: int | None = None


def draft_of(item: MemoryItem | ImportItem, agent: str) -> Draft:
    """Return the draft of what an agent sends as a memory; what only one of the two has is the caller's to add."""
    return Draft(
        text=item.text,
        kind=Kind(item.kind),
        audience=Audience(item.audience),
        trust=Trust(item.trust),
        source=_given_source(item.source, agent),
        suspect=item.suspect,
        pinned=item.pinned,
        importance=item.importance,
        lang=item.lang,
        occurred_at=item.occurred_at,
        valid_from=item.valid_from,
        valid_to=item.valid_to,
    )


def next_version(old: Record, sources: tuple[bytes, ...]) -> Draft:
    """Return the draft of a memory's next version, in which nothing is changed yet; ``sources`` as in its state."""
    return Draft(
        text=old.text,
        kind=old.kind,
        audience=old.audience,
        trust=old.trust,
        source=old.source,
        suspect=old.suspect,
        pinned=old.pinned,
        importance=old.importance,
        lang=old.lang,
        occurred_at=old.occurred_at,
        valid_from=old.valid_from,
        valid_to=old.valid_to,
        expires_at=old.expires_at,
        context_of=old.context_of,
        extractor=old.extractor,
        sources=sources,
        contradicts=old.contradicts,
        supersedes=old.id,
    )


def _given_source(given: SourceInfo, agent: str) -> Source:
    return Source(
        host=given.host,
        agent=agent,
        session=given.session,
        speaker=given.speaker,
        role=Role(given.role),
        message_ids=given.message_ids,
        transcript=given.transcript,
        reference=given.reference,
    )


LOOKED_AT = 12
"""How many of the nearest memories one is compared with."""
_MOST_CONTRADICTED = 3


@dataclass(frozen=True, slots=True)
class MergeDecision:
    """Records that a draft is about: at most one of ``twin`` and ``replaces`` is given."""

    twin: bytes = b""
    replaces: bytes = b""
    contradicts: tuple[bytes, ...] = ()


NOTHING_KNOWN = MergeDecision()


# Of the nearest memories as many are compared as this allows, a capture's own text counted with each: two dozen where
# they are as long as most.
_COMPARED_CHARACTERS = 8_000
# What it takes to compare, as a multiple of what it takes to look for secrets.
_COMPARING = 6


async def classify(
    ctx: Context, opened: OpenNamespace, draft: Draft, vector: NDArray[np.float32] | None, account: str
) -> MergeDecision:
    """Return what a draft does to the memories near it, for an account; settle first, and append as soon as may be.

    Only what was captured is judged: what somebody stores by hand is meant as it stands. Only memories of the same voice
    among the same people count, and without a vector, or in a text too long for one statement, nothing does.
    """
    if not draft.captured or vector is None or len(draft.text) > LONGEST or draft.supersedes:
        return NOTHING_KNOWN
    states = opened.log.state.records
    near: list[_Near] = []
    room = _COMPARED_CHARACTERS
    for record, cosine in _near(opened, draft, vector):
        room -= len(draft.text) + min(len(record.text), LONGEST)
        if near and room < 0:
            break
        near.append(_Near(record, cosine, states[record.id].standing))
    work = _COMPARING * (_COMPARED_CHARACTERS - room)
    found = await ctx.texts.make(account, _bearings(draft, near), work)
    return found[-1]


async def is_noted(
    ctx: Context, opened: OpenNamespace, draft: Draft, vector: NDArray[np.float32] | None, account: str
) -> bool:
    """Whether what a job made says what one made before, or what was forgotten; settle first.

    A verbatim turn that says the same is no reason to leave it out: it has neither a kind nor a weight.
    """
    if draft.kind is Kind.SUMMARY:
        return False
    twin = (await classify(ctx, opened, draft, vector, account)).twin
    record = opened.view.get(twin) if twin else None
    if record is None:
        return False
    is_live = opened.log.state.records[twin].standing is Standing.LIVE
    return not is_live or record.extractor.name == draft.extractor.name


def _near(opened: OpenNamespace, draft: Draft, vector: NDArray[np.float32]) -> Iterator[tuple[Record, float]]:
    """Yield the nearest records of the same voice with their cosine: live ones first, then those that are not."""
    for index in (opened.view.index, opened.view.past):
        for hit in index.search(vector, draft.text, LOOKED_AT, floor=0.0).hits:
            record = opened.view.by_number(hit.key)
            if same_voice(record, draft) and not _is_over(opened, record):
                yield record, hit.cosine or 0.0


def same_voice(record: Record, other: Draft | Record) -> bool:
    """Whether both were said by the same voice among the same people."""
    return (
        record.audience is other.audience
        and record.trust is other.trust
        and record.suspect is other.suspect
        and record.source.speaker == other.source.speaker
        # In a group nobody can tell whose words they are when no name stands by them.
        and not (other.audience is Audience.GROUP and not other.source.speaker)
    )


def _is_over(opened: OpenNamespace, record: Record) -> bool:
    """Whether a live memory's time is over: it stands for nothing, and one near it that is not may."""
    state = opened.log.state.records[record.id]
    return state.standing is Standing.LIVE and not state.live_at(opened.log.state.last_time)


@dataclass(frozen=True, slots=True)
class _Near:
    """A memory near a draft, as it stood when it was looked up."""

    record: Record
    cosine: float
    standing: Standing


def _bearings(draft: Draft, near: Sequence[_Near]) -> Iterator[MergeDecision]:
    """Yield what a draft does to the memories near it, as far as is known after each of them; the last one counts."""
    yield NOTHING_KNOWN
    gist = gist_of(draft.text)
    for one in near:
        twin = _is_twin(one, gist)
        yield MergeDecision(twin=one.record.id) if twin else NOTHING_KNOWN
        if twin:
            return
    # Only the user's own word is enough to question what is known.
    if draft.suspect or draft.trust is not Trust.USER:
        return
    contradicts: list[bytes] = []
    for one in near:
        if one.standing is not Standing.LIVE:
            continue
        relation = relation_of(one.record.text, draft.text)
        if relation is Relation.REPLACES and not one.record.pinned and not _is_later(one.record, draft):
            yield MergeDecision(replaces=one.record.id)
            return
        if relation is not Relation.NONE:
            contradicts.append(one.record.id)
        yield MergeDecision(contradicts=tuple(contradicts[:_MOST_CONTRADICTED]))


def _is_twin(one: _Near, gist: Gist) -> bool:
    """Whether a memory says the same: live, or forgotten, and then the log refuses the capture."""
    if one.cosine < NEAR or one.standing is Standing.SUPERSEDED or len(one.record.text) > LONGEST:
        return False
    return says_the_same(gist_of(one.record.text), gist)


def _is_later(record: Record, draft: Draft) -> bool:
    """Whether the known memory is of a later time: old conversations that are captured late replace nothing."""
    return (
        draft.occurred_at is not None
        and record.occurred_at is not None
        and record.occurred_at > draft.occurred_at
    )


EMBED = "embed"
_FLOATS = np.dtype("<f4")
_TINY = 1e-6
# Characters of a text that is sealed in a step of the event loop of its own.
_LONG = 4096
_AT_ONCE = 10
# Characters of a text that embedders look at: they cut it there themselves.
_EMBEDDED = 16_384

# Own, with context, and the model that made them.
_Vectors = tuple[NDArray[np.float32] | None, NDArray[np.float32] | None, EmbeddingModel]


@dataclass(frozen=True, slots=True)
class Sealed:
    """Operations ready for the log, the ids they ask for, whether vectors are still missing, and what was sealed."""

    operations: list[Operation]
    records: list[bytes]
    without_vector: list[bytes]
    contents: list[Unsealed]


def parse_vector(raw: bytes, model: EmbeddingModel) -> NDArray[np.float32]:
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


async def seal_drafts(
    ctx: Context,
    opened: OpenNamespace,
    access: Access,
    drafts: Sequence[Draft],
    *,
    idempotency_key: str | None,
    deadline: Deadline,
) -> Sealed:
    """Embed and seal drafts; without an embedder they are sealed without vectors."""
    records = [ulid.make(ctx.clock.now_ms(), ctx.randomness.bytes(10)) for _ in drafts]
    contexts = [_context_of(draft, drafts, records, opened) for draft in drafts]
    vectors = await _embed(ctx, opened, drafts, [text for _, text in contexts], deadline)
    macs = await _macs(ctx, opened, access.account, drafts)
    await opened.settle()
    operations: list[Operation] = []
    without: list[bytes] = []
    contents: list[Unsealed] = []
    for index, (given, record) in enumerate(zip(drafts, records, strict=True)):
        own, context, model = vectors[index]
        # Compared with what is known by vectors of one model only.
        bearing = await classify(
            ctx, opened, given, own if model == opened.view.model else None, access.account
        )
        draft = _with_bearing(ctx, given, bearing)
        voice = _Voice(access.namespace, access.principal.author, idempotency_key or "")
        built = _record(ctx, voice, draft, model, record=record, context_of=contexts[index][0])
        content = _seal(ctx, opened, draft, built, macs=macs[index], own=own, context=context)
        contents.append(content)
        stored = content.stored
        origin = request_origin(opened, access, index, idempotency_key)
        operations.append(
            Supersede(origin, draft.supersedes, stored)
            if draft.supersedes
            else Put(origin, stored, bearing.twin, bearing.replaces)
        )
        if own is None:
            without.append(record)
        if draft.captured or len(draft.text) >= _LONG or index % _AT_ONCE == _AT_ONCE - 1:
            # Comparing and sealing take a while; the log decides, so nothing is lost by others' turns.
            await asyncio.sleep(0)
    return Sealed(operations, records, without, contents)


def _with_bearing(ctx: Context, draft: Draft, bearing: MergeDecision) -> Draft:
    """Note in a draft what it contradicts, and from when on it holds instead of what it replaces."""
    if bearing.contradicts:
        return replace(draft, contradicts=(*draft.contradicts, *bearing.contradicts))
    if bearing.replaces and draft.valid_from is None:
        return replace(
            draft, valid_from=ctx.clock.now_ms() if draft.occurred_at is None else draft.occurred_at
        )
    return draft


async def seal_results(
    ctx: Context, opened: OpenNamespace, drafts: Sequence[Draft], author: bytes, deadline: Deadline
) -> list[Stored | None]:
    """Embed and seal what a job made of memories; without an embedder, without vectors. ``author`` is who asked for it.

    None stands for what was noted before in other words, or was noted and forgotten.
    """
    vectors = await _embed(ctx, opened, drafts, [None] * len(drafts), deadline)
    voice = _Voice(opened.namespace.pointer.name, author, "")
    account = opened.namespace.account
    macs = await _macs(ctx, opened, account, drafts)
    await opened.settle()
    results: list[Stored | None] = []
    for index, (draft, (own, _, model)) in enumerate(zip(drafts, vectors, strict=True)):
        if await is_noted(ctx, opened, draft, own if model == opened.view.model else None, account):
            results.append(None)
            continue
        record = ulid.make(ctx.clock.now_ms(), ctx.randomness.bytes(10))
        built = _record(ctx, voice, draft, model, record=record, context_of=b"")
        results.append(_seal(ctx, opened, draft, built, macs=macs[index], own=own, context=None).stored)
    return results


def embed_job(
    ctx: Context, opened: OpenNamespace, access: Access, sealed: Sealed, key: str | None
) -> JobAccepted:
    """Promise vectors for what was sealed without them."""
    job = ulid.make(ctx.clock.now_ms(), ctx.randomness.bytes(10))
    origin = request_origin(opened, access, len(sealed.operations), key)
    return JobAccepted(origin, job, EMBED, tuple(sealed.without_vector))


def request_origin(opened: OpenNamespace, access: Access, index: int, idempotency_key: str | None) -> Origin:
    """Return whose operation it is: the ``index``-th of this request, or of the first one with its idempotency key."""
    principal = access.principal
    if idempotency_key is None:
        return Origin(principal.author, principal.nonce, index, principal.expires)
    keys = opened.keys
    return Origin(
        principal.author,
        principal.nonce,
        index,
        principal.expires,
        keys.idempotency_mac("key", idempotency_key),
        keys.idempotency_mac("body", principal.body_digest),
    )


def _context_of(
    draft: Draft, drafts: Sequence[Draft], records: Sequence[bytes], opened: OpenNamespace
) -> tuple[bytes, str | None]:
    """Return the id and the indexed text of what was said before, if that is known."""
    if draft.context_draft is not None:
        before = drafts[draft.context_draft]
        return records[draft.context_draft], _end_of(before)
    neighbour = opened.view.get(draft.context_of) if draft.context_of else None
    if neighbour is None:
        return b"", None
    return neighbour.id, header_of(neighbour)


def _headed(draft: Draft) -> str:
    """Return what is embedded of a draft: more than any model here reads, and not a copy of all that there may be."""
    return indexed_text(draft.source.speaker or None, draft.occurred_at, draft.text[:_EMBEDDED])


def _end_of(draft: Draft) -> str:
    """Return what counts of a draft as the context of the next."""
    return draft.text[-CONTEXT_CHARACTERS:] if len(draft.text) >= CONTEXT_CHARACTERS else _headed(draft)


async def _embed(
    ctx: Context,
    opened: OpenNamespace,
    drafts: Sequence[Draft],
    contexts: Sequence[str | None],
    deadline: Deadline,
) -> list[_Vectors]:
    """Return vectors for each draft; one batch for all that are to be computed.

    Computed ones are of the model that the namespace is searched by, so that they count at once; given ones are of the
    relayer's, which clients are told of.
    """
    embedder = ctx.embedder_of(opened.view.model)
    model, given = embedder.model, ctx.embedder.model
    texts: list[str] = []
    places: list[tuple[int, int]] = []
    vectors: list[list[NDArray[np.float32] | None]] = [[draft.vector, None] for draft in drafts]
    for index, (draft, before) in enumerate(zip(drafts, contexts, strict=True)):
        if draft.vector is not None:
            continue
        headed = _headed(draft)
        texts.append(headed)
        places.append((index, 0))
        if before is not None:
            texts.append(context_text(before, headed))
            places.append((index, 1))
    if texts:
        try:
            async with deadline.step("embed"):
                computed = await opened.embed(embedder, texts)
        except AccountBusy:
            raise
        except (EmbedderUnavailable, QueueFull):
            return [(draft.vector, None, given) for draft in drafts]
        for (index, which), vector in zip(places, computed, strict=True):
            vectors[index][which] = vector
    return [
        (own, context, model if draft.vector is None else given)
        for draft, (own, context) in zip(drafts, vectors, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Voice:
    """In whose name a record is made."""

    namespace: str
    author: bytes
    idempotency_key: str


def _record(
    ctx: Context, voice: _Voice, draft: Draft, model: EmbeddingModel, *, record: bytes, context_of: bytes
) -> Record:
    return Record(
        id=record,
        namespace=voice.namespace,
        text=draft.text,
        kind=draft.kind,
        audience=draft.audience,
        trust=draft.trust,
        suspect=draft.suspect,
        pinned=draft.pinned,
        importance=draft.importance,
        lang=draft.lang,
        created_at=ctx.clock.now_ms() if draft.created_at is None else draft.created_at,
        occurred_at=draft.occurred_at,
        valid_from=draft.valid_from,
        valid_to=draft.valid_to,
        expires_at=draft.expires_at,
        context_of=context_of,
        source=draft.source,
        extractor=draft.extractor,
        embedding=Model(model.name, model.sha256, str(model.dimension)),
        idempotency_key=voice.idempotency_key,
        author=voice.author,
        contradicts=draft.contradicts,
    )


async def _macs(
    ctx: Context, opened: OpenNamespace, account: str, drafts: Sequence[Draft]
) -> list[tuple[bytes, bytes]]:
    """Return by what each draft is known to repeat another: the MACs of its text alone, and with its voice."""
    keys = opened.keys

    def macs_of(draft: Draft) -> tuple[bytes, bytes]:
        normal = normal_text(draft.text)
        likeness = keys.likeness_mac(normal, draft.audience, draft.trust, suspect=draft.suspect)
        return keys.content_mac(normal), likeness

    return await ctx.texts.make(account, map(macs_of, drafts), weight(draft.text for draft in drafts))


def _seal(
    ctx: Context,
    opened: OpenNamespace,
    draft: Draft,
    record: Record,
    *,
    macs: tuple[bytes, bytes],
    own: NDArray[np.float32] | None,
    context: NDArray[np.float32] | None,
) -> Unsealed:
    keys = opened.keys
    encoded = encode_record(record)
    encoded_own = b"" if own is None else encode_vector(own)
    encoded_context = b"" if context is None else encode_vector(context)
    stored = Stored(
        record=record.id,
        content=macs[0],
        likeness=macs[1],
        sealed=keys.seal_record(record.id, encoded, salt=ctx.randomness.bytes(SALT_SIZE)),
        vector=_sealed_vector(ctx, opened, record.id, "own", encoded_own),
        context_vector=_sealed_vector(ctx, opened, record.id, "context", encoded_context),
        context_of=record.context_of,
        created_at=record.created_at,
        expires_at=record.expires_at,
        sources=draft.sources,
        captured=draft.captured,
        key_epoch=keys.epoch,
    )
    return Unsealed(stored, record, len(encoded), encoded_own, encoded_context)


def _sealed_vector(ctx: Context, opened: OpenNamespace, record: bytes, which: str, encoded: bytes) -> bytes:
    if not encoded:
        return b""
    return opened.keys.seal_vector(record, which, encoded, salt=ctx.randomness.bytes(SALT_SIZE))
