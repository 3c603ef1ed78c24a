"""Handlers of remember, bulk and analyze, of the status of their jobs, and of recall, ask and embed.

A write is durable and recallable before its 202 is sent. The id of a job is an encrypted reference to the stored record,
and its status is read from that record, so every relayer of the store knows the job and none can lose it. A job is
``uploaded`` as long as its text can be found by words only, because the embedder was unavailable.

Clients that recall get a ``distance``, which is 1 minus the calibrated relevance, so that a client that computes a threshold of
relevance from it gets what it expects. No result is left out for its distance: clients ask for a number of results and apply
their own threshold.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from relayer.access.accounts import Access
from relayer.domain.namespace import Custody
from relayer.errors import DeadlineExceeded, NamespaceClosed, Refused
from relayer.fronts.memwal import contract
from relayer.fronts.memwal.contract import CompatError, TokenKind, Weights, bad, check_text
from relayer.fronts.memwal.front import CompatCall, reply
from relayer.http.routes import Reply
from relayer.lib.work import Deadline
from relayer.log import creation
from relayer.namespaces.namespace import OpenNamespace
from relayer.use_cases.capture import analyze as capture
from relayer.use_cases.insight import ask as answer_by_model
from relayer.use_cases.recall import recall as search
from relayer.use_cases.remember import remember as store
from relayer.wire import codec as ulid
from relayer.wire.fields import DAY_MS, Role, SourceInfo, Status, render_time
from relayer.wire.schemas import (
    MOST_SHOWN,
    AnalyzeRequest,
    AskRequest,
    MemoryItem,
    RecallHit,
    RecallRequest,
    RememberRequest,
    TurnItem,
)

T = TypeVar("T")
WAIT_SECONDS = 2.0
# Maximum number of facts in the response of an analyze; facts beyond that are stored, too.
MOST_FACTS = 20
_POLL_SECONDS = 0.5
_LONGEST_KEY = 256
_MEGABYTE = 1024 * 1024
_RETRY_SECONDS = 0.1
# The OpenClaw plugin of MemWal sends a conversation as a numbered list: "1. ...", a blank line, "2. ...".
_NUMBERED = re.compile(r"(?:\A|\n\n)(\d{1,3})\. ")


async def remember(call: CompatCall) -> Reply:
    """Handle ``POST /api/remember``."""
    body = call.body(contract.RememberBody)
    check_text(body.text, "text", contract.MAX_REMEMBERED)
    [job] = await _stored(call, [(body.namespace, body.text)], body.idempotency_key)
    if not call.caller.legacy:
        return reply({"job_id": job.token, "status": "running"}, 202)
    return reply(
        {"id": job.token, "blob_id": job.blob, "owner": call.caller.shown, "namespace": body.namespace}
    )


async def bulk(call: CompatCall) -> Reply:
    """Handle ``POST /api/remember/bulk``: ``job_ids[i]`` belongs to ``items[i]``."""
    body = call.body(contract.BulkBody)
    if not 1 <= len(body.items) <= contract.MAX_BULK:
        raise bad(f"items must have 1..{contract.MAX_BULK} items")
    for place, item in enumerate(body.items):
        check_text(item.text, f"items.{place}.text", contract.MAX_REMEMBERED)
    jobs = await _stored(call, [(item.namespace, item.text) for item in body.items], body.idempotency_key)
    return reply({"job_ids": [job.token for job in jobs], "total": len(jobs), "status": "running"}, 202)


@dataclass(frozen=True, slots=True)
class _Job:
    """The ids of a stored record, as clients get them."""

    token: str
    blob: str


def _job(call: CompatCall, access: Access, record: bytes) -> _Job:
    make = call.to.tokens.make
    return _Job(make(TokenKind.JOB, access, record), make(TokenKind.BLOB, access, record))


async def _stored(
    call: CompatCall, items: Sequence[tuple[str, str]], idempotency_key: str | None
) -> list[_Job]:
    """Store texts, each in its namespace. A repeated idempotency key stores nothing and returns the same jobs."""
    key = idempotency_key
    if key is not None and not 1 <= len(key) <= _LONGEST_KEY:
        raise bad(f"idempotency_key must have 1..{_LONGEST_KEY} characters")
    accesses = {name: call.caller.access(name) for name, _ in items}
    known = call.to.jobs.get((call.caller.account, key), ()) if key else ()
    states = [await _state(call, token, wait=False) for token in known]
    if len(states) == len(items) and all(states):
        return [_Job(token, state["blob_id"]) for token, state in zip(known, states, strict=True) if state]
    jobs: dict[int, _Job] = {}
    for name, access in accesses.items():
        places = [place for place, (own, _) in enumerate(items) if own == name]
        texts = [items[place][1] for place in places]
        async with writing(call, access):
            ids = await _remembered(call, access, name, texts, key)
        jobs |= {place: _job(call, access, record) for place, record in zip(places, ids, strict=True)}
    found = [jobs[place] for place in range(len(items))]
    if key:
        call.to.jobs[call.caller.account, key] = tuple(job.token for job in found)
    return found


async def _remembered(
    call: CompatCall, access: Access, name: str, texts: Sequence[str], key: str | None
) -> list[bytes]:
    # The models are constructed without validation, because these texts were checked and may be longer than native ones. The
    # record holds the name that the client gave, because the name that the namespace is stored under may be a hash of it.
    source = SourceInfo.model_construct(host=name)
    items = tuple(MemoryItem.model_construct(text=text, source=source) for text in texts)
    while True:
        request = RememberRequest.model_construct(items=items, idempotency_key=key)
        work = partial(store, call.to.context, access, request, call.deadline)
        answer = await once_free(call.deadline, work)
        ids = [ulid.parse(one.id) for one in answer.memories]
        async with call.to.context.namespaces.use_if_exists(access, call.deadline) as opened:
            gone = next((one for one in ids if opened is None or not opened.is_live(one)), None)
        if gone is None or key is None:
            return ids
        # The memory stored under this key has been deleted since. The client stores it again, and derives its key from the
        # text, so it gets the same key and needs a new one here.
        key = f"{key[:_LONGEST_KEY]} after {ulid.render(gone)}"


async def once_free(deadline: Deadline, work: Callable[[], Awaitable[T]]) -> T:
    """Run a write, and retry it while its namespace is being erased, after which the name is free again.

    Raises:
        NamespaceClosed: the name is not free before the deadline.
    """
    while True:
        try:
            return await work()
        except NamespaceClosed:
            if deadline.remaining() < 1.0:
                raise
        await deadline.clock.sleep(_RETRY_SECONDS)


@asynccontextmanager
async def writing(call: CompatCall, access: Access) -> AsyncIterator[None]:
    """Turn the error of a full quota into the contract's 402."""
    try:
        yield
    except Refused as error:
        if error.code != "quota_exceeded":
            raise
        used, quota = await call.to.quotas.used(access.account), call.to.quotas.quota_of(access.account)
        message = str(error)
        if quota.bytes and "bytes" in message:
            used_mb, most_mb = used.bytes / _MEGABYTE, quota.bytes / _MEGABYTE
            message = f"Storage quota exceeded: {used_mb:.1f} MB used of {most_mb:.1f} MB allowed"
        raise CompatError(402, message, rule="quota_exceeded") from error


async def job_status(call: CompatCall) -> Reply:
    """Handle ``GET /api/remember/{job_id}``: waits for at most two seconds until the job is done."""
    found = await _state(call, call.parameter, wait=True)
    if found is None:
        raise CompatError(404, f"Job {call.parameter} not found", rule="no job")
    return reply({"job_id": call.parameter, **found})


async def bulk_status(call: CompatCall) -> Reply:
    """Handle ``POST /api/remember/bulk/status``: results are in the order of the request."""
    body = call.body(contract.BulkStatusBody)
    if not 1 <= len(body.job_ids) <= contract.MAX_BULK:
        raise bad(f"job_ids must have 1..{contract.MAX_BULK} ids")
    patience = Deadline.after(call.to.context.clock, min(WAIT_SECONDS, call.deadline.remaining()))
    results: list[dict[str, Any]] = []
    for job_id in body.job_ids:
        found = await _state(call, job_id, wait=patience.remaining() > 0, patience=patience)
        if found is None:
            results.append({"job_id": job_id, "status": "not_found"})
            continue
        found = {name: value for name, value in found.items() if name in {"status", "blob_id", "error"}}
        results.append({"job_id": job_id, **found})
    return reply({"results": results})


async def _state(
    call: CompatCall, job_id: str, *, wait: bool, patience: Deadline | None = None
) -> dict[str, Any] | None:
    """Return the status of a job; None if it is unknown or belongs to another account, which clients cannot tell apart."""
    found = await located(call, TokenKind.JOB, job_id)
    if found is None:
        return None
    access, record = found
    context = call.to.context
    patience = patience or Deadline.after(context.clock, min(WAIT_SECONDS, call.deadline.remaining()))
    async with context.namespaces.use_if_exists(access, call.deadline) as opened:
        if opened is None:
            return None
        await opened.refresh(call.deadline)
        done = _is_done(opened, record)
        if not done and wait:
            with context.polls.place(access.account) as place:
                while not done and patience.remaining() > 0 and not place.lost:
                    await opened.changed(min(_POLL_SECONDS, patience.remaining()))
                    await opened.refresh(call.deadline)
                    done = _is_done(opened, record)
        one = opened.memory(record) or opened.turn(record)
        if one is None:
            return None
        state: dict[str, Any] = {
            "status": "done" if done else "uploaded",
            "owner": call.caller.shown,
            "namespace": one.record.source.host,
            "blob_id": call.to.tokens.make(TokenKind.BLOB, access, record),
        }
        if not done:
            state["error"] = "waiting for an embedding: found by its words until then"
        return state


def _is_done(opened: OpenNamespace, record: bytes) -> bool:
    """Return whether a record has a vector, so that it is found by its meaning too. One that no longer exists counts as done."""
    memory = opened.memory(record)
    return memory is None or memory.state.status is not Status.LIVE or memory.searchable


async def located(call: CompatCall, what: TokenKind, token: str) -> tuple[Access, bytes] | None:
    """Return the record of a token, with access to it; None if it is not this caller's, if possible without reading the store."""
    place = call.to.tokens.read(what, token)
    if place is None or place.account != call.caller.account:
        return None
    async with call.deadline.step("open"):
        pointer = await creation.find_tagged(call.to.context.ports, place.account, place.tag)
    if pointer is None or pointer.custody is not Custody.RELAYER or not contract.is_ours(pointer.name):
        return None
    return call.caller.inner_access(pointer.name), place.record


async def analyze(call: CompatCall) -> Reply:
    """Handle ``POST /api/analyze``: facts are extracted and stored before the response; each is a job that is done."""
    body = call.body(contract.AnalyzeBody)
    check_text(body.text, "text", contract.MAX_ANALYZED)
    access = call.caller.access(body.namespace)
    turns = tuple(
        TurnItem.model_construct(role=Role.USER, text=text, occurred_at=body.occurred_at)
        for text in _parts(body.text)
    )
    request = AnalyzeRequest.model_construct(turns=turns, host=body.namespace, wait_ms=30_000)
    async with writing(call, access):
        work = partial(capture, call.to.context, access, request, call.deadline)
        answer = await once_free(call.deadline, work)
    kept = [one.id for one in answer.memories if one.status != "refused"]
    # If a model extracted facts, those are the facts; the memories they were extracted from are stored as well.
    facts = await _facts(call, access, (list(answer.facts) or kept)[:MOST_FACTS])
    caller = call.caller
    call.to.acceptance.points.spend(caller.principal.author.hex(), caller.account, float(len(facts)))
    if caller.legacy:
        shown = [{"text": text, "id": job.token, "blob_id": job.blob} for text, job in facts]
        return reply({"facts": shown, "total": len(shown), "owner": caller.shown})
    jobs = [job.token for _, job in facts]
    return reply(
        {
            "job_ids": jobs,
            "facts": [{"text": text, "id": job.token, "job_id": job.token} for text, job in facts],
            "fact_count": len(facts),
            "status": "pending",
            "owner": caller.shown,
        },
        202,
    )


def _parts(text: str) -> list[str]:
    """Return the items of a numbered list, or the text as a single item."""
    marks = list(_NUMBERED.finditer(text))
    if [mark[1] for mark in marks] != [str(number) for number in range(1, len(marks) + 1)] or not marks:
        return [text]
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    return [text[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)]


async def _facts(call: CompatCall, access: Access, ids: Sequence[str]) -> list[tuple[str, _Job]]:
    if not ids:
        return []
    async with call.to.context.namespaces.use_if_exists(access, call.deadline) as opened:
        if opened is None:
            return []
        await opened.refresh(call.deadline)
        found = [opened.memory(ulid.parse(one)) for one in dict.fromkeys(ids)]
        await asyncio.sleep(0)
        return [(one.record.text, _job(call, access, one.record.id)) for one in found if one is not None]


MOST_SECONDS = 13.5
LONGEST_QUERY = 64 * 1024
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
            score = weights.score(hit.distance, (now - hit.created_at) / DAY_MS, hit.importance)
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
