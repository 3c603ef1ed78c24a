"""Recall: what is relevant to a query, in the order that was asked for, or nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase, translate
from functools import lru_cache, partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from relayer.access.accounts import Access
from relayer.domain.operations import Trust
from relayer.errors import AccountBusy, EmbedderUnavailable, QueueFull
from relayer.extraction.changes import may_follow, told_by
from relayer.lib.n_grams import PromptForm, read_prompt
from relayer.lib.work import Deadline
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.records import Origin, Shown
from relayer.ports import EmbeddingModel
from relayer.search.index import QueryWords
from relayer.search.passages import passage_at
from relayer.search.ranking import (
    ABOUT,
    ONESELF,
    Hit,
    Judgement,
    SearchResult,
    diverse,
    faded,
    in_order,
    without_name,
)
from relayer.search.rows import Vector
from relayer.wire import codec as ulid
from relayer.wire import schemas
from relayer.writing.drafts import parse_vector, same_voice
from relayer.writing.present import PAGE_BYTES, encoded

# A draft is not yet what its author means, and a tool's output or a transcript is what somebody curated the rest from.
DEFAULT_PENALTIES = (
    schemas.SourcePenalty(match="*memory/drafts/*"),
    schemas.SourcePenalty(match="*memory/draft-*.md"),
    schemas.SourcePenalty(match="trust:tool"),
    schemas.SourcePenalty(match="transcript:*"),
)
# As many hits are put in order as were asked for, this many times over: a penalty moves few, fading and diversity many.
_CHOICE, _WIDE_CHOICE = 2, 4
_DAY_MS = 86_400_000


def wanted(request: schemas.RecallRequest) -> int:
    """How many hits to look for, so that one that ranks lower makes room for another."""
    wide = request.diversity or request.half_life_days is not None
    return (_WIDE_CHOICE if wide else _CHOICE) * request.limit


class Shows(dict[int, Shown]):
    """What is shown of each hit of one search, encoded and looked up once."""

    def __init__(self, opened: OpenNamespace) -> None:
        super().__init__()
        self._opened = opened

    def __missing__(self, number: int) -> Shown:
        shown = self[number] = self._opened.shown(number, encoded)
        return shown


def ordered(
    opened: OpenNamespace, hits: Sequence[Hit], shows: Shows, request: schemas.RecallRequest, now: int
) -> tuple[list[Hit], dict[int, float]]:
    """At least as many of the hits as were asked for, in the order that the request asks for, and the penalties by key."""
    penalties = _Penalties(DEFAULT_PENALTIES if request.penalties is None else request.penalties)
    fades = request.half_life_days
    first = hits[: request.limit]
    moved = fades is not None or bool(request.diversity)
    # A penalty only moves a hit down. Where the first have none they stay the first, and the rest need no opening.
    if not moved and not any(penalties.of(shows[hit.key].origin) for hit in first):
        return list(first), {}
    costs: dict[int, float] = {}
    scores: dict[int, float] = {}
    for hit in hits:
        cost = penalties.of(shows[hit.key].origin)
        if cost:
            costs[hit.key] = cost
        scores[hit.key] = hit.evidence - cost
        if fades is not None and not (record := opened.hit(hit.key).record).pinned:
            scores[hit.key] = faded(scores[hit.key], (now - record.said_at) / _DAY_MS, fades)
    if request.diversity:
        scores = diverse(scores, opened.vector_of_hit, request.diversity, request.limit)
    return in_order(hits, scores), costs


class _Penalties:
    """What each source costs; most memories of a namespace come from a few, so that each is compared once."""

    def __init__(self, penalties: Sequence[schemas.SourcePenalty]) -> None:
        self._penalties = penalties
        self._any = _one_of(tuple(item.match for item in penalties))
        self._known: dict[Origin, float] = {}

    def of(self, origin: Origin) -> float:
        """The largest penalty that a record's source has, 0 without one."""
        cost = self._known.get(origin)
        if cost is None:
            names = _names(origin)
            cost = self._matching(names) if any(map(self._any.match, names)) else 0.0
            self._known[origin] = cost
        return cost

    def _matching(self, names: Sequence[str]) -> float:
        matching = (
            item.penalty for item in self._penalties if any(fnmatchcase(name, item.match) for name in names)
        )
        return max(matching, default=0.0)


@lru_cache(maxsize=64)
def _one_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """What matches where any of the patterns does: most sources match none."""
    return re.compile("|".join(map(translate, patterns)))


def _names(origin: Origin) -> list[str]:
    """What the patterns are compared with."""
    named = [f"kind:{origin.kind}", f"trust:{origin.trust}"]
    named += [origin.reference] if origin.reference else []
    return named + ([f"transcript:{origin.transcript}"] if origin.transcript else [])


# Of a query; the model reads 256 tokens, and words beyond this many characters would be work and no help.
_QUERY_CHARACTERS = 2048
_EMBEDDING_SHARE = 0.6  # of the time that is left; the rest is for searching and answering
_OPENING_SHARE = (
    0.4  # of a request's time; after that, what is indexed of a namespace that is being opened is searched
)
# Seconds in which a model's thread takes a text up. It needs the interpreter for that, and after it no more until it is done.
_TAKEN_UP_SECONDS = 0.001
_NO_BUDGET = PAGE_BYTES
# Of the best hits so many are compared with each other where a prompt asks for a memory: which is the later one.
_COMPARED = 8
# Characters; what is longer says more than one thing, and reading it would hold the event loop.
_ONE_STATEMENT = 240
# Names of speakers in a query that are looked at; each is embedded when it is first asked about.
_MOST_NAMED = 3
# Hits of further audiences that a query does not name: enough to say that there are some.
_MOST_UNNAMED = 2
_BYTES_PER_TOKEN = 4  # the usual estimate for English text; a budget, not a bill


async def recall(
    ctx: Context, access: Access, request: schemas.RecallRequest, deadline: Deadline
) -> schemas.RecallResponse:
    """Search a namespace; a namespace that does not exist answers like an empty one. Raises as `recall_encoded`."""
    answer = await recall_encoded(ctx, access, request, deadline)
    return schemas.RecallResponse.model_validate_json(answer)


async def recall_encoded(
    ctx: Context, access: Access, request: schemas.RecallRequest, deadline: Deadline
) -> bytes:
    """Search as `recall`, and return the answer as it is sent: what is stored was validated when it came.

    Raises:
        Refused: ``bad_vector``.
        RelayerError: as `relayer.namespaces.cache.OpenNamespaces.use` and the log's reads.
    """
    asked_at = ctx.clock.monotonic()
    if request.query is not None and len(request.query) > _QUERY_CHARACTERS:
        request = request.model_copy(update={"query": request.query[:_QUERY_CHARACTERS]})
    given = parse_vector(request.vector, ctx.embedder.model) if request.vector is not None else None
    patience = deadline.remaining() * _OPENING_SHARE
    async with ctx.namespaces.use_if_exists(access, deadline, patience=patience) as opened:
        if opened is None:
            return _counted(ctx, _Answer(gone=request.standing))
        if opened.lags:
            return _counted(ctx, await _recall_part(ctx, opened, request, given, deadline, asked_at=asked_at))
        with ctx.texts.queries:
            question, model, vector = await _read_and_embed(
                ctx, opened, request, given, deadline, asked_at=asked_at
            )
            topic = await _topic(ctx, opened, question, vector, deadline)
            # The log may have moved while the query was embedded; log and view must say the same when they are searched.
            await opened.wait_indexed()
            if model != opened.model and question is not None:
                # It turned to another model meanwhile, or the vector that was given is of the one that it turns to later.
                model = opened.model
                vector = await _embed_query(ctx, opened, model, question.text, deadline)
                topic = await _topic(ctx, opened, question, vector, deadline)
                await opened.wait_indexed()
            if model != opened.model:
                vector = topic = None
            return _counted(ctx, _search(ctx, opened, request, question, vector=vector, topic=topic))


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """A query, and all that can be read of it without its vector; ``named`` are the speakers in it."""

    text: str
    words: QueryWords
    form: PromptForm
    named: Sequence[str]

    @classmethod
    def of(cls, opened: OpenNamespace, query: str) -> _Question:
        """Read a query of this namespace."""
        return cls(query, QueryWords.of(query), read_prompt(query), opened.speakers(query)[:_MOST_NAMED])


class _Answer(msgspec.Struct, frozen=True):
    """What `schemas.RecallResponse` is; ``memories`` are encoded."""

    memories: tuple[msgspec.Raw, ...] = ()
    position: dict[str, int | str] | None = None
    degraded: bool = False
    considered: int = 0
    judgement: dict[str, float | None] | None = None
    gone: tuple[str, ...] = ()
    left_out: int = 0


def _counted(ctx: Context, answer: _Answer) -> bytes:
    found = "answered" if answer.memories else "empty"
    ctx.recalls["degraded" if answer.degraded else found] += 1
    return msgspec.json.encode(answer)


async def _read_and_embed(
    ctx: Context,
    opened: OpenNamespace,
    request: schemas.RecallRequest,
    given: NDArray[np.float32] | None,
    deadline: Deadline,
    *,
    asked_at: float,
) -> tuple[_Question | None, EmbeddingModel, NDArray[np.float32] | None]:
    """Bring the view up to date, read the query and embed it, side by side; the vector is of the model, None without one."""
    query = request.query
    if given is not None or query is None:
        await _read(ctx, opened, request, deadline, asked_at)
        question = None if query is None else _Question.of(opened, query)
        return question, (ctx.embedder.model if given is not None else opened.model), given
    model = opened.model
    embedding = asyncio.ensure_future(_embed_query(ctx, opened, model, query, deadline))
    try:
        # The model takes longest: everything else waits until it has the text.
        await asyncio.sleep(0)
        await _read(ctx, opened, request, deadline, asked_at)
        if not embedding.done():
            await asyncio.wait([embedding], timeout=_TAKEN_UP_SECONDS)
        return _Question.of(opened, query), model, await embedding
    finally:
        embedding.cancel()


async def _recall_part(
    ctx: Context,
    opened: OpenNamespace,
    request: schemas.RecallRequest,
    given: NDArray[np.float32] | None,
    deadline: Deadline,
    *,
    asked_at: float,
) -> _Answer:
    """Search what is indexed of a namespace that lags; the answer is degraded, and shows nothing that is not live any more."""
    async with deadline.step("read"):
        await opened.read_log(request.consistency, request.min_position, asked_at)
    model, query = opened.model, request.query
    vector = given if model == ctx.embedder.model else None
    if vector is None and query is not None:
        vector = await _embed_query(ctx, opened, model, query, deadline)
    question = None if query is None else _Question.of(opened, query)
    request = request.model_copy(update={"include": (), "standing": ()})
    found = _search(ctx, opened, request, question, vector=vector, topic=None)
    return msgspec.structs.replace(found, degraded=True)


async def _read(
    ctx: Context, opened: OpenNamespace, request: schemas.RecallRequest, deadline: Deadline, asked_at: float
) -> None:
    async with deadline.step("read"):
        await opened.read(request.consistency, request.min_position, asked_at)
        if opened.null_is_due:
            with suppress(EmbedderUnavailable, QueueFull):
                await ctx.namespaces.calibrate(ctx.embedder_of(opened.model))
            await opened.measure_baseline()


async def _embed_query(
    ctx: Context, opened: OpenNamespace, model: EmbeddingModel, query: str, deadline: Deadline
) -> NDArray[np.float32] | None:
    """Return the query's vector; None when it cannot be had in time for an answer by words alone."""
    try:
        async with asyncio.timeout(deadline.remaining() * _EMBEDDING_SHARE):
            vectors = await opened.embed(ctx.embedder_of(model), [query], query=True)
    except AccountBusy:
        # Who asks more than its share comes back later: an answer by words alone would be as much work again.
        raise
    except (EmbedderUnavailable, QueueFull, TimeoutError):
        return None
    first: NDArray[np.float32] = vectors[0]
    return first


async def _topic(
    ctx: Context,
    opened: OpenNamespace,
    question: _Question | None,
    vector: NDArray[np.float32] | None,
    deadline: Deadline,
) -> NDArray[np.float32] | None:
    """Return the query's vector without the speakers it names; None when it names none, or for want of a vector."""
    if question is None or vector is None or not question.named:
        return None
    model = opened.model
    about: list[NDArray[np.float32]] = []
    for name in (*question.named, ONESELF):
        # One at a time: what is embedded alone is kept with the namespace, and names come again with every question.
        found = await _embed_query(ctx, opened, model, ABOUT.format(name), deadline)
        if found is None or found.shape != vector.shape:
            return None
        about.append(found)
    return without_name(vector, about[:-1], about[-1])


def _search(
    ctx: Context,
    opened: OpenNamespace,
    request: schemas.RecallRequest,
    question: _Question | None,
    *,
    vector: NDArray[np.float32] | None,
    topic: NDArray[np.float32] | None,
) -> _Answer:
    now = ctx.clock.now_ms()
    allowed = opened.allowed(request, now)
    count = wanted(request) * (2 if opened.repeats_texts else 1)
    words = reading = None
    if question is not None:
        words, reading = question.words, question.form.reading(vector, opened.model.sha256)
    search = partial(opened.search, vector, words, count, floor=request.floor, topic=topic, reading=reading)
    found = search(allowed=allowed)
    statuses = {*request.include, *(("superseded",) if request.as_of is not None else ())}
    if statuses:
        past = opened.past_numbers(statuses, allowed)
        more = search(allowed=past, past=True)
        found = _together(found, more, count)
    if opened.lags:
        # The log may say of what was found that it was superseded, forgotten or erased.
        live = (hit for hit in found.hits if opened.is_live(opened.id_of_hit(hit.key)))
        found = replace(found, hits=tuple(live))
    shows = Shows(opened)
    hits, penalties = ordered(opened, _distinct(opened, found.hits), shows, request, now)
    hits = _newest_first(opened, hits, allowed)
    if reading is not None and reading.asks > 0:
        hits = _later_before(opened, hits)
    hits = [*hits[: request.limit], *_named(opened, request, question, search, hits=hits, now=now)]
    explained = penalties if request.explain else None
    memories = [_hit(opened, hit, shows[hit.key], explained) for hit in hits]
    kept = _within(memories, request.max_tokens)
    at = opened.position
    return _Answer(
        memories=kept,
        position={"seq": at.seq, "digest": at.digest.hex()},
        degraded=found.degraded or vector is None,
        considered=found.considered,
        judgement=_judgement(found.judgement) if request.explain else None,
        left_out=len(memories) - len(kept),
        gone=tuple(one for one in request.standing if opened.record(ulid.parse(one)) is None),
    )


def _named(
    opened: OpenNamespace,
    request: schemas.RecallRequest,
    question: _Question | None,
    search: Callable[..., SearchResult],
    *,
    hits: Sequence[Hit],
    now: int,
) -> list[Hit]:
    """Return hits of the audiences that count only if the query names a speaker or a place of theirs; those that it names first."""
    if not request.named or question is None:
        return []
    allowed = opened.allowed(request.model_copy(update={"audiences": request.named}), now)
    places = {f"group:{place}" for place in opened.places_in(question.text)}
    named: list[Hit] = []
    rest: list[Hit] = []
    known = {hit.key for hit in hits}
    for hit in _distinct(opened, search(allowed=allowed).hits):
        if hit.key in known:
            continue
        in_place = places and not places.isdisjoint(opened.hit(hit.key).record.audiences)
        (named if hit.spoken or in_place else rest).append(hit)
    return [*named[: request.limit], *rest[:_MOST_UNNAMED]]


def _together(found: SearchResult, past: SearchResult, count: int) -> SearchResult:
    """Put what is live and what is not any more into one order; they are judged apart."""
    hits = sorted((*found.hits, *past.hits), key=lambda hit: (-hit.relevance, hit.key))
    return replace(
        found,
        hits=tuple(hits[:count]),
        degraded=found.degraded or past.degraded,
        considered=found.considered + past.considered,
    )


def _distinct(opened: OpenNamespace, hits: Sequence[Hit]) -> list[Hit]:
    """Keep the best hit of each text: what was said to two audiences is still one thing to know."""
    if not opened.repeats_texts:
        return list(hits)
    best: dict[bytes, Hit] = {}
    for hit in hits:
        best.setdefault(opened.state_of_hit(hit.key).content, hit)
    return list(best.values())


def _newest_first(opened: OpenNamespace, hits: Sequence[Hit], allowed: Container[int] | None) -> list[Hit]:
    """The hits, before each of them what contradicts it since, found or not: nobody is told the old without the new."""
    found = {hit.key: hit for hit in hits}
    placed: dict[int, Hit] = {}
    for hit in hits:
        for key in opened.newer_beside(hit.key) if hit.key not in placed else ():
            if key not in placed and (allowed is None or key in allowed):
                # Of one that was not found, its relevance is all that is known.
                unfound = Hit(key, hit.relevance, None, None, 0.0, spoken=False, evidence=hit.evidence)
                placed[key] = found.get(key, unfound)._replace(relevance=hit.relevance)
        placed.setdefault(hit.key, hit)
    return list(placed.values())


def _later_before(opened: OpenNamespace, hits: Sequence[Hit]) -> list[Hit]:
    """The hits, the best ones of which stand behind what may tell a later state of the same: of both, only the order is changed."""
    first = [(hit, opened.hit(hit.key).record) for hit in hits[:_COMPARED]]
    read = [opened.statement(hit.key, _ONE_STATEMENT) for hit, _ in first]
    vectors = [opened.vector_of_hit(hit.key) for hit, _ in first]
    told = [told_by(vector, opened.model.sha256) for vector in vectors]
    placed: dict[int, Hit] = {}
    for at, (hit, record) in enumerate(first):
        for other, (beside, newer) in enumerate(first):
            is_later = (newer.said_at, beside.key) > (record.said_at, hit.key) and same_voice(record, newer)
            # Only the user's own word is enough to question what is known.
            if beside.key in placed or not is_later or newer.trust is not Trust.USER:
                continue
            # The vector of a turn has something of the one before it, and so is near it whatever it tells.
            near = None if newer.context_of == record.id else told[other]
            if may_follow(read[at], read[other], _cosine(vectors[at], vectors[other]), near):
                placed[beside.key] = beside._replace(relevance=max(beside.relevance, hit.relevance))
        placed.setdefault(hit.key, hit)
    return [*placed.values(), *hits[_COMPARED:]]


def _cosine(one: Vector | None, other: Vector | None) -> float:
    return 0.0 if one is None or other is None else float(one @ other)


class _Evidence(msgspec.Struct, frozen=True):
    cosine: float | None
    bm25: float | None
    covered: float
    speaker: bool
    score: float
    penalty: float


class _Found(msgspec.Struct, frozen=True):
    """What a hit has beside its memory."""

    relevance: float
    distance: float
    evidence: _Evidence | None
    passage: str


def _hit(
    opened: OpenNamespace, hit: Hit, shown: Shown, penalties: Mapping[int, float] | None
) -> tuple[Shown, bytes]:
    """Show a hit, encoded; with its evidence if the penalties are given."""
    relevance = round(hit.relevance, 4)
    evidence, passage = None, ""
    if penalties is not None:
        penalty = penalties.get(hit.key, 0.0)
        evidence = _Evidence(hit.cosine, hit.bm25, hit.covered, hit.spoken, hit.evidence, penalty)
    if hit.passage is not None:
        passage = passage_at(opened.hit(hit.key).record.text, hit.passage)
    found = msgspec.json.encode(_Found(relevance, round(1 - relevance, 4), evidence, passage))
    # Two objects become one.
    return shown, shown.encoded[:-1] + b"," + found[1:]


def _judgement(judgement: Judgement) -> dict[str, float | None]:
    return {
        "best": judgement.best,
        "usual": judgement.null.median,
        "needed": judgement.null.high,
        "doubt": judgement.doubt,
    }


def _within(hits: Sequence[tuple[Shown, bytes]], max_tokens: int | None) -> tuple[msgspec.Raw, ...]:
    """Keep whole memories, best first, while they fit the budget and one answer."""
    kept: list[msgspec.Raw] = []
    budget, room = (max_tokens or _NO_BUDGET) * _BYTES_PER_TOKEN, PAGE_BYTES
    for shown, hit in hits:
        budget -= shown.text_bytes
        room -= len(hit)
        if budget < 0 or (kept and room < 0):
            break
        kept.append(msgspec.Raw(hit))
    return tuple(kept)
