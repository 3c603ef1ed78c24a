"""Recall: what is relevant to a query, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from relayer.errors import EmbedderUnavailable, QueueFull
from relayer.ports import EmbeddingModel
from relayer.search.found import Hit, Judgement, SearchResult
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.drafting import parse_vector
from relayer.services.open_namespace import OpenNamespace
from relayer.services.presentation import memory_fields, position
from relayer.services.recall_order import ordered, wanted
from relayer.services.validity import held_at, holds_until, past_numbers
from relayer.wire import schemas

__all__ = ["recall"]

_EMBEDDING_SHARE = 0.6  # of the time that is left; the rest is for searching and answering
_BYTES_PER_TOKEN = 4  # the usual estimate for English text; a budget, not a bill


async def recall(
    ctx: Context, access: Access, request: schemas.RecallRequest, deadline: Deadline
) -> schemas.RecallResponse:
    """Search a namespace; a namespace that does not exist answers like an empty one.

    Raises:
        Refused: ``bad_vector``.
        RelayerError: as `relayer.services.open_namespaces.OpenNamespaces.use` and the log's reads.
    """
    given = parse_vector(request.vector, ctx.embedder.model) if request.vector is not None else None
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return schemas.RecallResponse(memories=(), position=None)
        model, vector = await _read_and_embed(ctx, opened, request, given, deadline)
        # The log may have moved while the query was embedded; log and view must say the same when they are searched.
        await opened.settle()
        if model != opened.view.model and request.query is not None:
            # It turned to another model meanwhile, or the vector that was given is of the one that it turns to later.
            model = opened.view.model
            vector = await _embed_query(ctx, opened, model, request.query, deadline)
            await opened.settle()
        return _search(ctx, opened, request, vector if model == opened.view.model else None)


async def _read_and_embed(
    ctx: Context,
    opened: OpenNamespace,
    request: schemas.RecallRequest,
    given: NDArray[np.float32] | None,
    deadline: Deadline,
) -> tuple[EmbeddingModel, NDArray[np.float32] | None]:
    """Bring the view up to date and embed the query, side by side; returns a model, and a vector of it if there is one."""
    if given is not None or request.query is None:
        await _read(ctx, opened, request, deadline)
        return (ctx.embedder.model if given is not None else opened.view.model), given
    model = opened.view.model
    embedding = asyncio.ensure_future(_embed_query(ctx, opened, model, request.query, deadline))
    try:
        await _read(ctx, opened, request, deadline)
        return model, await embedding
    finally:
        embedding.cancel()


async def _read(
    ctx: Context, opened: OpenNamespace, request: schemas.RecallRequest, deadline: Deadline
) -> None:
    async with deadline.step("read"):
        await opened.read(request.consistency, request.min_position)
        if opened.view.index.null_is_due:
            with suppress(EmbedderUnavailable, QueueFull):
                await ctx.namespaces.calibrate(ctx.embedder_of(opened.view.model))
            await opened.judge_alike()


async def _embed_query(
    ctx: Context, opened: OpenNamespace, model: EmbeddingModel, query: str, deadline: Deadline
) -> NDArray[np.float32] | None:
    """Return the query's vector; None when it cannot be had in time for an answer by words alone."""
    try:
        async with asyncio.timeout(deadline.remaining() * _EMBEDDING_SHARE):
            vectors = await opened.embed(ctx.embedder_of(model), [query])
    except (EmbedderUnavailable, QueueFull, TimeoutError):
        return None
    first: NDArray[np.float32] = vectors[0]
    return first


def _search(
    ctx: Context, opened: OpenNamespace, request: schemas.RecallRequest, vector: NDArray[np.float32] | None
) -> schemas.RecallResponse:
    view = opened.view
    allowed = view.roster.allowed(
        kinds=request.kinds,
        audiences=request.audiences,
        trusts=request.trusts,
        suspect=request.include_suspect,
        now=ctx.clock.now_ms(),
    )
    if request.occurred_after is not None or request.occurred_before is not None:
        allowed = view.roster.between(request.occurred_after, request.occurred_before, allowed)
    if request.as_of is not None:
        numbers = view.numbers() if allowed is None else allowed
        allowed = {number for number in numbers if _held(opened, number, request.as_of)}
    count = wanted(request) * (2 if opened.log.state.repeats_texts else 1)
    found = view.index.search(vector, request.query, count, allowed=allowed, floor=request.floor)
    standings = {*request.include, *(("superseded",) if request.as_of is not None else ())}
    if standings:
        past = past_numbers(opened, standings, allowed)
        more = view.past.search(vector, request.query, count, allowed=past, floor=request.floor)
        found = _together(found, more, count)
    hits, penalties = ordered(view, _distinct(opened, found.hits), request, ctx.clock.now_ms())
    explained = penalties if request.explain else None
    memories = [_hit(opened, hit, explained) for hit in hits[: request.limit]]
    # One validation for the whole answer: its parts would cost as much again each.
    return schemas.RecallResponse.model_validate(
        {
            "memories": _within(memories, request.max_tokens),
            "position": position(opened.log.position),
            "degraded": found.degraded or vector is None,
            "considered": found.considered,
            "judgement": _judgement(found.judgement) if request.explain else None,
        }
    )


def _held(opened: OpenNamespace, number: int, at: int) -> bool:
    record = opened.view.known(number)
    return record is not None and held_at(opened, record, at)


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
    if not opened.log.state.repeats_texts:
        return list(hits)
    states = opened.log.state.records
    best: dict[bytes, Hit] = {}
    for hit in hits:
        best.setdefault(states[opened.view.id_of(hit.key)].content, hit)
    return list(best.values())


def _hit(opened: OpenNamespace, hit: Hit, penalties: Mapping[int, float] | None) -> dict[str, object]:
    """Show a hit; with its evidence if the penalties are given."""
    record = opened.view.by_number(hit.key)
    state = opened.log.state.records[record.id]
    fields = memory_fields(
        record,
        state,
        searchable=record.id not in opened.view.without_vector,
        until=holds_until(opened, record, state),
    )
    relevance = round(hit.relevance, 4)
    evidence = None
    if penalties is not None:
        evidence = {
            "cosine": hit.cosine,
            "bm25": hit.bm25,
            "covered": hit.covered,
            "speaker": hit.spoken,
            "score": hit.evidence,
            "penalty": penalties.get(hit.key, 0.0),
        }
    return fields | {"relevance": relevance, "distance": round(1 - relevance, 4), "evidence": evidence}


def _judgement(judgement: Judgement) -> dict[str, float | None]:
    return {
        "best": judgement.best,
        "usual": judgement.null.median,
        "needed": judgement.null.high,
        "doubt": judgement.doubt,
    }


def _within(hits: list[dict[str, object]], max_tokens: int | None) -> list[dict[str, object]]:
    """Keep whole memories, best first, while they fit the budget."""
    if max_tokens is None:
        return hits
    kept: list[dict[str, object]] = []
    room = max_tokens * _BYTES_PER_TOKEN
    for hit in hits:
        room -= len(str(hit["text"]).encode())
        if room < 0:
            break
        kept.append(hit)
    return kept
