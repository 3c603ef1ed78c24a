"""The use cases by which a person manages memories: list, get, forget, export, and follow what changes.

`list_memories` pages through them in the order of the log, and `get_memory` returns one with the history of its versions.
`forget_memory` hides a memory from recall; it can be restored. `export` streams memories and stored turns as lines of JSON.

`changes` returns a page of the changes of memories after a cursor in the log, and waits for the first one if asked to. `ChangeStreams` opens `EventStream`s, limits how many
are open, and ends them after a while or when the client loses access. A change that another relayer wrote is found by reading the
log at intervals.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pydantic import BaseModel

from relayer.access.accounts import Access
from relayer.domain.operations import Forget, OperationResult
from relayer.errors import Refused, RelayerError
from relayer.lib.work import Deadline, FairSemaphore, OpenRequestSlot
from relayer.namespaces.context import Context, look_up, no_such_memory, nonce_reused, parse_id
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.projection import Change
from relayer.namespaces.records import OpenedMemory
from relayer.use_cases.transcripts import may_be_read, shown
from relayer.wire import codec as ulid
from relayer.wire import schemas
from relayer.wire.fields import Status
from relayer.wire.schemas import ChangesResponse, ChangeView
from relayer.wire.service import ExportEnd, ExportHead, ExportLine, ExportRequest, ExportTurn, KeptTurn
from relayer.writing.present import page_of, position, show


async def list_memories(
    ctx: Context,
    access: Access,
    *,
    limit: int,
    cursor: str | None,
    kinds: Sequence[str],
    states: Sequence[str],
    audiences: Sequence[str] = (),
    where: Mapping[str, Any] | None = None,
    deadline: Deadline,
) -> schemas.ListResponse:
    """List memories, newest first; ``cursor`` is the ``next_cursor`` of the page before, ``where`` a filter.

    Raises:
        Refused: ``bad_cursor``.
    """
    bad = Refused("bad_cursor", "cursor must be the next_cursor of an earlier page")
    mark = None if cursor is None else parse_id(cursor, bad)
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return schemas.ListResponse(memories=(), total=0)
        await opened.refresh(deadline)
        passing = await opened.passing(where)
        now = ctx.clock.now_ms()
        # Sorted by the log and not by id, because ids of the same millisecond have no order.
        newest_first = opened.states(newest_first=True)
        wanted = [
            one.record
            for one in newest_first
            if one.status in (states or (Status.LIVE,))
            and (one.expires_at is None or one.expires_at > now)
            and opened.is_memory(one.record, kinds)
        ]
        heard = opened.view.table.allowed(audiences=audiences, suspect=True, now=now) if audiences else None
        for keys in (passing, heard):
            if keys is not None:
                wanted = [record for record in wanted if opened.key_of(record) in keys]
        rest = wanted
        if mark is not None:
            # The cursor's memory need not be in ``wanted`` any more.
            order = {record: number for number, record in enumerate(opened.ids())}
            if mark not in order:
                raise Refused("bad_cursor", "the memory that this cursor points to is gone: start over")
            rest = wanted[sum(order[record] >= order[mark] for record in wanted) :]
        page = page_of(_show(opened, record) for record in rest[:limit])
        return schemas.ListResponse(
            memories=page, next_cursor=page[-1].id if len(rest) > len(page) else None, total=len(wanted)
        )


async def get_memory(
    ctx: Context, access: Access, memory_id: str, deadline: Deadline
) -> schemas.MemoryResponse:
    """Return one memory with all of its versions, oldest first; only the newest ones if all do not fit one response.

    Raises:
        Refused: ``not_found``, also for an invalid id.
    """
    async with look_up(ctx, access, memory_id, deadline) as (opened, wanted):
        if not opened.is_memory(wanted):
            raise no_such_memory()
        chain = _history(opened, wanted)
        newest = page_of(_show(opened, item) for item in reversed(chain))
        return schemas.MemoryResponse(
            memory=_show(opened, wanted), history=newest[::-1], omitted=len(chain) - len(newest)
        )


async def forget_memory(
    ctx: Context, access: Access, memory_id: str, deadline: Deadline
) -> schemas.ForgetResponse:
    """Hide a memory from recall. Forgetting it again returns the same response.

    Raises:
        Refused: ``not_found`` or ``stale_head`` (a newer version exists).
    """
    async with look_up(ctx, access, memory_id, deadline) as (opened, wanted):
        if opened.state(wanted) is None:
            raise no_such_memory()
        # A memory that is forgotten already is hidden too, so that the log knows this request if it is repeated after a restore.
        (outcome,) = await opened.append([Forget(access.origin(), wanted)], deadline)
        if outcome.refusal is not None:
            now = opened.state(wanted)
            if now is None:
                raise no_such_memory()
            # Another gateway, or an earlier attempt of this one, may have forgotten it after it was read and before the append.
            if now.status is not Status.FORGOTTEN:
                raise Refused(outcome.refusal, "this memory has a newer version: forget that one")
        elif outcome.result is not OperationResult.FORGOTTEN or outcome.subject != wanted:
            raise nonce_reused()
        return schemas.ForgetResponse(id=memory_id, state="forgotten", position=position(opened.position))


def _history(opened: OpenNamespace, record: bytes) -> list[bytes]:
    """Return all versions that are linked to this one, directly or in turn, oldest first.

    Links are followed in both directions, because restoring an old version reverses one.
    """
    linked: dict[bytes, list[bytes]] = defaultdict(list)
    for item in opened.states():
        for other in filter(None, (item.supersedes, item.superseded_by)):
            linked[item.record].append(other)
            linked[other].append(item.record)
    found, waiting = {record}, [record]
    while waiting:
        new = set(linked[waiting.pop()]) - found
        found |= new
        waiting.extend(new)
    known = (opened.state(one) for one in found)
    chain = sorted((item for item in known if item is not None), key=lambda item: (item.seq, item.created_at))
    return [item.record for item in chain if opened.is_memory(item.record)]


def _show(opened: OpenNamespace, record: bytes) -> schemas.Memory:
    memory = opened.memory(record)
    if memory is None:
        raise no_such_memory()
    return show(memory, opened.ended_at(memory))


# Lines of JSON are encoded while they are sent, in chunks of at least this size.
_CHUNK_BYTES = 64 * 1024


async def export(
    ctx: Context, access: Access, request: ExportRequest, deadline: Deadline
) -> AsyncIterator[bytes]:
    """Select what is exported, and return an iterator of its lines: a head, the memories, oldest first, turns, and an end.

    Memories that are stored later are not exported, and those that are erased meanwhile are left out. Raises `RelayerError`:
    as `relayer.namespaces.cache.OpenNamespaces.use`; the iterator itself raises nothing.
    """
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return _nothing(ExportHead(namespace=access.namespace, memories=0))
        await opened.refresh(deadline)
        now = ctx.clock.now_ms()
        chosen = [
            memory.id
            for memory in opened.memories(request)
            if memory.state.status in request.states
            and (memory.state.expires_at is None or memory.state.expires_at > now)
        ]
        turns = [
            turn.id
            for turn in (opened.select_turns(request) if request.transcripts else ())
            if may_be_read(opened, turn.state, now)
        ]
        at = position(opened.position)
        head = ExportHead(namespace=access.namespace, memories=len(chosen), position=at)
        return _lines(opened, chosen, turns, head)


async def _nothing(head: ExportHead) -> AsyncIterator[bytes]:
    yield _line(head) + _line(ExportEnd(memories=0, turns=0))


async def _lines(
    opened: OpenNamespace, chosen: Sequence[bytes], turns: Sequence[bytes], head: ExportHead
) -> AsyncIterator[bytes]:
    buffer = bytearray(_line(head))
    told = turns_told = 0
    memories = (opened.memory(record) for record in chosen)
    kept = (opened.turn(record) for record in turns)
    for one in chain(memories, kept):
        if one is None:
            continue  # It was erased meanwhile.
        is_turn = one.record.is_dialogue
        buffer += _line(ExportTurn(turn=kept_turn(one)) if is_turn else ExportLine(memory=show(one)))
        told += 1
        turns_told += is_turn
        if len(buffer) >= _CHUNK_BYTES:
            yield bytes(buffer)
            buffer.clear()
            # Let other tasks run, even if the client reads as fast as the lines are encoded.
            await asyncio.sleep(0)
    yield bytes(buffer + _line(ExportEnd(memories=told - turns_told, turns=turns_told)))


def kept_turn(turn: OpenedMemory) -> KeptTurn:
    """Return a turn that was stored verbatim, for an export."""
    source = turn.record.source
    return KeptTurn(
        session=source.session,
        host=source.host,
        audience=turn.record.audience,
        created_at=turn.record.created_at,
        memories=tuple(map(ulid.render, turn.state.sources)),
        lines=tuple(map(shown, turn.record.lines)),
    )


def _line(value: BaseModel) -> bytes:
    return value.__pydantic_serializer__.to_json(value) + b"\n"


# Interval at which the log is checked for changes of other replicas.
_POLL_SECONDS = 1.0
# Part of the request's time that is reserved for the response.
_SPARE_SECONDS = 0.5
# Greater than the number of any change of one log entry.
_WHOLE_SLOT = 2**31


async def changes(
    ctx: Context, access: Access, *, after: str, limit: int, wait_ms: int, deadline: Deadline
) -> ChangesResponse:
    """Return the changes after a cursor, oldest first, waiting up to ``wait_ms`` for the first one.

    ``after`` is ``next`` of an earlier response, or the ``seq`` of a position; "0" is the beginning. Raises `Refused`:
    ``rollback_detected``: the log is shorter than the cursor.
    """
    mark = mark_of(after)
    patience = Deadline.after(ctx.clock, min(wait_ms / 1000, max(0.0, deadline.remaining() - _SPARE_SECONDS)))
    with ctx.polls.place(access.account) if wait_ms else nullcontext(OpenRequestSlot()) as place:
        while True:
            async with ctx.namespaces.use_if_exists(access, deadline) as opened:
                if opened is not None:
                    await opened.refresh(deadline)
                    check_cursor(opened, after)
                    found = opened.changes_after(mark)
                    if found or patience.remaining() <= 0 or place.lost:
                        return _page(opened, found, after, limit)
                    await opened.changed(min(_POLL_SECONDS, patience.remaining()))
                    # The namespace was closed meanwhile, for example because access was revoked. The client has to send a new
                    # request, whose access is checked again.
                    if not ctx.namespaces.holds(opened):
                        return _page(opened, [], after, limit)
            if opened is None:
                if mark[0] or patience.remaining() <= 0 or place.lost:
                    check_cursor(None, after)
                    return ChangesResponse(changes=(), next=after, more=False)
                await ctx.clock.sleep(min(_POLL_SECONDS, patience.remaining()))


def mark_of(after: str) -> tuple[int, int]:
    """Return the position in the log of a cursor: the sequence number of an entry, and a change of it."""
    slot, _, number = after.partition(".")
    return int(slot), int(number) if number else _WHOLE_SLOT


def cursor_of(change: Change) -> str:
    """Return the cursor that continues after a change."""
    return f"{change.mark[0]}.{change.mark[1]}"


def check_cursor(opened: OpenNamespace | None, after: str) -> None:
    """Reject a cursor beyond the end of a log that was just read; raises `Refused` ``rollback_detected``."""
    slot = mark_of(after)[0]
    if opened is None and slot:
        raise Refused("rollback_detected", "the namespace no longer exists: tell an operator")
    if opened is not None and slot > opened.position.seq:
        raise Refused("rollback_detected", "the log is shorter than this cursor: tell an operator")


def _page(opened: OpenNamespace, found: list[Change], after: str, limit: int) -> ChangesResponse:
    page = page_of(change_view(opened, change) for change in found[:limit])
    return ChangesResponse(
        changes=page,
        next=cursor_of(found[len(page) - 1]) if page else after,
        more=len(found) > len(page),
        position=position(opened.position),
    )


def change_view(opened: OpenNamespace, change: Change) -> ChangeView:
    """Return a change as the response shows it, with its memory in its present state."""
    memory = opened.memory(change.record)
    return ChangeView(
        change=change.what.value,
        id=ulid.render(change.record),
        seq=change.mark[0],
        memory=None if memory is None else show(memory),
    )


_READ_SECONDS = 10.0
_AT_ONCE = 50
_RETRY = b"retry: 2000\n\n"
_HEARTBEAT = b": nothing new\n\n"


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Limits of the streams of one process.

    Attributes:
        most: maximum number of open streams.
        per_account: maximum number of open streams of one account.
        seconds: maximum duration of a stream.
        heartbeat: seconds without an event after which a comment is sent, so that no proxy closes the connection.
        poll: seconds after which the log is checked for changes of other relayers.
    """

    most: int = 256
    per_account: int = 16
    seconds: float = 300.0
    heartbeat: float = 15.0
    poll: float = 2.0


class EventStream:
    """An iterator of encoded events. Its first bytes exist already, so the request can no longer be rejected."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes, None]) -> None:
        self._first: bytes | None = first
        self._rest = rest

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> bytes:
        first, self._first = self._first, None
        return await anext(self._rest) if first is None else first

    async def aclose(self) -> None:
        """End the stream, even if nothing of it was read."""
        await self._rest.aclose()


class ChangeStreams:
    """The open event streams of a process. Its length is their number."""

    def __init__(self, ctx: Context, limits: StreamLimits | None = None) -> None:
        self._ctx = ctx
        self._limits = limits or StreamLimits()
        self._open = FairSemaphore(
            "streams of changes", most=self._limits.most, per_account=self._limits.per_account
        )

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, access: Access, after: str, deadline: Deadline) -> EventStream:
        """Open a stream of the changes after a cursor before the deadline; the caller closes it.

        Raises:
            Refused: ``rollback_detected``: the log is shorter than the cursor.
            QueueFull: too many streams are open.
        """
        events = self._counted(access, after, deadline)
        try:
            return EventStream(await anext(events), events)
        except BaseException:
            await events.aclose()
            raise

    async def _counted(self, access: Access, after: str, deadline: Deadline) -> AsyncGenerator[bytes, None]:
        with self._open.place(access.account) as place:
            async with self._ctx.namespaces.use_if_exists(access, deadline) as opened:
                if opened is not None:
                    await opened.refresh(deadline)
                check_cursor(opened, after)
                yield _RETRY
                if opened is not None:
                    # The stream ends if the key expires, the store is unavailable or the namespace was erased. The client gets
                    # the error from its next request.
                    with suppress(RelayerError):
                        async for events in self._events(opened, access, after, place):
                            yield events

    async def _events(
        self, opened: OpenNamespace, access: Access, after: str, place: OpenRequestSlot
    ) -> AsyncGenerator[bytes, None]:
        clock, limits, mark = self._ctx.clock, self._limits, mark_of(after)
        end = clock.monotonic() + limits.seconds
        spoke = clock.monotonic()
        while clock.monotonic() < end and not place.lost:
            # The key has expired, or a revocation has closed the namespace.
            if access.key_not_after < clock.now_ms() or not self._ctx.namespaces.holds(opened):
                return
            await opened.refresh(Deadline.after(clock, _READ_SECONDS))
            found = opened.changes_after(mark)
            if found:
                mark = found[-1].mark
                for start in range(0, len(found), _AT_ONCE):
                    yield b"".join(_event(opened, change) for change in found[start : start + _AT_ONCE])
            elif clock.monotonic() - spoke >= limits.heartbeat:
                yield _HEARTBEAT
            else:
                await opened.changed(limits.poll)
                continue
            spoke = clock.monotonic()


def _event(opened: OpenNamespace, change: Change) -> bytes:
    """Return one encoded event, whose id is the cursor after it. Its JSON has no line breaks."""
    told = change_view(opened, change)
    return (
        f"id: {cursor_of(change)}\nevent: {told.change}\ndata: ".encode()
        + told.__pydantic_serializer__.to_json(told)
        + b"\n\n"
    )
