"""Handlers that list, count and delete the namespaces and memories of an account. Deletion is an erasure.

Only namespaces that were created through this front are listed, counted or deleted. Pages show what existed at the request of
the first page; the last cursor is where a later listing continues.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from relayer.access.accounts import Access
from relayer.domain.namespace import Custody, PointerState
from relayer.errors import CorruptNamespace, NamespaceClosed, Refused
from relayer.fronts.memwal import contract
from relayer.fronts.memwal.contract import CompatError, TokenKind, bad
from relayer.fronts.memwal.front import CompatCall, reply
from relayer.fronts.memwal.memories import located, once_free
from relayer.http.routes import Reply
from relayer.log import creation
from relayer.log.erasure import ErasureReports
from relayer.namespaces.namespace import OpenNamespace
from relayer.use_cases.erase import erase_memory, erase_namespace
from relayer.use_cases.memories import list_memories
from relayer.wire import codec as base64url
from relayer.wire import codec as ulid
from relayer.wire.codec import Malformed
from relayer.wire.fields import parse_time, render_time
from relayer.wire.schemas import EraseNamespaceRequest

SNAPSHOT_VERSION = 2
_USUAL_PAGE = 100
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Kept:
    """A live record: its id, when it was stored and last changed (ms since the epoch), and its size in bytes."""

    record: bytes
    created_at: int
    updated_at: int
    size: int


@dataclass(frozen=True, slots=True)
class _Namespace:
    """A namespace with a live record; ``name`` is the one its client gave it, ``updated_at`` is in ms since the epoch."""

    id: str
    name: str
    access: Access
    kept: Sequence[_Kept]
    updated_at: int


async def _namespaces(call: CompatCall) -> list[_Namespace]:
    """Return the account's namespaces that have a live record."""
    context, account = call.to.context, call.caller.account
    async with call.deadline.step("list"):
        pointers = await creation.list_pointers(context.ports, account)
    found = []
    for pointer in pointers:
        live = pointer.state is PointerState.LIVE and pointer.custody is Custody.RELAYER
        if not live or not contract.is_ours(pointer.name):
            continue
        access = call.caller.inner_access(pointer.name)
        # One that was erased in the meantime is left out, and a corrupt one, which an operator has to repair.
        with suppress(CorruptNamespace, NamespaceClosed):
            async with context.namespaces.use_if_exists(access, call.deadline) as opened:
                if opened is None:
                    continue
                await opened.refresh(call.deadline)
                if kept := _kept(opened, context.clock.now_ms()):
                    first = opened.memory(kept[0].record) or opened.turn(kept[0].record)
                    name = first.record.source.host if first is not None else ""
                    incarnation = ulid.render(pointer.incarnation)
                    found.append(_Namespace(incarnation, name, access, kept, opened.last_time))
    return found


def _kept(opened: OpenNamespace, now: int) -> list[_Kept]:
    return [
        _Kept(one.record, one.created_at, max(one.changed_at, one.created_at), one.size)
        for one in opened.states()
        if one.live_at(now)
    ]


async def list_namespaces(call: CompatCall) -> Reply:
    """Handle ``GET /v1/owners/{owner}/namespaces``."""
    _check_owner(call)
    rows = await _namespaces(call)
    page, rest = _page(call, rows, "namespace", lambda one: one.updated_at, lambda one: one.name)
    shown = [
        {
            "id": one.id,
            "name": one.name,
            "memory_count": len(one.kept),
            "storage_used": sum(each.size for each in one.kept),
            "updated_at": render_time(one.updated_at),
        }
        for one in page
    ]
    return reply({"namespaces": shown} | rest)


async def list_owned(call: CompatCall) -> Reply:
    """Handle ``GET /v1/owners/{owner}/memories``: the memories, without their texts."""
    _check_owner(call)
    make = call.to.tokens.make
    rows = [
        (one, each, make(TokenKind.BLOB, one.access, each.record))
        for one in await _namespaces(call)
        for each in one.kept
    ]
    page, rest = _page(call, rows, "id", lambda row: row[1].updated_at, lambda row: row[1].record.hex())
    shown = [
        {
            "memory_id": token,
            "namespace_id": one.id,
            "blob_id": token,
            "created_at": render_time(each.created_at),
            "size": each.size,
            "status": "active",
        }
        for one, each, token in page
    ]
    return reply({"memories": shown} | rest)


async def list_agents(call: CompatCall) -> Reply:
    """Handle ``GET /v1/owners/{owner}/agents``: the keys that may sign for the account."""
    _check_owner(call)
    registered = await call.to.accounts.registration(call.caller.account)
    keys = (
        [(call.caller.principal.author, "")]
        if registered is None
        else [(k.key, k.label) for k in registered.keys]
    )
    agents = [{"label": label, "sui_address": contract.address_of(key)} for key, label in keys]
    return reply({"agents": agents, "snapshot_version": SNAPSHOT_VERSION})


def _check_owner(call: CompatCall) -> None:
    if call.parameter.lower() != call.caller.shown:
        raise CompatError(403, "owner mismatch", rule="owner")


def _page(
    call: CompatCall, rows: Iterable[T], key: str, time_of: Callable[[T], int], name_of: Callable[[T], str]
) -> tuple[list[T], dict[str, Any]]:
    """Return the rows after the request's cursor, by time and name, and the fields of the response for the next page."""
    after, name, pinned = _cursor(call.query.get("updated_after"), key)
    text = call.query.get("limit")
    if text is not None and not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise bad("limit must be a whole number in 1..500")
    limit = _USUAL_PAGE if text is None else min(max(int(text), 1), contract.MAX_PAGE)
    until = call.to.context.clock.now_ms() if pinned is None else pinned
    ordered = sorted(rows, key=lambda row: (time_of(row), name_of(row)))
    due = [row for row in ordered if (time_of(row), name_of(row)) > (after, name) and time_of(row) <= until]
    page, more = due[:limit], len(due) > limit
    at = (time_of(page[-1]), name_of(page[-1])) if page else (after, name)
    mark = {"updated_at": render_time(at[0]), key: at[1], "snapshot_at": render_time(until) if more else None}
    cursor = base64url.encode(json.dumps(mark, separators=(",", ":")).encode())
    # Without rows and without a cursor in the request, there is no position to continue from.
    known = bool(page) or "updated_after" in call.query
    rest = {"next_cursor": cursor if known else None, "has_more": more, "snapshot_version": SNAPSHOT_VERSION}
    return page, rest


def _cursor(text: str | None, key: str) -> tuple[int, str, int | None]:
    if text is None:
        return -1, "", None
    try:
        mark = json.loads(base64url.decode(text))
        pinned = mark["snapshot_at"]
        name = mark[key]
        if not isinstance(name, str):
            raise bad("invalid cursor")
        return parse_time(mark["updated_at"]), name, None if pinned is None else parse_time(pinned)
    except (Malformed, ValueError, KeyError, TypeError) as error:
        raise bad("invalid cursor") from error


async def stats(call: CompatCall) -> Reply:
    """Handle ``POST /api/stats``."""
    body = call.body(contract.NamespaceBody)
    kept = await _live_in(call, call.caller.access(body.namespace))
    counts = {"memory_count": len(kept), "storage_bytes": sum(one.size for one in kept)}
    return reply(counts | {"namespace": body.namespace, "owner": call.caller.shown})


async def _live_in(call: CompatCall, access: Access) -> list[_Kept]:
    try:
        async with call.to.context.namespaces.use_if_exists(access, call.deadline) as opened:
            if opened is None:
                return []
            await opened.refresh(call.deadline)
            return _kept(opened, call.to.context.clock.now_ms())
    except NamespaceClosed:
        return []


async def restore(call: CompatCall) -> Reply:
    """Handle ``POST /api/restore``: indexes are built from the log when a namespace is opened, so nothing is ever missing.

    Memories without a vector, because the embedder was unavailable, get one later by themselves. Until then they do not count
    as skipped, and the response is marked as truncated.
    """
    body = call.body(contract.RestoreBody)
    access = call.caller.access(body.namespace)
    total = lacking = 0
    async with call.to.context.namespaces.use_if_exists(access, call.deadline) as opened:
        if opened is not None:
            await opened.refresh(call.deadline)
            kept = _kept(opened, call.to.context.clock.now_ms())
            total = len(kept)
            memories = (opened.memory(one.record) for one in kept)
            lacking = sum(one is not None and not one.searchable for one in memories)
    counts = {
        "restored": 0,
        "skipped": total - lacking,
        "total": total,
        "failed": 0,
        "truncated": lacking > 0,
    }
    return reply(counts | {"namespace": body.namespace, "owner": call.caller.shown})


async def forget(call: CompatCall) -> Reply:
    """Handle ``POST /api/forget`` and ``/api/clear-namespace``: erase the namespace, after which its name is free."""
    body = call.body(contract.NamespaceBody)
    access, context = call.caller.access(body.namespace), call.to.context
    # The claim below is stored for the account, which counts as an account from then on.
    if await call.to.accounts.make(access.account, access.principal.peer):
        call.to.quotas.begin(access.account)
    # A replay at another process, which has not seen the nonce, must not erase what was stored in the meantime.
    request = hashlib.sha256(access.principal.author + access.principal.nonce).digest()[:16]
    async with call.deadline.step("report"):
        is_new = await ErasureReports(context.ports).claim(access.account, access.namespace, request)
    if not is_new:
        raise CompatError(401, rule="replayed", steady=True)
    deleted = len(await _live_in(call, access))
    await _erased(call, access)
    return reply({"deleted": deleted, "namespace": body.namespace, "owner": call.caller.shown})


async def _erased(call: CompatCall, access: Access) -> None:
    context = call.to.context
    try:
        asked = await erase_namespace(context, access, EraseNamespaceRequest(), call.deadline)
        request = EraseNamespaceRequest(dry_run=False, confirm=asked.confirm)
        await erase_namespace(context, access, request, call.deadline)
    except Refused as error:
        # The namespace does not exist, or another request erased it between these two calls.
        if error.code not in {"not_found", "wrong_confirmation"}:
            raise


async def list_texts(call: CompatCall) -> Reply:
    """Handle ``POST /api/list``: memories of a namespace with their texts, newest first."""
    body = call.body(contract.ListBody)
    access = call.caller.access(body.namespace)
    limit = min(max(body.limit, 1), contract.MAX_RESULTS)
    page = await list_memories(
        call.to.context, access, limit=limit, cursor=body.cursor, kinds=(), states=(), deadline=call.deadline
    )
    make = call.to.tokens.make
    shown = [
        {
            "blob_id": make(TokenKind.BLOB, access, ulid.parse(one.id)),
            "text": one.text,
            "created_at": render_time(one.created_at),
        }
        for one in page.memories
    ]
    rest = {"next_cursor": page.next_cursor, "namespace": body.namespace, "owner": call.caller.shown}
    return reply({"memories": shown, "total": page.total} | rest)


async def forget_memories(call: CompatCall) -> Reply:
    """Handle ``POST /api/memories/forget``: erase memories, with every copy of the same text in their namespace."""
    body = call.body(contract.ForgetBody)
    if not body.wanted:
        raise bad("blob_id or blob_ids must name at least one memory")
    deleted = 0
    for place, token in enumerate(dict.fromkeys(body.wanted)):
        found = await located(call, TokenKind.BLOB, token)
        if found is None:
            continue
        access, record = found
        deleted += await once_free(call.deadline, partial(_erase_one, call, access, record, place))
    return reply({"deleted": deleted, "owner": call.caller.shown})


async def _erase_one(call: CompatCall, access: Access, record: bytes, place: int) -> bool:
    """Erase a record; returns whether it existed."""
    context = call.to.context
    async with context.namespaces.use_if_exists(access, call.deadline) as opened:
        if opened is None:
            return False
        await opened.refresh(call.deadline)
        if opened.state(record) is None:
            return False
    # One request may erase several records, and the log identifies each operation by a nonce.
    await erase_memory(context, call.caller.numbered(access, place), ulid.render(record), call.deadline)
    return True
