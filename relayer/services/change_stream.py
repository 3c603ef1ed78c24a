"""The change feed as a stream of server-sent events, beside polling.

Specification: HTML Living Standard, "Server-sent events". A stream is as good as the request that opened it: it ends when that
one's sealed key ends, when the namespace is let go of because a key was revoked or everything was erased, and after a few
minutes in any case. Whoever listens asks again with ``Last-Event-ID``, is judged anew, and misses nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass

from relayer.errors import RelayerError
from relayer.services.access import Access
from relayer.services.changes import changes_after, check_cursor, cursor_of, mark_of, shown
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.finding import fresh
from relayer.services.journal import Change
from relayer.services.open_namespace import OpenNamespace
from relayer.services.shares import Place, Shares

__all__ = ["ChangeStreams", "EventStream", "StreamLimits"]

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
        """Begin a stream of the changes after a cursor; the caller closes it.

        Args:
            access: the way into the namespace.
            after: as for `relayer.services.changes.changes`.
            deadline: for the beginning.

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
                    await fresh(opened, deadline)
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
            await fresh(opened, Deadline.after(clock, _READ_SECONDS))
            found = changes_after(opened, mark)
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
