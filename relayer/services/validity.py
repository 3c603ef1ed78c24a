"""When a memory holds: from when, until when, and whether it is one that a recall looks at."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from relayer.domain.record import Record
from relayer.domain.standing import RecordState, Standing
from relayer.services.open_namespace import OpenNamespace

__all__ = ["held_at", "holds_from", "holds_until", "past_numbers"]


def holds_from(record: Record) -> int:
    """Return from when on a memory holds, in ms: as stated, or since it was said, or since it is known."""
    for time in (record.valid_from, record.occurred_at):
        if time is not None:
            return time
    return record.created_at


def holds_until(opened: OpenNamespace, record: Record, state: RecordState) -> int | None:
    """Return until when a memory holds, in ms: as stated, or until the one in its place does; None when it does."""
    if state.standing is not Standing.SUPERSEDED:
        return record.valid_to
    successor = opened.view.get(state.superseded_by)
    ended = state.changed_at
    if successor is not None and successor.valid_from is not None:
        ended = successor.valid_from
    return ended if record.valid_to is None else min(ended, record.valid_to)


def held_at(opened: OpenNamespace, record: Record, at: int) -> bool:
    """Whether a memory held at a time in ms; its first instant counts, its last does not."""
    until = holds_until(opened, record, opened.log.state.records[record.id])
    return holds_from(record) <= at and (until is None or at < until)


def past_numbers(
    opened: OpenNamespace, standings: Iterable[str], allowed: AbstractSet[int] | None
) -> set[int]:
    """Return the numbers of memories of these standings, among those that are allowed (None: all)."""
    view = opened.view
    wanted = frozenset(standings)
    found = (
        view.number_of(state.record)
        for state in opened.log.state.records.values()
        if state.standing in wanted
    )
    return {number for number in found if number is not None and (allowed is None or number in allowed)}
