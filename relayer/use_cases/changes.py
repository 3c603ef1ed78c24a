"""The change feed: what became of memories after a point in the log, waited for or streamed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import nullcontext, suppress
from dataclasses import dataclass

from relayer.access.accounts import Access
from relayer.errors import Refused, RelayerError
from relayer.lib.work import Deadline, Place, Shares
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.projection import Change
from relayer.wire import codec as ulid
from relayer.wire.memories import ChangesResponse, ChangeView
from relayer.writing.present import page_of, position, show

_POLL_SECONDS = 1.0  # how soon a change written by another replica is noticed
_SPARE_SECONDS = 0.5
# Behind every change that a slot can make.
_WHOLE_SLOT = 2**31


async def changes(
    ctx: Context, access: Access, *, after: str, limit: int, wait_ms: int, deadline: Deadline
) -> ChangesResponse:
    """Return the changes after a cursor, oldest first, waiting up to ``wait_ms`` for the first one.

    ``after`` is ``next`` of an earlier answer, or the ``seq`` of a position; "0" is the beginning.

    Raises:
        Refused: ``rollback_detected``: the log is shorter than the cursor.
    """
    mark = mark_of(after)
    patience = Deadline.after(ctx.clock, min(wait_ms / 1000, max(0.0, deadline.remaining() - _SPARE_SECONDS)))
    with ctx.polls.place(access.account) if wait_ms else nullcontext(Place()) as place:
        while True:
            async with ctx.namespaces.use_if_exists(access, deadline) as opened:
                if opened is not None:
                    await opened.refresh(deadline)
                    check_cursor(opened, after)
                    found = opened.changes_after(mark)
                    if found or patience.remaining() <= 0 or place.lost:
                        return _page(opened, found, after, limit)
                    await opened.changed(min(_POLL_SECONDS, patience.remaining()))
                    # Let go of meanwhile: whoever waits is to be judged anew, and not to open it again.
                    if not ctx.namespaces.holds(opened):
                        return _page(opened, [], after, limit)
            if opened is None:
                if mark[0] or patience.remaining() <= 0 or place.lost:
                    check_cursor(None, after)
                    return ChangesResponse(changes=(), next=after, more=False)
                await ctx.clock.sleep(min(_POLL_SECONDS, patience.remaining()))


def mark_of(after: str) -> tuple[int, int]:
    """Return the place in the log that a cursor means."""
    slot, _, number = after.partition(".")
    return int(slot), int(number) if number else _WHOLE_SLOT


def cursor_of(change: Change) -> str:
    """Return the cursor after a change."""
    return f"{change.mark[0]}.{change.mark[1]}"


def check_cursor(opened: OpenNamespace | None, after: str) -> None:
    """Refuse a cursor from beyond the end of a log that was just read; raises `Refused` ``rollback_detected``."""
    slot = mark_of(after)[0]
    if opened is None and slot:
        raise Refused("rollback_detected", "the namespace does not exist any more: tell an operator")
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
    """Show a change with its memory as it is now."""
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
    """Bounds of one process.

    Attributes:
        most: streams at once.
        per_account: streams of one account at once.
        seconds: the longest one.
        heartbeat: seconds without an event after which a comment is sent, so that nobody on the way hangs up.
        poll: seconds in which a change that another relayer wrote is noticed.
    """

    most: int = 256
    per_account: int = 16
    seconds: float = 300.0
    heartbeat: float = 15.0
    poll: float = 2.0


class EventStream:
    """Events whose first bytes are there already: what can be refused has been refused."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes, None]) -> None:
        self._first: bytes | None = first
        self._rest = rest

    def __aiter__(self) -> EventStream:
        """Return this."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next events, or a comment."""
        first, self._first = self._first, None
        return await anext(self._rest) if first is None else first

    async def aclose(self) -> None:
        """End the stream; also where nothing of it was read."""
        await self._rest.aclose()


class ChangeStreams:
    """Opens streams, and counts them."""

    def __init__(self, ctx: Context, limits: StreamLimits | None = None) -> None:
        self._ctx = ctx
        self._limits = limits or StreamLimits()
        self._open = Shares(
            "streams of changes", most=self._limits.most, per_account=self._limits.per_account
        )

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, access: Access, after: str, deadline: Deadline) -> EventStream:
        """Begin a stream of the changes after a cursor, by a deadline; the caller closes it.

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
                    # A key that ends, a store that is away, an erasure: the next request is told which.
                    with suppress(RelayerError):
                        async for events in self._events(opened, access, after, place):
                            yield events

    async def _events(
        self, opened: OpenNamespace, access: Access, after: str, place: Place
    ) -> AsyncGenerator[bytes, None]:
        clock, limits, mark = self._ctx.clock, self._limits, mark_of(after)
        end = clock.monotonic() + limits.seconds
        spoke = clock.monotonic()
        while clock.monotonic() < end and not place.lost and self._may_go_on(opened, access):
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

    def _may_go_on(self, opened: OpenNamespace, access: Access) -> bool:
        """Whether the key is live, and nobody dropped the namespace, as a revocation does."""
        return self._ctx.namespaces.holds(opened) and access.key_not_after >= self._ctx.clock.now_ms()


def _event(opened: OpenNamespace, change: Change) -> bytes:
    """Return one event; its id is the cursor after it. JSON of ours has no line breaks."""
    told = shown(opened, change)
    return (
        f"id: {cursor_of(change)}\nevent: {told.change}\ndata: ".encode()
        + told.__pydantic_serializer__.to_json(told)
        + b"\n\n"
    )
