"""Cold start: what was said lately, for a session that knows nothing yet. Nothing is searched and no model is asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone

from relayer.domain.record import Record
from relayer.domain.standing import RecordState
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.finding import fresh
from relayer.services.open_namespace import OpenNamespace
from relayer.services.presentation import PAGE_BYTES, encoded_size, page_of, position, show
from relayer.wire.context import ContextDay, ContextResponse

__all__ = ["newest_days"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_Dated = tuple[int, Record, RecordState]


async def newest_days(
    ctx: Context,
    access: Access,
    *,
    days: int,
    items: int,
    offset_minutes: int,
    audiences: Sequence[str],
    trusts: Sequence[str],
    deadline: Deadline,
) -> ContextResponse:
    """Return the newest memories of the newest days, by when they happened or else were stored.

    Args:
        ctx: the relayer.
        access: the way into the namespace.
        days: how many days that have memories.
        items: how many memories of each.
        offset_minutes: of the reader's clock from UTC, which says where a day begins.
        audiences: only these; none means all.
        trusts: likewise.
        deadline: of the request.
    """
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return ContextResponse(days=(), total=0)
        await fresh(opened, deadline)
        place = timezone(timedelta(minutes=offset_minutes))
        by_day: dict[str, list[_Dated]] = defaultdict(list)
        total = 0
        for record, state in _live(opened, ctx.clock.now_ms()):
            total += 1
            if (audiences and record.audience not in audiences) or (trusts and record.trust not in trusts):
                continue
            at = record.created_at if record.occurred_at is None else record.occurred_at
            day = (_EPOCH + timedelta(milliseconds=at)).astimezone(place).date().isoformat()
            by_day[day].append((at, record, state))
        newest = sorted(by_day, reverse=True)[:days]
        return ContextResponse(
            days=tuple(_days(opened, {day: by_day[day] for day in newest}, items)),
            total=total,
            position=position(opened.log.position),
        )


def _live(opened: OpenNamespace, now: int) -> Iterator[tuple[Record, RecordState]]:
    """Yield what recall could return without being asked for more; what lies ahead is no news yet."""
    for state in opened.log.state.records.values():
        record = opened.view.get(state.record)
        if record is None or record.suspect or not state.live_at(now):
            continue
        if record.occurred_at is None or record.occurred_at <= now:
            yield record, state


def _days(opened: OpenNamespace, by_day: Mapping[str, list[_Dated]], items: int) -> Iterator[ContextDay]:
    """Show the newest of each day, as far as one answer has room for them: of the oldest day the oldest ones are left out."""
    room = PAGE_BYTES
    for day, said in by_day.items():
        # Sorted by time alone: what was said in one instant keeps the log's order.
        ordered = sorted(said, key=lambda item: item[0])[-items:]
        newest = page_of(
            (
                show(record, state, searchable=record.id not in opened.view.without_vector)
                for _, record, state in reversed(ordered)
            ),
            room,
        )
        yield ContextDay(date=day, memories=newest[::-1], total=len(said))
        room -= sum(map(encoded_size, newest))
        if room <= 0:
            return
