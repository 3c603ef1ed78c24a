"""Which memories a filter means: the one reading of `relayer.wire.life.Selection`."""

from __future__ import annotations

from collections.abc import Iterator

from relayer.domain.record import Dialogue, Record
from relayer.domain.standing import RecordState
from relayer.services.open_namespace import OpenNamespace
from relayer.wire import ulid
from relayer.wire.life import Selection

__all__ = ["active_at", "select", "select_turns"]

# What a turn that was kept word for word has as memories have it.
_OF_TURNS = frozenset({"sessions", "hosts", "audiences", "created_after", "created_before"})


def select(opened: OpenNamespace, selection: Selection) -> Iterator[tuple[Record, RecordState]]:
    """Yield the memories that pass every filter, oldest first, whatever their standing; `fresh` first."""
    ids = frozenset(map(ulid.parse, selection.ids))
    for state in list(opened.log.state.records.values()):
        record = opened.view.get(state.record)
        if record is not None and (not ids or state.record in ids) and _passes(record, state, selection):
            yield record, state


def select_turns(opened: OpenNamespace, selection: Selection) -> Iterator[tuple[Dialogue, RecordState]]:
    """Yield the kept turns that pass every filter, none where one asks for what only memories have; `fresh` first.

    A turn may only repeat what another session said before: then it hangs on memories that are not of its session.
    """
    if not selection.filters <= _OF_TURNS:
        return
    for record, number in opened.view.dialogues.everything():
        turn, state = opened.view.known(number), opened.log.state.records.get(record)
        if isinstance(turn, Dialogue) and state is not None and _passes(turn, state, selection):
            yield turn, state


def active_at(record: Record, state: RecordState) -> int:
    """Return when a memory was last stored, said again, forgotten or restored, in ms."""
    return max(record.created_at, state.changed_at, state.reinforced_at)


def _passes(record: Record, state: RecordState, wanted: Selection) -> bool:
    source = record.source
    among = (
        (wanted.kinds, record.kind),
        (wanted.audiences, record.audience),
        (wanted.trusts, record.trust),
        (wanted.hosts, source.host),
        (wanted.sessions, source.session),
        (wanted.speakers, source.speaker),
    )
    if any(values and value not in values for values, value in among):
        return False
    flags = ((wanted.suspect, record.suspect), (wanted.pinned, record.pinned))
    if any(flag is not None and flag != value for flag, value in flags):
        return False
    return (
        _within(record.created_at, wanted.created_after, wanted.created_before)
        and _within(record.occurred_at, wanted.occurred_after, wanted.occurred_before)
        and (wanted.inactive_since is None or active_at(record, state) < wanted.inactive_since)
    )


def _within(at: int | None, after: int | None, before: int | None) -> bool:
    if after is None and before is None:
        return True
    return at is not None and (after is None or at >= after) and (before is None or at < before)
