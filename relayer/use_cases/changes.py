"""The change feed: the changes of memories after a cursor in the log, by long polling or as a stream of server-sent events.

`changes` returns a page of changes and waits for the first one if asked to. `ChangeStreams` opens `EventStream`s, limits how many
are open, and ends them after a while or when the client loses access. A change that another relayer wrote is found by reading the
log at intervals.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import nullcontext, suppress
from dataclasses import dataclass

from relayer.access.accounts import Access
from relayer.errors import Refused, RelayerError
from relayer.lib.work import Deadline, FairSemaphore, OpenRequestSlot
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.projection import Change
from relayer.wire import codec as ulid
from relayer.wire.memories import ChangesResponse, ChangeView
from relayer.writing.present import page_of, position, show

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
    page = page_of(shown(opened, change) for change in found[:limit])
    return ChangesResponse(
        changes=page,
        next=cursor_of(found[len(page) - 1]) if page else after,
        more=len(found) > len(page),
        position=position(opened.position),
    )


def shown(opened: OpenNamespace, change: Change) -> ChangeView:
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
    told = shown(opened, change)
    return (
        f"id: {cursor_of(change)}\nevent: {told.change}\ndata: ".encode()
        + told.__pydantic_serializer__.to_json(told)
        + b"\n\n"
    )
