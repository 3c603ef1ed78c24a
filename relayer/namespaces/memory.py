"""An opened memory: what was sealed, and what the log says of it."""

from __future__ import annotations

from dataclasses import dataclass

from relayer.domain.outcomes import RecordState, Status
from relayer.domain.record import Record
from relayer.wire import codec as ulid
from relayer.wire.memories import Selection


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory of an open namespace, or a turn that was kept word for word, as it was when it was looked up.

    Attributes:
        record: what was sealed; it never changes.
        state: what the log says of it, which goes on with the log.
        searchable: whether it could be found by meaning.
    """

    record: Record
    state: RecordState
    searchable: bool = True

    @property
    def id(self) -> bytes:
        """The record's id."""
        return self.record.id

    @property
    def is_live(self) -> bool:
        """Whether it is neither superseded nor forgotten; it may be over."""
        return self.state.status is Status.LIVE

    @property
    def active_at(self) -> int:
        """When it was last stored, said again, forgotten or restored, in ms."""
        return max(self.record.created_at, self.state.changed_at, self.state.reinforced_at)

    def ended_by(self, successor: Record | None) -> int | None:
        """Return until when it holds, in ms: as stated, or until the one in its place does; None when it does."""
        stated = self.record.valid_to
        if self.state.status is not Status.SUPERSEDED:
            return stated
        ended = self.state.changed_at
        if successor is not None and successor.valid_from is not None:
            ended = successor.valid_from
        return ended if stated is None else min(ended, stated)

    def passes(self, wanted: Selection) -> bool:
        """Whether it passes every filter but that of ids."""
        record, source = self.record, self.record.source
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
            and (wanted.inactive_since is None or self.active_at < wanted.inactive_since)
        )


def ids_of(wanted: Selection) -> frozenset[bytes]:
    """Return the ids that a selection names; none means all."""
    return frozenset(map(ulid.parse, wanted.ids))


def _within(at: int | None, after: int | None, before: int | None) -> bool:
    if after is None and before is None:
        return True
    return at is not None and (after is None or at >= after) and (before is None or at < before)
