"""Handlers of recall, ask and embed.

Clients get a ``distance``, which is 1 minus the calibrated relevance, so that a client that computes a threshold of relevance
from it gets what it expects. No result is left out for its distance: clients ask for a number of results and apply their
own threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relayer.errors import DeadlineExceeded, Refused
from relayer.fronts.memwal import contract
from relayer.fronts.memwal.contract import Weights, check_text
from relayer.fronts.memwal.front import CompatCall, reply
from relayer.fronts.memwal.names import TokenKind
from relayer.http.routes import Reply
from relayer.lib.work import Deadline
from relayer.use_cases.insight import ask as answer_by_model
from relayer.use_cases.recall import recall as search
from relayer.wire import codec as ulid
from relayer.wire.fields import render_time
from relayer.wire.memories import MOST_SHOWN, AskRequest, RecallHit, RecallRequest

MOST_SECONDS = 13.5
LONGEST_QUERY = 64 * 1024
_DAY_MS = 86_400_000
# Maximum length of a query that is searched for; a model reads 256 tokens of it.
_QUERY_CHARACTERS = 2048
# Maximum distance of a memory that counts as relevant: MemWal's middleware keeps a relevance of at least 0.3.
_RELEVANT = 0.7
_QUOTED = 5


@dataclass(frozen=True, slots=True)
class ScoredHit:
    """A hit; ``score`` is set if weights decide the order of the results."""

    hit: RecallHit
    blob: str
    score: float | None = None

    def shown(self) -> dict[str, Any]:
        """Return the hit as it is sent to clients."""
        shown: dict[str, Any] = {"blob_id": self.blob, "text": self.hit.text, "distance": self.hit.distance}
        if self.score is not None:
            shown["score"] = round(self.score, 6)
        return shown | {"created_at": render_time(self.hit.created_at)}


async def recall(call: CompatCall) -> Reply:
    """Handle ``POST /api/recall``."""
    body = call.body(contract.RecallBody)
    check_text(body.query, "query", LONGEST_QUERY)
    seconds = MOST_SECONDS if body.deadline_ms is None else min(MOST_SECONDS, body.deadline_ms / 1000 * 0.95)
    deadline = Deadline.after(call.to.context.clock, min(seconds, call.deadline.remaining()))
    limit = min(body.limit, contract.MAX_RESULTS)
    recent = body.sort == "recent"
    found, dropped = await _found(
        call,
        body.namespace,
        body.query,
        min(max(5 * limit, 50), contract.MAX_RESULTS) if recent else limit,
        weights=None if body.sort is not None else body.scoring_weights,
        deadline=deadline,
    )
    if body.scoring_weights is not None:
        body.scoring_weights.check()
    if recent:
        found = sorted(found, key=lambda one: (-one.hit.created_at, one.hit.distance))
    if body.max_distance is not None:
        found = [one for one in found if one.hit.distance < body.max_distance]
    shown = [one.shown() for one in found[:limit]]
    answer: dict[str, Any] = {"results": shown, "total": len(shown)}
    return reply(answer | ({"dropped_count": dropped} if dropped else {}))


async def _found(
    call: CompatCall, namespace: str, query: str, limit: int, *, weights: Weights | None, deadline: Deadline
) -> tuple[list[ScoredHit], int]:
    """Return the nearest memories of a namespace, and the number of those that did not fit into the response."""
    if weights is not None:
        weights.check()
    access = call.caller.access(namespace)
    if not limit:
        return [], 0
    if not deadline.remaining():
        raise DeadlineExceeded("admit")
    request = RecallRequest(query=query[:_QUERY_CHARACTERS], limit=limit, floor=0.0, penalties=())
    answer = await search(call.to.context, access, request, deadline)
    make, now = call.to.tokens.make, call.to.context.clock.now_ms()
    ranks = weights is not None and weights.rank
    results = []
    for hit in answer.memories:
        score = None
        if weights is not None and ranks:
            score = weights.score(hit.distance, (now - hit.created_at) / _DAY_MS, hit.importance)
        blob = make(TokenKind.BLOB, access, ulid.parse(hit.id))
        results.append(ScoredHit(hit, blob, score))
    results.sort(key=lambda one: one.hit.distance if one.score is None else -one.score)
    return results, answer.left_out


async def ask(call: CompatCall) -> Reply:
    """Handle ``POST /api/ask``: answered by the relayer's model; without a model, relevant memories are quoted literally."""
    body = call.body(contract.AskBody)
    check_text(body.question, "question", LONGEST_QUERY)
    limit = min(body.limit, contract.MAX_RESULTS)
    found, _ = await _found(
        call, body.namespace, body.question, limit, weights=body.scoring_weights, deadline=call.deadline
    )
    relevant = [one for one in found if one.hit.distance <= _RELEVANT]
    answer = await _answered(call, body, relevant)
    memories = [one.shown() for one in relevant]
    return reply({"answer": answer, "memories_used": len(memories), "memories": memories})


async def _answered(call: CompatCall, body: contract.AskBody, relevant: Sequence[ScoredHit]) -> str:
    if not relevant:
        return "There is no memory about that."
    request = AskRequest(
        question=body.question[:_QUERY_CHARACTERS], limit=min(max(len(relevant), 1), MOST_SHOWN)
    )
    try:
        answer = await answer_by_model(
            call.to.context, call.caller.access(body.namespace), request, call.deadline
        )
    except Refused as error:
        if error.code != "no_model":
            raise
        lines = [f"- {one.hit.text}" for one in relevant[:_QUOTED]]
        return "\n".join(["This is remembered about it:", *lines])
    return answer.answer if answer.status == "answered" else "The memories do not answer that."


async def embed(call: CompatCall) -> Reply:
    """Handle ``POST /api/embed``: a vector of the relayer's own model."""
    body = call.body(contract.EmbedBody)
    check_text(body.text, "text", contract.MAX_ANALYZED)
    async with call.deadline.step("embed"):
        vectors = await call.to.context.embedder.embed([body.text])
    return reply({"vector": [float(number) for number in vectors[0]]})
