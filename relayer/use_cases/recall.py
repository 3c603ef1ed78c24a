"""The recall use case: search one namespace and return the most relevant memories, or none.

`recall_encoded` brings the namespace up to date while the query is being embedded, and searches it by vector and by terms.
`relayer.search.ranking` decides whether anything is relevant; an empty result is a valid response. `ordered` then applies the times
that the query names, source penalties, time decay and diversity, `_newest_first` puts a later statement before the one that it contradicts or may replace, and
`within_budget` cuts the result to the token budget. Memories are stored in encoded form, so the response is put together as bytes and
is not validated again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase, translate
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from relayer.access.accounts import Access
from relayer.errors import AccountBusy, EmbedderUnavailable, QueueFull
from relayer.lib.n_grams import PromptForm, asks_for_former, read_prompt
from relayer.lib.work import Deadline
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.records import MemoryOrigin, RenderedMemory, ReplacedSpan, Wish, kept_out_by
from relayer.ports import CrossEncoder, EmbeddingModel, QueryVectors
from relayer.search.index import QueryWords
from relayer.search.passages import passage_at
from relayer.search.ranking import ABOUT, ONESELF, Hit, SearchResult, diverse, faded, in_order, without_name
from relayer.search.relevance import READ_TOGETHER
from relayer.search.rows import KeyMask
from relayer.search.terms import TIME_WEIGHT, Times, named_times, nearness
from relayer.wire import codec as ulid
from relayer.wire import schemas
from relayer.wire.fields import DAY_MS, cut
from relayer.wire.relevance import MOST_UNCERTAIN, PROBABLY_HELPS
from relayer.writing.drafts import parse_vector
from relayer.writing.merging import LONGEST_BEFORE, said_before, says_more
from relayer.writing.present import PAGE_BYTES, encode_memory

# Drafts do not say yet what their author means. Tool output and transcripts are raw material: what matters in them was
# extracted as memories, which should come first.
DEFAULT_PENALTIES = (
    schemas.SourcePenalty(match="*memory/drafts/*"),
    schemas.SourcePenalty(match="*memory/draft-*.md"),
    schemas.SourcePenalty(match="trust:tool"),
    schemas.SourcePenalty(match="transcript:*"),
)
# The search returns this many times the requested hits as candidates for reranking. Penalties move few hits, time decay and
# diversity move many, and a time that the query names moves most. Each candidate costs time, so a long list gets no more for that.
_CHOICE, _WIDE_CHOICE, _DATED_CHOICE = 2, 4, 8
_MOST_DATED = 100


def wanted(request: schemas.RecallRequest, times: Times = ()) -> int:
    """Return how many candidates to search for, so that reranking can replace hits that it moves down."""
    wide = request.diversity or request.half_life_days is not None
    dated = min(_DATED_CHOICE * request.limit, _MOST_DATED) if times else 0
    return max((_WIDE_CHOICE if wide else _CHOICE) * request.limit, dated)


class Shows(dict[int, RenderedMemory]):
    """The encoded memories of the hits of one search, by hit key; each is looked up and encoded once."""

    def __init__(self, opened: OpenNamespace) -> None:
        super().__init__()
        self._opened = opened

    def __missing__(self, number: int) -> RenderedMemory:
        shown = self[number] = self._opened.shown(number, encode_memory)
        return shown


def ordered(
    opened: OpenNamespace,
    hits: Sequence[Hit],
    shows: Shows,
    request: schemas.RecallRequest,
    now: int,
    *,
    times: Times = (),
) -> tuple[list[Hit], dict[int, float]]:
    """Rerank hits by the times that the query names, source penalties, time decay and diversity.

    Returns:
        The hits in the requested order, at least as many of them as the request's limit, and the penalties that are not 0,
        by hit key.
    """
    penalties = _Penalties(DEFAULT_PENALTIES if request.penalties is None else request.penalties)
    fades = request.half_life_days
    first = hits[: request.limit]
    moved = fades is not None or bool(request.diversity) or bool(times)
    # A penalty only moves a hit down. If none of the first hits has one, they stay first, and the others need not be decrypted.
    if not moved and not any(penalties.largest(shows[hit.key].origin) for hit in first):
        return list(first), {}
    costs: dict[int, float] = {}
    scores: dict[int, float] = {}
    for hit in hits:
        cost = penalties.largest(shows[hit.key].origin)
        if cost:
            costs[hit.key] = cost
        # What a prompt gets was ordered by its relevance, and a time in it should not put an unlikely memory first.
        scores[hit.key] = (hit.relevance if times and request.prompt else hit.evidence) - cost
        if times:
            scores[hit.key] += TIME_WEIGHT * nearness(times, opened.hit(hit.key).record.said_at)
        if fades is not None and not (record := opened.hit(hit.key).record).pinned:
            scores[hit.key] = faded(scores[hit.key], (now - record.said_at) / DAY_MS, fades)
    if request.diversity:
        scores = diverse(scores, opened.index().row, request.diversity, request.limit)
    return in_order(hits, scores), costs


class _Penalties:
    """The penalty of each source. Most memories of a namespace come from a few sources, so the penalties are cached."""

    def __init__(self, penalties: Sequence[schemas.SourcePenalty]) -> None:
        self._penalties = penalties
        self._any = _one_of(tuple(item.match for item in penalties))
        self._known: dict[MemoryOrigin, float] = {}

    def largest(self, origin: MemoryOrigin) -> float:
        """Return the largest penalty whose pattern matches a record's source; 0 if none matches."""
        cost = self._known.get(origin)
        if cost is None:
            # The names of a source that the patterns are compared with.
            names = [f"kind:{origin.kind}", f"trust:{origin.trust}"]
            names += [origin.reference] if origin.reference else []
            names += [f"transcript:{origin.transcript}"] if origin.transcript else []
            cost = 0.0
            if any(map(self._any.match, names)):
                matching = (
                    one for one in self._penalties if any(fnmatchcase(name, one.match) for name in names)
                )
                cost = max((one.penalty for one in matching), default=0.0)
            self._known[origin] = cost
        return cost


@lru_cache(maxsize=64)
def _one_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return one regular expression that matches if any of the patterns does, because most sources match none."""
    return re.compile("|".join(map(translate, patterns)))


# Maximum characters of a query. The model reads 256 tokens, so a longer text would only cost time.
_QUERY_CHARACTERS = 2048
# Share of the remaining time that embedding the query may take. The rest is for searching and encoding the response.
_EMBEDDING_SHARE = 0.6
# Share of the time that is left then for reading a prompt together with memories.
_READING_SHARE = 0.5
# In bytes of UTF-8: a longer prompt is not read together with memories, and a longer memory in parts. The cross-encoder learnt from
# short ones, and reads about as much.
_READ_BYTES = 400
_PIECE_BYTES = 200
# The most parts of memories that are read together with a prompt.
_MOST_PIECES = 16
# Share of a request's time to wait for a namespace that is being opened. After that, the part that is indexed is searched.
_OPENING_SHARE = 0.4
# A model's thread needs the interpreter for this many seconds to pick up a text, and then not again until it has finished.
_TAKEN_UP_SECONDS = 0.001
# Maximum names of speakers that are removed from a query; each one has to be embedded when it is first asked about.
_MOST_NAMED = 3
# Maximum hits of further audiences that the query does not name: enough to show that there are some.
_MOST_UNNAMED = 2
# Maximum memories that are read because they replaced what a prompt is near to.
_MOST_LED_TO = 3
# Maximum searches for hits that no wish keeps out.
_MOST_SEARCHES = 3
# Bytes of English text per token, for `RecallRequest.max_tokens`. This is the usual estimate, not an exact count.
_BYTES_PER_TOKEN = 4


async def recall(
    ctx: Context, access: Access, request: schemas.RecallRequest, deadline: Deadline
) -> schemas.RecallResponse:
    """Search a namespace. See `recall_encoded`, whose response this decodes for callers inside of the relayer."""
    answer = await recall_encoded(ctx, access, request, deadline)
    return schemas.RecallResponse.model_validate_json(answer)


async def recall_encoded(
    ctx: Context, access: Access, request: schemas.RecallRequest, deadline: Deadline
) -> bytes:
    """Search a namespace and return the response as JSON, a `schemas.RecallResponse`.

    A namespace that does not exist gives the same response as an empty one. If the query cannot be embedded in time, it is
    searched by terms alone and the response is marked ``degraded``. The response is not validated, because memories are
    validated when they are stored.

    Raises:
        Refused: ``bad_vector``: the request's vector does not fit the model.
        AccountBusy: too many requests of this account wait for the embedder.
    """
    asked_at = ctx.clock.monotonic()
    if request.query is not None and len(request.query) > _QUERY_CHARACTERS:
        request = request.model_copy(update={"query": request.query[:_QUERY_CHARACTERS]})
    given = None
    if request.vector is not None:
        given = QueryVectors(parse_vector(request.vector, ctx.embedder.model))
    patience = deadline.remaining() * _OPENING_SHARE
    async with ctx.namespaces.use_if_exists(access, deadline, patience=patience) as opened:
        if opened is None:
            return _counted(ctx, _Answer(gone=request.standing))
        if opened.lags:
            return _counted(ctx, await _recall_part(ctx, opened, request, given, deadline, asked_at=asked_at))
        with ctx.texts.queries:
            question, model, vectors = await _read_and_embed(
                ctx, opened, request, given, deadline, asked_at=asked_at
            )
            topic = await _topic(ctx, opened, question, vectors, deadline)
            # Entries may have been appended while the query was embedded. Log and index must agree before they are searched.
            await opened.wait_indexed()
            if model != opened.model and question is not None:
                # The namespace has just changed its embedding model, or the supplied vector is of a model that the namespace
                # has not changed to yet.
                model = opened.model
                vectors = await _embed_query(ctx, opened, model, question.text, deadline, prompt=True)
                topic = await _topic(ctx, opened, question, vectors, deadline)
                await opened.wait_indexed()
            passing = await opened.passing(request.where)
            if passing is not None:
                await opened.wait_indexed()
            if model != opened.model:
                vectors = topic = None
            search = _Search(opened, request, question, vectors, topic, passing, ctx.clock.now_ms())
            if ctx.cross is not None and question is not None and (request.prompt or request.rerank):
                search = await _read_together(ctx.cross, search, question.text, deadline)
            return _counted(ctx, _answered(search))


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """A query, and what can be read from its text; ``named`` are the speakers of this namespace that it names."""

    text: str
    words: QueryWords
    form: PromptForm
    named: Sequence[str]

    @classmethod
    def parsed(cls, opened: OpenNamespace, query: str) -> _Question:
        return cls(
            query,
            QueryWords.from_query(query),
            read_prompt(query),
            opened.index().speakers(query)[:_MOST_NAMED],
        )


_KeptOut = dict[str, str | float]
"""The fields of `schemas.Unmentioned`."""


class _Answer(msgspec.Struct, frozen=True):
    """The fields of `schemas.RecallResponse`, with ``memories`` already encoded as JSON."""

    memories: tuple[msgspec.Raw, ...] = ()
    position: dict[str, int | str] | None = None
    degraded: bool = False
    considered: int = 0
    judgement: dict[str, float | None] | None = None
    gone: tuple[str, ...] = ()
    left_out: int = 0
    unmentioned: tuple[_KeptOut, ...] = ()
    former: bool = False


def _counted(ctx: Context, answer: _Answer) -> bytes:
    found = "answered" if answer.memories else "empty"
    ctx.recalls["degraded" if answer.degraded else found] += 1
    return msgspec.json.encode(answer)


async def _read_and_embed(
    ctx: Context,
    opened: OpenNamespace,
    request: schemas.RecallRequest,
    given: QueryVectors | None,
    deadline: Deadline,
    *,
    asked_at: float,
) -> tuple[_Question | None, EmbeddingModel, QueryVectors | None]:
    """Bring the index up to date while the query is being embedded.

    Returns:
        The parsed query or None if there is none, a model, and the vectors of that model; None if there are none.
    """
    query = request.query
    if given is not None or query is None:
        await _read(ctx, opened, request, deadline, asked_at)
        question = None if query is None else _Question.parsed(opened, query)
        return question, (ctx.embedder.model if given is not None else opened.model), given
    model = opened.model
    embedding = asyncio.ensure_future(_embed_query(ctx, opened, model, query, deadline, prompt=True))
    try:
        # The model takes longest, so it gets the text before anything else is started.
        await asyncio.sleep(0)
        await _read(ctx, opened, request, deadline, asked_at)
        if not embedding.done():
            await asyncio.wait([embedding], timeout=_TAKEN_UP_SECONDS)
        return _Question.parsed(opened, query), model, await embedding
    finally:
        embedding.cancel()


async def _recall_part(
    ctx: Context,
    opened: OpenNamespace,
    request: schemas.RecallRequest,
    given: QueryVectors | None,
    deadline: Deadline,
    *,
    asked_at: float,
) -> _Answer:
    """Search the part of a namespace that is indexed while the rest is still being opened, see `OpenNamespace.lags`.

    The response is marked as degraded, and contains only memories that are still live.
    """
    async with deadline.step("read"):
        await opened.read_log(request.consistency, request.min_position, asked_at)
    model, query = opened.model, request.query
    vectors = given if model == ctx.embedder.model else None
    if vectors is None and query is not None:
        vectors = await _embed_query(ctx, opened, model, query, deadline, prompt=True)
    question = None if query is None else _Question.parsed(opened, query)
    request = request.model_copy(update={"include": (), "standing": ()})
    passing = await opened.passing(request.where)
    found = _answered(_Search(opened, request, question, vectors, None, passing, ctx.clock.now_ms()))
    return msgspec.structs.replace(found, degraded=True)


async def _read(
    ctx: Context, opened: OpenNamespace, request: schemas.RecallRequest, deadline: Deadline, asked_at: float
) -> None:
    async with deadline.step("read"):
        await opened.read(request.consistency, request.min_position, asked_at)
        if opened.index().null_is_due:
            with suppress(EmbedderUnavailable, QueueFull):
                await ctx.namespaces.calibrate(ctx.embedder_of(opened.model))
            await opened.measure_baseline()


async def _embed_query(
    ctx: Context,
    opened: OpenNamespace,
    model: EmbeddingModel,
    query: str,
    deadline: Deadline,
    *,
    prompt: bool = False,
) -> QueryVectors | None:
    """Return the query's vectors; None if the embedder is unavailable or too slow, so that terms alone are searched.

    Raises:
        AccountBusy: the account has more requests waiting for the embedder than its share.
    """
    try:
        async with asyncio.timeout(deadline.remaining() * _EMBEDDING_SHARE):
            rows = await opened.embed(ctx.embedder_of(model), [query], query=True, prompt=prompt)
    except AccountBusy:
        # The account has more requests waiting than its share. Searching by terms instead would cost as much again, so the
        # caller is to come back later.
        raise
    except (EmbedderUnavailable, QueueFull, TimeoutError):
        return None
    return QueryVectors.split(rows[0], model.dimension)


async def _topic(
    ctx: Context,
    opened: OpenNamespace,
    question: _Question | None,
    vectors: QueryVectors | None,
    deadline: Deadline,
) -> NDArray[np.float32] | None:
    """Return the query's vector with the influence of the speakers' names removed; None without names or without a vector."""
    if question is None or vectors is None or not question.named:
        return None
    model = opened.model
    about: list[NDArray[np.float32]] = []
    for name in (*question.named, ONESELF):
        # The namespace caches vectors of texts that are embedded alone, and the same names come up in many queries.
        found = await _embed_query(ctx, opened, model, ABOUT.format(name), deadline)
        if found is None or found.query.shape != vectors.query.shape:
            return None
        about.append(found.query)
    return without_name(vectors.query, about[:-1], about[-1])


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """A search of one namespace, which can be made more than once.

    Attributes:
        question: the parsed query; None if there is none.
        vectors: of the query, by the namespace's model; None if there are none.
        topic: see `_topic`.
        passing: the keys that pass the request's conditions; None for all.
        scores: see `MemoryIndex.search`. Past memories are not read.
        found: the result among the allowed memories, if it is known already.
    """

    opened: OpenNamespace
    request: schemas.RecallRequest
    question: _Question | None
    vectors: QueryVectors | None
    topic: NDArray[np.float32] | None
    passing: KeyMask | None
    now: int
    scores: Mapping[int, float] | None = None
    found: SearchResult | None = None

    @property
    def times(self) -> Times:
        return () if self.question is None else named_times(self.question.text, self.now)

    @property
    def former(self) -> bool:
        """Return whether the prompt asks how something was before it changed, which memories that were replaced tell."""
        request, vectors = self.request, self.vectors
        if vectors is None or not (request.prompt and request.former):
            return False
        return asks_for_former(vectors.query, self.opened.model.sha256)

    @property
    def count(self) -> int:
        return wanted(self.request, self.times) * (2 if self.opened.repeats_texts else 1)

    def allowed(self, audiences: Sequence[str] | None = None) -> KeyMask | None:
        """Return the keys that the request allows, or that it would allow for other audiences; None for all."""
        request = self.request
        if audiences is not None:
            request = request.model_copy(update={"audiences": audiences})
        allowed = self.opened.allowed(request, self.now)
        if allowed is None or self.passing is None:
            return self.passing if allowed is None else allowed
        return allowed.within(self.passing.flags)

    def among(self, allowed: KeyMask | None, *, past: bool = False) -> SearchResult:
        words = reading = None
        vector = None if self.vectors is None else self.vectors.query
        if self.question is not None:
            words = self.question.words
            reading = self.question.form.reading(vector, self.opened.model.sha256)
        return self.opened.index(past=past).search(
            vector,
            words,
            self.count,
            allowed=allowed,
            floor=self.request.floor,
            topic=self.topic,
            reading=reading,
            prompt=self.vectors,
            explicit=not self.request.prompt,
            rerank=self.request.rerank and not past,
            wide=bool(self.times),
            scores=self.scores if self.scores is None or not past else {},
        )


async def _read_together(cross: CrossEncoder, search: _Search, prompt: str, deadline: Deadline) -> _Search:
    """Read a prompt, or a query, together with the memories that it would get; return the search with the score of each.

    There are no scores if the prompt is too long or no memory concerns it, or if there is no time: what was found counts then.
    """
    if len(prompt.encode()) > _READ_BYTES:
        return search
    opened, model = search.opened, search.opened.model
    found = search.among(search.allowed())
    unread = _of_the_time(search, found.unread)
    if search.request.named:
        unread += _of_the_time(search, search.among(search.allowed(search.request.named)).unread)
    pieces: list[tuple[int, str]] = []
    if search.request.prompt:
        unread += tuple(_led_to(search, unread))
    for hit in unread:
        if opened.is_live(opened.id_of_hit(hit.key)):
            memory = opened.hit(hit.key)
            text = memory.record.text if search.former else memory.told
            if hit.passage is not None and not memory.replaced:
                text = passage_at(memory.record.text, hit.passage)
            parts = [text]
            if len(text.encode()) > _PIECE_BYTES:
                parts = [text[start:end].strip() for start, end in cut(text, _PIECE_BYTES)]
            pieces += ((hit.key, part) for part in parts)
    pieces = pieces[:_MOST_PIECES]
    if not pieces:
        return replace(search, found=found)
    # Before the entries that may come meanwhile.
    copies = _copies(opened, dict(pieces), found.hits) if search.request.rerank else {}
    with suppress(AccountBusy, EmbedderUnavailable, QueueFull, TimeoutError):
        async with asyncio.timeout(deadline.remaining() * _READING_SHARE):
            read = await cross.scores(prompt, [piece for _, piece in pieces])
        scores: dict[int, float] = {}
        for (key, _), score in zip(pieces, read.tolist(), strict=True):
            scores[key] = max(score, scores.get(key, score))
        search = replace(
            search, scores={key: scores[copy] for key, copy in copies.items() if copy in scores} | scores
        )
    await opened.wait_indexed()
    # If the namespace has changed its embedding model meanwhile, it is searched by terms.
    return search if model == opened.model else replace(search, vectors=None, topic=None)


def _copies(opened: OpenNamespace, read: Iterable[int], hits: Sequence[Hit]) -> dict[int, int]:
    """Return by hit key the key of a hit that is read and has the same text."""
    if not opened.repeats_texts:
        return {}
    by_text = {opened.state_of_hit(key).content: key for key in read}
    texts = ((hit.key, opened.state_of_hit(hit.key).content) for hit in hits)
    return {key: by_text[text] for key, text in texts if text in by_text}


def _of_the_time(search: _Search, hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return the hits to read: of about equally likely ones, those of the time that a prompt names."""
    times, opened = search.times, search.opened
    if not times or not search.request.prompt:
        return tuple(hits)

    def worth(hit: Hit) -> float:
        return hit.relevance + TIME_WEIGHT * nearness(times, opened.hit(hit.key).record.said_at)

    return tuple(sorted(hits, key=worth, reverse=True)[:READ_TOGETHER])


def _led_to(search: _Search, found: Sequence[Hit]) -> list[Hit]:
    """Return the memories that replaced what a prompt is near to: parts of the hits that were found, and whole memories.

    "Clinic moved to Thursdays" replaces "the antenatal clinic is at St Mary's, Mondays at eight", which a question about the clinic is
    near to, while what replaced it hardly looks like one.
    """
    opened, allowed = search.opened, search.allowed()
    has_past = found and len(opened.index(past=True))
    gone = search.among(allowed, past=True).unread if has_past else ()
    newer = [new for hit in (*found, *gone) for new in opened.replacing(hit.key)]
    known = {hit.key for hit in found}
    return [
        Hit(key, 0.0, None, None, 0.0, spoken=False, evidence=0.0)
        for key in dict.fromkeys(newer)
        if key not in known and (allowed is None or key in allowed)
    ][:_MOST_LED_TO]


def _answered(search: _Search) -> _Answer:
    opened, request, question, now = search.opened, search.request, search.question, search.now
    allowed, times = search.allowed(), search.times
    found = search.found or search.among(allowed)
    given = {*request.include, *(("superseded",) if request.as_of is not None else ())}
    statuses = given | ({"superseded"} if search.former else set())
    if statuses:
        past = opened.past_numbers(statuses, allowed)
        more = search.among(past, past=True)
        if "superseded" not in given:
            # A version of a memory that was forgotten is no former value.
            more = replace(
                more,
                hits=tuple(
                    hit
                    for hit in more.hits
                    if opened.state_of_hit(hit.key).status in given or opened.holds(hit.key)
                ),
            )
        found = _together(found, more, search.count)
    if opened.lags:
        # The log is ahead of the index: it may say that a hit was superseded, forgotten or erased.
        live = (hit for hit in found.hits if opened.is_live(opened.id_of_hit(hit.key)))
        found = replace(found, hits=tuple(live))
    wishes = opened.wishes(request.audiences, request.trusts, now)
    records = ((one, opened.record(ulid.parse(one))) for one in request.standing)
    gone = tuple(one for one, record in records if record is None or kept_out_by(record, wishes))
    if not (request.prompt or request.unasked):
        wishes = []
    elif question is not None and wishes:
        wishes = opened.wishes(request.audiences, request.trusts, now, question.text)
    shows = Shows(opened)
    unspoken = _Unspoken(opened, wishes)
    kept_out: dict[int, _KeptOut] = {}
    for _ in range(_MOST_SEARCHES):
        silent = unspoken.kept_out(found.hits)
        kept_out |= silent
        if not silent or statuses:
            break
        # The best hit decides what else is relevant enough, so the search is made again without those that are kept out.
        again = search.among(opened.all_but(allowed, kept_out)).hits
        found = replace(found, hits=tuple(hit for hit in again if opened.is_live(opened.id_of_hit(hit.key))))
    hits, penalties = ordered(opened, _distinct(opened, found.hits), shows, request, now, times=times)
    if request.prompt and times and max((hit.relevance for hit in hits), default=0.0) < PROBABLY_HELPS:
        hits = hits[:MOST_UNCERTAIN]
    hits = _newest_first(opened, hits, allowed)
    hits = unspoken.told(_with_former(opened, hits, allowed) if search.former else hits)
    named = _named(search, hits)
    hits = [*hits[: request.limit], *unspoken.told(named)]
    explained = penalties if request.explain else None
    shown = {hit.key for hit in hits}
    before = _Before(opened, allowed, unspoken, shown, opened.parts_replaced_by(shown))
    memories = [_hit(opened, hit, shows[hit.key], explained, before.text_of(hit.key)) for hit in hits]
    kept = within_budget(memories, request.max_tokens)
    at, judgement = opened.position, found.judgement
    judged = {
        "best": judgement.best,
        "usual": judgement.null.median,
        "needed": judgement.null.high,
        "doubt": judgement.doubt,
    }
    return _Answer(
        memories=kept,
        position={"seq": at.seq, "digest": at.digest.hex()},
        degraded=found.degraded or search.vectors is None,
        considered=found.considered,
        judgement=judged if request.explain else None,
        left_out=len(memories) - len(kept),
        gone=gone,
        unmentioned=tuple(kept_out.values())[: request.limit],
        former=search.former,
    )


class _Unspoken:
    """The memories that wishes not to be reminded keep out of a prompt; each is compared with them once."""

    def __init__(self, opened: OpenNamespace, wishes: Sequence[Wish]) -> None:
        self._opened = opened
        self._wishes = wishes
        self._known: dict[int, bytes] = {}

    def kept_out(self, hits: Iterable[Hit]) -> dict[int, _KeptOut]:
        """Return the hits that a wish keeps out, by key."""
        if not self._wishes:
            return {}
        id_of = self._opened.id_of_hit
        return {
            hit.key: {
                "id": ulid.render(id_of(hit.key)),
                "by": ulid.render(wish),
                "relevance": round(hit.relevance, 4),
            }
            for hit in hits
            if (wish := self._wish(hit.key))
        }

    def told(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return the others, without those that a newer memory which is kept out contradicts or follows: they may be over."""
        if not self._wishes:
            return list(hits)
        newer = self._opened.newer_beside
        return [hit for hit in hits if not any(map(self._wish, (hit.key, *newer(hit.key))))]

    def has(self, key: int) -> bool:
        """Return whether a wish keeps a memory out."""
        return bool(self._wishes and self._wish(key))

    def _wish(self, key: int) -> bytes:
        if key not in self._known:
            self._known[key] = kept_out_by(self._opened.hit(key).record, self._wishes)
        return self._known[key]


def _named(search: _Search, hits: Sequence[Hit]) -> list[Hit]:
    """Return hits of the audiences in ``request.named``, whose memories matter mainly if the query names a speaker or a place.

    Hits whose speaker or place is named come first, up to the request's limit, then up to `_MOST_UNNAMED` others.
    """
    opened, request, question = search.opened, search.request, search.question
    if not request.named or question is None:
        return []
    places = {f"group:{place}" for place in opened.places_in(question.text)}
    named: list[Hit] = []
    rest: list[Hit] = []
    known = {hit.key for hit in hits}
    for hit in _distinct(opened, search.among(search.allowed(request.named)).hits):
        if hit.key in known:
            continue
        in_place = places and not places.isdisjoint(opened.hit(hit.key).record.audiences)
        (named if hit.spoken or in_place else rest).append(hit)
    return [*named[: request.limit], *rest[:_MOST_UNNAMED]]


def _together(found: SearchResult, past: SearchResult, count: int) -> SearchResult:
    """Merge live and past hits into one order, by relevance; the relevance of each was decided by a search of its own."""
    hits = sorted((*found.hits, *past.hits), key=lambda hit: -hit.relevance)
    return replace(
        found,
        hits=tuple(hits[:count]),
        degraded=found.degraded or past.degraded,
        considered=found.considered + past.considered,
    )


def _distinct(opened: OpenNamespace, hits: Sequence[Hit]) -> list[Hit]:
    """Keep the best hit of each text, because the same text may be stored for several audiences."""
    if not opened.repeats_texts:
        return list(hits)
    best: dict[tuple[bytes, str, tuple[str, ...]], Hit] = {}
    for hit in hits:
        # The same text with other tags or metadata is another memory.
        record = opened.hit(hit.key).record
        best.setdefault((opened.state_of_hit(hit.key).content, record.metadata, record.tags), hit)
    return list(best.values())


def _newest_first(opened: OpenNamespace, hits: Sequence[Hit], allowed: Container[int] | None) -> list[Hit]:
    """Return the hits, each preceded by the newer memories that contradict or follow it, so that none appears without those.

    A newer memory that the search did not return is inserted; ``allowed`` are the keys that may be, None for all.
    """
    found = {hit.key: hit for hit in hits}
    placed: dict[int, Hit] = {}
    for hit in hits:
        for key in opened.newer_beside(hit.key) if hit.key not in placed else ():
            if key not in placed and (allowed is None or key in allowed):
                # A memory that was not found has no scores of its own.
                unfound = Hit(key, hit.relevance, None, None, 0.0, spoken=False, evidence=hit.evidence)
                placed[key] = found.get(key, unfound)._replace(relevance=hit.relevance)
        placed.setdefault(hit.key, hit)
    return list(placed.values())


def _with_former(opened: OpenNamespace, hits: Sequence[Hit], allowed: Container[int] | None) -> list[Hit]:
    """Return the hits, each followed by the memories that it replaced; ``allowed`` are the keys that may be, None for all.

    What was said of a change is often nearer to a question about the former value than that value, which the search then misses.
    """
    found = {hit.key: hit for hit in hits}
    placed: dict[int, Hit] = {}
    for hit in hits:
        placed.setdefault(hit.key, hit)
        for key in opened.replaced_by(hit.key):
            if key not in placed and opened.holds(key) and (allowed is None or key in allowed):
                unfound = Hit(key, hit.relevance, None, None, 0.0, spoken=False, evidence=hit.evidence)
                placed[key] = found.get(key, unfound)
    return list(placed.values())


@dataclass(frozen=True, slots=True)
class _Before:
    """The texts that the hits of an answer replaced, as far as they say more (`said_before`) and may be told."""

    opened: OpenNamespace
    allowed: Container[int] | None
    unspoken: _Unspoken
    shown: Container[int]
    parts: Mapping[int, tuple[int, int, int]]

    def text_of(self, key: int) -> str:
        """Return what a hit replaced; "" for none."""
        former = said_before(self.opened, key)
        if former is not None:
            whole = self.opened.key_of(former.id)
            return former.text if whole not in self.shown and self._may_be_told(whole) else ""
        if key not in self.parts:
            return ""
        old, start, end = self.parts[key]
        if not self._may_be_told(old) or not self.opened.holds(old):
            return ""
        memory, record = self.opened.hit(old), self.opened.hit(key).record
        part = memory.record.text[start:end]
        if old in self.shown and memory.is_followed(ReplacedSpan(start, end, record.id)):
            # That memory's own line has it.
            return ""
        return part.strip() if len(part) <= LONGEST_BEFORE and says_more(part, record.text) else ""

    def _may_be_told(self, old: int | None) -> bool:
        if old is None or self.unspoken.has(old):
            return False
        return self.allowed is None or old in self.allowed


def _hit(
    opened: OpenNamespace,
    hit: Hit,
    shown: RenderedMemory,
    penalties: Mapping[int, float] | None,
    before: str,
) -> tuple[RenderedMemory, bytes]:
    """Encode a hit, with its scores if the penalties by hit key are given."""
    relevance = round(hit.relevance, 4)
    evidence, passage = None, ""
    if penalties is not None:
        evidence = {
            "cosine": hit.cosine,
            "bm25": hit.bm25,
            "covered": hit.covered,
            "speaker": hit.spoken,
            "score": hit.evidence,
            "penalty": penalties.get(hit.key, 0.0),
        }
    if hit.passage is not None:
        memory = opened.hit(hit.key)
        # Passages are those of the whole text.
        passage = "" if memory.replaced else passage_at(memory.record.text, hit.passage)
    # The fields of `schemas.RecallHit` that a memory does not have. The two JSON objects are joined into one.
    distance = round(1 - relevance, 4)
    found = msgspec.json.encode(
        {
            "relevance": relevance,
            "distance": distance,
            "evidence": evidence,
            "passage": passage,
            "before": before,
        }
    )
    whole = replace(shown, text_bytes=shown.text_bytes + len(before.encode())) if before else shown
    return whole, shown.encoded[:-1] + b"," + found[1:]


def within_budget(
    hits: Sequence[tuple[RenderedMemory, bytes]], max_tokens: int | None
) -> tuple[msgspec.Raw, ...]:
    """Return the best hits that fit the token budget and one response, without cutting any."""
    kept: list[msgspec.Raw] = []
    # Without a budget, only the size of the response limits the hits: as many tokens as it has bytes are never reached.
    budget, room = (max_tokens or PAGE_BYTES) * _BYTES_PER_TOKEN, PAGE_BYTES
    for shown, hit in hits:
        budget -= shown.text_bytes
        room -= len(hit)
        if budget < 0 or (kept and room < 0):
            break
        kept.append(msgspec.Raw(hit))
    return tuple(kept)
