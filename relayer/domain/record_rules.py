"""What becomes of a record: stored or known already, superseded, forgotten, restored, put in another one's place."""

from __future__ import annotations

from relayer.domain.contents import Contents
from relayer.domain.operations import Stored
from relayer.domain.outcomes import Outcome, Refusal, Result
from relayer.domain.standing import RecordState, Standing

__all__ = ["forget", "put", "replace", "replace_or_stand_beside", "restore", "supersede"]


def put(contents: Contents, stored: Stored, author: bytes, *, twin: bytes = b"") -> Outcome:
    """Store a record, unless it is known, must not come back, or comes from what was erased.

    Args:
        contents: changed.
        stored: the record.
        author: who sent it; empty for a job.
        twin: the record that a capture found to say the same in other words; empty for none.
    """
    known = _standing_for(contents, stored, contents.twins.like(stored.alike)) or _standing_for(
        contents, stored, twin
    )
    if known is not None:
        known.reinforced += 1
        known.reinforced_at = contents.last_time
        contents.repeats[stored.record] = known.record
        return contents.done(Result.DUPLICATE, known.record)
    if stored.captured and (_is_tombstoned(contents, stored.content) or _is_taken_back(contents, twin)):
        return contents.refused(Refusal.TOMBSTONED, stored.record)
    if stored.record in contents.records or stored.record in contents.erased:
        return contents.refused(Refusal.RECORD_EXISTS, stored.record)
    if not contents.erased.isdisjoint(stored.sources):
        return contents.refused(Refusal.SOURCE_ERASED, stored.record)
    _keep(contents, stored, author)
    return contents.done(Result.STORED, stored.record)


def supersede(contents: Contents, head: bytes, stored: Stored, author: bytes) -> Outcome:
    """Store a record in the place of a live one."""
    old = contents.head(head)
    if isinstance(old, Refusal):
        return contents.refused(old, head)
    if stored.record in contents.records or stored.record in contents.erased:
        return contents.refused(Refusal.RECORD_EXISTS, stored.record)
    contents.stand(old, Standing.SUPERSEDED)
    old.superseded_by = stored.record
    _keep(contents, stored, author, supersedes=head)
    return contents.done(Result.SUPERSEDED, stored.record)


def forget(contents: Contents, head: bytes) -> Outcome:
    """Take a live record out of recall."""
    found = contents.head(head)
    if isinstance(found, Refusal):
        return contents.refused(found, head)
    contents.stand(found, Standing.FORGOTTEN)
    return contents.done(Result.FORGOTTEN, head)


def restore(contents: Contents, record: bytes, head: bytes) -> Outcome:
    """Make a record live again; what took its place, the live ``head``, is superseded by it."""
    found = contents.records.get(record)
    if found is None:
        return contents.refused(Refusal.UNKNOWN_RECORD, record)
    if found.standing is Standing.LIVE:
        return contents.refused(Refusal.STALE_HEAD, record)
    if found.standing is Standing.SUPERSEDED:
        current = contents.head(head)
        if isinstance(current, Refusal):
            return contents.refused(Refusal.STALE_HEAD, head)
        contents.stand(current, Standing.SUPERSEDED)
        current.superseded_by = record
    contents.stand(found, Standing.LIVE)
    found.superseded_by = b""
    contents.twins.add(record, text=found.content, likeness=found.likeness)
    return contents.done(Result.RESTORED, record)


def replace(contents: Contents, head: bytes, record: bytes) -> None:
    """Let a record take the place of another one, unless somebody else did something to it meanwhile."""
    old = contents.head(head)
    if not isinstance(old, Refusal) and head != record:
        contents.stand(old, Standing.SUPERSEDED)
        old.superseded_by = record
        contents.records[record].supersedes = head


def replace_or_stand_beside(contents: Contents, head: bytes, record: bytes) -> None:
    """Let a captured memory take another one's place, or note that somebody was first and both are kept."""
    replace(contents, head, record)
    old, new = contents.records.get(head), contents.records[record]
    if old is not None and old.standing is Standing.SUPERSEDED and new.supersedes != head:
        new.beside = head


def _keep(contents: Contents, stored: Stored, author: bytes, *, supersedes: bytes = b"") -> None:
    contents.records[stored.record] = RecordState(
        record=stored.record,
        content=stored.content,
        likeness=stored.alike,
        seq=contents.position.seq,
        created_at=stored.created_at,
        expires_at=stored.expires_at,
        size=stored.size,
        sources=stored.sources,
        author=author,
        supersedes=supersedes,
        context_of=stored.context_of,
    )
    contents.twins.add(stored.record, text=stored.content, likeness=stored.alike)
    contents.note_reader(stored.record, sources=stored.sources, context_of=stored.context_of)


def _standing_for(contents: Contents, stored: Stored, twin: bytes) -> RecordState | None:
    """Return the record, if it can stand for the equal memory."""
    known = contents.records.get(twin)
    if known is None or not known.live_at(contents.last_time) or not known.lasts_as_long_as(stored):
        return None
    return known


def _is_taken_back(contents: Contents, twin: bytes) -> bool:
    """Whether the memory that a capture repeats in other words is forgotten or erased."""
    known = contents.records.get(twin)
    return twin in contents.erased or (known is not None and known.standing is Standing.FORGOTTEN)


def _is_tombstoned(contents: Contents, content: bytes) -> bool:
    """Whether somebody forgot or erased this text: a capture must not bring it back, only a person may."""
    known = (contents.records[record] for record in contents.twins.saying(content))
    return contents.twins.was_erased(content) or any(item.standing is Standing.FORGOTTEN for item in known)
