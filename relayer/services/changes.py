"""The change feed: what became of memories after a point in the log, waiting for it if nothing has yet."""

from __future__ import annotations

from relayer.errors import Refused
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.finding import fresh
from relayer.services.journal import Change
from relayer.services.open_namespace import OpenNamespace
from relayer.services.presentation import position, show
from relayer.wire import ulid
from relayer.wire.context import ChangesResponse, ChangeView

__all__ = ["changes"]

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
    slot, _, number = after.partition(".")
    mark = (int(slot), int(number) if number else _WHOLE_SLOT)
    patience = Deadline.after(ctx.clock, min(wait_ms / 1000, max(0.0, deadline.remaining() - _SPARE_SECONDS)))
    while True:
        async with ctx.namespaces.use_if_exists(access, deadline) as opened:
            if opened is not None:
                await fresh(opened, deadline)
                if mark[0] > opened.log.position.seq:
                    raise Refused(
                        "rollback_detected", "the log is shorter than this cursor: tell an operator"
                    )
                found = opened.view.journal.after(mark)
                if found or patience.remaining() <= 0:
                    return _page(opened, found, after, limit)
                await opened.changed(min(_POLL_SECONDS, patience.remaining()))
        if opened is None:
            if mark[0] or patience.remaining() <= 0:
                return _of_nothing(mark[0], after)
            await ctx.clock.sleep(min(_POLL_SECONDS, patience.remaining()))


def _of_nothing(slot: int, after: str) -> ChangesResponse:
    if slot:
        raise Refused("rollback_detected", "the namespace does not exist any more: tell an operator")
    return ChangesResponse(changes=(), next=after, more=False)


def _page(opened: OpenNamespace, found: list[Change], after: str, limit: int) -> ChangesResponse:
    page = found[:limit]
    return ChangesResponse(
        changes=tuple(_shown(opened, change) for change in page),
        next=f"{page[-1].mark[0]}.{page[-1].mark[1]}" if page else after,
        more=len(found) > limit,
        position=position(opened.log.position),
    )


def _shown(opened: OpenNamespace, change: Change) -> ChangeView:
    record, state = opened.view.get(change.record), opened.log.state.records.get(change.record)
    memory = None
    if record is not None and state is not None:
        memory = show(record, state, searchable=record.id not in opened.view.without_vector)
    return ChangeView(
        change=change.what.value, id=ulid.render(change.record), seq=change.mark[0], memory=memory
    )
