"""The change feed: what became of memories after a point in the log, waiting for it if nothing has yet."""

from __future__ import annotations

from contextlib import nullcontext

from relayer.errors import Refused
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.finding import fresh
from relayer.services.journal import Change
from relayer.services.open_namespace import OpenNamespace
from relayer.services.presentation import page_of, position, show
from relayer.services.shares import Place
from relayer.wire import ulid
from relayer.wire.context import ChangesResponse, ChangeView

__all__ = ["changes", "changes_after", "check_cursor", "cursor_of", "mark_of", "shown"]

_POLL_SECONDS = 1.0  # how soon a change written by another replica is noticed
_SPARE_SECONDS = 0.5
# Behind every change that a slot can make.
_WHOLE_SLOT = 2**31


async def changes(
    ctx: Context, access: Access, *, after: str, limit: int, wait_ms: int, deadline: Deadline
) -> ChangesResponse:
    """Return the changes after a cursor, oldest first, waiting up to ``wait_ms`` for the first one.

    Args:
        ctx: the relayer.
        access: the way into the namespace.
        after: ``next`` of an earlier answer, or the ``seq`` of a position; "0" is the beginning.
        limit: of the changes.
        wait_ms: how long an empty answer may take.
        deadline: of the request.

    Raises:
        Refused: ``rollback_detected``: the log is shorter than the cursor.
    """
    with ctx.polls.place(access.account) if wait_ms else nullcontext(Place()) as place:
        return await _wait(
            ctx, access, after=after, limit=limit, wait_ms=wait_ms, deadline=deadline, place=place
        )


async def _wait(
    ctx: Context, access: Access, *, after: str, limit: int, wait_ms: int, deadline: Deadline, place: Place
) -> ChangesResponse:
    mark = mark_of(after)
    patience = Deadline.after(ctx.clock, min(wait_ms / 1000, max(0.0, deadline.remaining() - _SPARE_SECONDS)))
    while True:
        async with ctx.namespaces.use_if_exists(access, deadline) as opened:
            if opened is not None:
                await fresh(opened, deadline)
                check_cursor(opened, after)
                found = changes_after(opened, mark)
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


def changes_after(opened: OpenNamespace, mark: tuple[int, int]) -> list[Change]:
    """Return what became of memories after a mark, in the log's order; a turn that was kept word for word is none."""
    return [
        change for change in opened.view.journal.after(mark) if change.record not in opened.view.dialogues
    ]


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
    if opened is not None and slot > opened.log.position.seq:
        raise Refused("rollback_detected", "the log is shorter than this cursor: tell an operator")


def _page(opened: OpenNamespace, found: list[Change], after: str, limit: int) -> ChangesResponse:
    page = page_of(shown(opened, change) for change in found[:limit])
    return ChangesResponse(
        changes=page,
        next=cursor_of(found[len(page) - 1]) if page else after,
        more=len(found) > len(page),
        position=position(opened.log.position),
    )


def shown(opened: OpenNamespace, change: Change) -> ChangeView:
    """Show a change with its memory as it is now."""
    record, state = opened.view.get(change.record), opened.log.state.records.get(change.record)
    memory = None
    if record is not None and state is not None:
        memory = show(record, state, searchable=record.id not in opened.view.without_vector)
    return ChangeView(
        change=change.what.value, id=ulid.render(change.record), seq=change.mark[0], memory=memory
    )
