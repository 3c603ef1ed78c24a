"""How the records and the jobs of a log stand: what is known of each without opening it.

Both are stored by position, as rows of a state.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from relayer.domain.operations import Stored
from relayer.domain.outcomes import Outcome


class Standing(StrEnum):
    """Where a record is in its life."""

    LIVE = "live"
    SUPERSEDED = "superseded"
    FORGOTTEN = "forgotten"


class RecordState(msgspec.Struct, array_like=True, gc=False):
    """What the log knows of a record without opening it."""

    record: bytes
    content: bytes
    likeness: bytes
    seq: int
    created_at: int
    expires_at: int | None
    size: int
    sources: tuple[bytes, ...]
    author: bytes
    standing: Standing = Standing.LIVE
    supersedes: bytes = b""
    superseded_by: bytes = b""
    changed_at: int = 0
    reinforced: int = 0
    reinforced_at: int = 0
    context_of: bytes = b""
    beside: bytes = b""  # what it would have replaced, had nobody been first

    def live_at(self, now: int) -> bool:
        """Whether recall may return it at a time in ms."""
        return self.standing is Standing.LIVE and (self.expires_at is None or self.expires_at > now)

    def lasts_as_long_as(self, stored: Stored) -> bool:
        """Whether it can stand for an equal memory: what ends earlier would take the later one's text with it."""
        if self.expires_at is None:
            return True
        return stored.expires_at is not None and stored.expires_at <= self.expires_at


class JobState(msgspec.Struct, array_like=True, gc=False):
    """A promised piece of work."""

    job: bytes
    work: str
    records: tuple[bytes, ...]
    sealed: bytes
    accepted_at: int
    state: str = "pending"
    reason: str = ""
    finished_at: int = 0
    results: tuple[bytes, ...] = ()
    outcome: Outcome | None = None
    seq: int = 0
