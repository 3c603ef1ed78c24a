"""The lifecycle of memories: supersede them with a new version, restore them, and delete many by a filter.

A memory is never changed in place. Pinning it or setting its expiry also stores a new version, so that the history says who
did what and `restore` can undo it. `delete` forgets or erases all memories that match a filter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from relayer.access.accounts import Access
from relayer.domain.operations import Forget, Model, OperationResult, Outcome, RecordState, Refusal, Restore
from relayer.errors import Refused
from relayer.extraction.wishes import wish_in
from relayer.lib.work import Deadline
from relayer.log.erasure import ErasureReports
from relayer.namespaces.context import (
    Context,
    evaluated,
    idempotency_conflict,
    look_up,
    no_such_memory,
    nonce_reused,
)
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.records import OpenedMemory
from relayer.use_cases.erase import erase_records, report_erasure
from relayer.wire import codec as ulid
from relayer.wire import schemas
from relayer.wire.fields import Status, Trust
from relayer.wire.labels import encode_metadata
from relayer.wire.schemas import ErasureView
from relayer.writing.drafts import Draft, append_drafts, next_version, parse_vector, without_secrets_in
from relayer.writing.present import position

_TIMES = ("occurred_at", "valid_from", "valid_to")
# Fields of the request that a draft does not have, or that are converted before they are stored.
_READ_APART = (
    "kind", "audience", "trust", "vector", "ttl_seconds", "namespace", "idempotency_key", "place", "sender",
)  # fmt: skip


async def supersede(
    ctx: Context, access: Access, memory_id: str, request: schemas.SupersedeRequest, deadline: Deadline
) -> schemas.SupersedeResponse:
    """Store a new version of a live memory.

    Raises:
        Refused: ``not_found``, ``stale_head`` (it is not the live version), ``bad_vector`` or
            ``idempotency_conflict``.
    """
    if request.text is not None:
        text = await without_secrets_in(ctx, access.account, request.text)
        request = request.model_copy(update={"text": text})
    async with look_up(ctx, access, memory_id, deadline) as (opened, wanted):
        memory = opened.memory(wanted)
        if memory is None:
            raise no_such_memory()
        draft = _next_version(ctx, access, memory, request)
        written = await append_drafts(
            ctx, opened, access, [draft], idempotency_key=request.idempotency_key, deadline=deadline
        )
        return schemas.SupersedeResponse(
            id=ulid.render(_stored(opened, written.outcomes[0], wanted)),
            supersedes=memory_id,
            position=position(opened.position),
            degraded=written.degraded,
            job_id=written.job_id,
        )


def _next_version(
    ctx: Context, access: Access, memory: OpenedMemory, request: schemas.SupersedeRequest
) -> Draft:
    old, given = memory.record, request.model_fields_set
    changed: dict[str, object] = {
        name: value
        for name, value in request
        if (name in given if name in _TIMES else value is not None and name not in _READ_APART)
    }
    if request.ttl_seconds is not None:
        ttl = request.ttl_seconds
        changed["expires_at"] = ctx.clock.now_ms() + ttl * 1000 if ttl else None
    # A new text was not extracted from the source of the old one, so it keeps neither the sources nor the span nor the extractor.
    rewritten = request.text is not None and request.text != old.text
    source = msgspec.structs.replace(
        old.source,
        place=old.source.place if request.place is None else request.place,
        sender=old.source.sender if request.sender is None else request.sender,
    )
    if rewritten:
        agent = access.principal.certificate.agent
        source = msgspec.structs.replace(source, agent=agent, span=None)
        changed["extractor"] = Model()
        changed["essential"] = ""
        by_user = (request.trust or old.trust) == Trust.USER
        changed["unmentioned"] = wish_in(request.text or "") if by_user else ()
    changed["source"] = source
    if request.metadata is not None:
        changed["metadata"] = encode_metadata(request.metadata)
    changed["left_out"] = () if rewritten else memory.replaced
    changed["kind"] = request.kind or old.kind
    changed["audience"] = request.audience or old.audience
    changed["trust"] = request.trust or old.trust
    return Draft(
        next_version(old, access, request.idempotency_key, **changed),
        parse_vector(request.vector, ctx.embedder.model) if request.vector is not None else None,
        sources=() if rewritten else memory.state.sources,
        replaces=old.id,
    )


def _stored(opened: OpenNamespace, outcome: Outcome, wanted: bytes) -> bytes:
    """Return the id of the version that this request stored, now or when it was sent the first time.

    Raises:
        Refused: the log did not take the version, or ``nonce_reused``.
    """
    if outcome.refusal is Refusal.IDEMPOTENCY_CONFLICT:
        raise idempotency_conflict()
    if outcome.refusal is Refusal.UNKNOWN_RECORD:
        raise no_such_memory()
    if outcome.refusal is Refusal.STALE_HEAD:
        state = opened.state(wanted)
        if state is not None and state.superseded_by:
            why = "this memory has a newer version: change that one, see superseded_by"
        else:
            why = "this memory is forgotten: restore it first"
        raise Refused(outcome.refusal, why)
    if outcome.refusal is not None:
        raise Refused(
            outcome.refusal, "the namespace does not take this version: read the memory and try again"
        )
    made = opened.state(outcome.subject)
    if outcome.result is not OperationResult.SUPERSEDED or (made is not None and made.supersedes != wanted):
        raise nonce_reused()
    return outcome.subject


async def restore(
    ctx: Context, access: Access, memory_id: str, deadline: Deadline
) -> schemas.RestoreResponse:
    """Restore a forgotten memory, an old version or what another memory replaced; if all of it is live, the response is the same.

    A restored old version replaces the live version, which becomes an old version. A memory that another one replaced comes
    back next to that one. A live memory that lost a statement gets a version with the whole text. Raises `Refused`:
    ``not_found``, or ``stale_head``: an old version whose newest version is forgotten, or changed meanwhile.
    """
    async with look_up(ctx, access, memory_id, deadline) as (opened, wanted):
        known, memory = opened.state(wanted), opened.memory(wanted)
        if known is None:
            raise no_such_memory()
        if memory is not None and memory.is_live and memory.replaced:
            draft = Draft(
                next_version(memory.record, access, None, left_out=()),
                sources=memory.state.sources,
                replaces=wanted,
            )
            written = await append_drafts(
                ctx, opened, access, [draft], idempotency_key=None, deadline=deadline
            )
            return schemas.RestoreResponse(
                id=ulid.render(_stored(opened, written.outcomes[0], wanted)),
                state="live",
                replaced=memory_id,
                position=position(opened.position),
            )
        # A memory that is live already is restored too, so that the log knows this request if it is repeated after a forget.
        replaced = await _bring_back(opened, access, known, deadline)
        return schemas.RestoreResponse(
            id=memory_id,
            state="live",
            replaced=ulid.render(replaced) if replaced else None,
            position=position(opened.position),
        )


async def _bring_back(opened: OpenNamespace, access: Access, known: RecordState, deadline: Deadline) -> bytes:
    """Restore a memory, and return the id of the version that it replaced; empty if it replaced none."""
    wanted = known.record
    head = _head_of(opened, known) if known.status is Status.SUPERSEDED else b""
    (outcome,) = await opened.append([Restore(access.origin(), wanted, head)], deadline)
    if outcome.refusal is None:
        if outcome.result is not OperationResult.RESTORED or outcome.subject != wanted:
            raise nonce_reused()
        return head
    now = opened.state(wanted)
    if now is None:
        raise no_such_memory()
    # Another gateway, or an earlier attempt of this one, may have restored it after it was read and before the append.
    if now.status is Status.LIVE:
        return b""
    if outcome.refusal is Refusal.STALE_HEAD:
        if head and not opened.is_live(head):
            raise Refused(
                "stale_head", "the newest version of this memory is forgotten: restore that one first"
            )
        raise Refused(outcome.refusal, "this memory changed meanwhile: look at its history and try again")
    raise Refused(outcome.refusal, "the namespace does not take this: sign again and retry")


def _head_of(opened: OpenNamespace, old: RecordState) -> bytes:
    """Return the newest of the versions that replaced an old one, directly or in turn. The log checks that it is live.

    It is empty if another memory replaced the old one.
    """
    successor = opened.record(old.superseded_by)
    if successor is not None and any(replaced == old.record for replaced, *_ in successor.replaces):
        return b""
    seen = {old.record}
    newer = old
    while (found := opened.state(newer.superseded_by)) is not None and found.record not in seen:
        seen.add(found.record)
        newer = found
    return newer.record


# Maximum number of ids in the response.
_SHOWN = 100


async def delete(
    ctx: Context, access: Access, request: schemas.DeleteRequest, deadline: Deadline
) -> schemas.DeleteResponse:
    """Forget the live memories that match the request's filter, or erase all that match, newest first.

    At most `schemas.MAX_DELETED` are forgotten or erased. The filter is evaluated once: if the same signed request is repeated,
    at any relayer, the response says what it did the first time. A namespace that does not exist is not created; the log,
    which records other deletions, is missing then, so the request is claimed in the store for a day. Raises `Refused`:
    ``nonce_reused``.
    """
    reports = ErasureReports(ctx.ports)
    claim = hashlib.sha256(access.principal.author + access.principal.nonce).digest()[:16]
    nothing = schemas.DeleteResponse(matched=0, forgotten=0, remaining=0, dry_run=request.dry_run)
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            if not request.dry_run:
                await ctx.namespaces.make_account(access)
                async with deadline.step("report"):
                    await reports.claim(access.account, access.namespace, claim)
            return nothing
        await opened.refresh(deadline)
        if request.dry_run:
            return _answer(opened, request, _passing(opened, request), taken=[])
        before = opened.seen_before(access)
        if before:
            return await _again(ctx, opened, request, before, deadline)
        async with deadline.step("report"):
            if await reports.find(access.account, claim) is not None:
                return nothing
        passing = _passing(opened, request)
        taken = [state.record for state in passing[: schemas.MAX_DELETED]]
        if taken and request.mode == "erase":
            erasure = await erase_records(ctx, opened, access, taken, deadline)
            return _answer(opened, request, passing[len(taken) :], taken, erasure)
        # A load balancer may send one request to two relayers, which find different memories. The operation index comes from the
        # memory's id, so that no operation is mistaken for that of another memory.
        forgets = [Forget(access.origin(int.from_bytes(record[-7:])), record) for record in taken]
        outcomes = (await opened.append([evaluated(access), *forgets], deadline))[1:]
        done = sum(
            outcome.result is OperationResult.FORGOTTEN and outcome.subject == record
            for outcome, record in zip(outcomes, taken, strict=True)
        )
        answer = _answer(opened, request, passing[len(taken) :], taken)
        left = answer.remaining + len(taken) - done
        return answer.model_copy(update={"forgotten": done, "remaining": left})


def _passing(
    opened: OpenNamespace, request: schemas.DeleteRequest, before: int | None = None
) -> list[RecordState]:
    """Return what matches the filter now: memories, newest first, then stored turns if they are to be erased too.

    With ``before``, only records from before this entry of the log.
    """
    erases = request.mode == "erase"
    passing = [memory.state for memory in opened.memories(request) if erases or memory.is_live][::-1]
    if erases:
        passing += [turn.state for turn in opened.select_turns(request)]
    return passing if before is None else [state for state in passing if state.seq < before]


async def _again(
    ctx: Context,
    opened: OpenNamespace,
    request: schemas.DeleteRequest,
    before: dict[int, Outcome],
    deadline: Deadline,
) -> schemas.DeleteResponse:
    """Respond to a repeated request with what it did the first time; what matched then and still does is ``remaining``."""
    first = before.get(0)
    if first is None or (first.refusal is None and first.result is not OperationResult.ERASED):
        raise nonce_reused()
    left = _passing(opened, request, first.seq)
    known = opened.erasure(first.subject) if first.result is OperationResult.ERASED else None
    if known is not None:
        erasure = await report_erasure(ctx, opened, known, deadline)
        return _answer(opened, request, left, known.records, erasure)
    forgotten = [
        outcome.subject for outcome in before.values() if outcome.result is OperationResult.FORGOTTEN
    ]
    return _answer(opened, request, left, forgotten)


def _answer(
    opened: OpenNamespace,
    request: schemas.DeleteRequest,
    left: Sequence[RecordState],
    taken: Sequence[bytes],
    erasure: ErasureView | None = None,
) -> schemas.DeleteResponse:
    shown = [state.record for state in left[: schemas.MAX_DELETED]] if request.dry_run else taken
    return schemas.DeleteResponse(
        matched=len(left) + len(taken),
        forgotten=0 if erasure is not None else len(taken),
        remaining=len(left),
        dry_run=request.dry_run,
        ids=tuple(map(ulid.render, shown[:_SHOWN])),
        position=position(opened.position),
        erased=0 if erasure is None else len(erasure.memories) + len(erasure.derived),
        erasure=erasure,
    )
