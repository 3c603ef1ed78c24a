"""Restore: a forgotten memory, or an old version of one, is live again."""

from __future__ import annotations

from relayer.domain.operations import Restore
from relayer.domain.outcomes import Refusal, Result
from relayer.domain.standing import RecordState, Standing
from relayer.errors import Refused
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.drafting import request_origin
from relayer.services.finding import look_up
from relayer.services.open_namespace import OpenNamespace
from relayer.services.presentation import position
from relayer.services.refusals import no_such_memory, nonce_reused
from relayer.wire import life, ulid

__all__ = ["restore"]


async def restore(ctx: Context, access: Access, memory_id: str, deadline: Deadline) -> life.RestoreResponse:
    """Bring a memory back; one that is live already is answered the same.

    An old version takes the place of the live one, which becomes an old version in its turn.

    Raises:
        Refused: ``not_found``, or ``stale_head``: an old version whose newest one is forgotten, or changed meanwhile.
    """
    async with look_up(ctx, access, memory_id, deadline) as (opened, wanted):
        known = opened.log.state.records.get(wanted)
        if known is None:
            raise no_such_memory()
        # Also what is live already: sent again after somebody forgot it, this request is known to the log.
        replaced = await _bring_back(opened, access, known, deadline)
        return life.RestoreResponse(
            id=memory_id,
            state="live",
            replaced=ulid.render(replaced) if replaced else None,
            position=position(opened.log.position),
        )


async def _bring_back(opened: OpenNamespace, access: Access, known: RecordState, deadline: Deadline) -> bytes:
    """Restore one; returns the version that it took the place of, if any."""
    wanted = known.record
    head = _head_of(opened, known) if known.standing is Standing.SUPERSEDED else b""
    async with deadline.step("append"):
        outcome = (await opened.log.append([Restore(request_origin(opened, access, 0, None), wanted, head)]))[
            0
        ]
    if outcome.refusal is None:
        if outcome.result is not Result.RESTORED or outcome.subject != wanted:
            raise nonce_reused()
        return head
    now = opened.log.state.records.get(wanted)
    if now is None:
        raise no_such_memory()
    # Another gateway, or a lost try of this one, may have restored it between our read and our entry.
    if now.standing is Standing.LIVE:
        return b""
    if outcome.refusal is Refusal.STALE_HEAD:
        if head and opened.log.state.records[head].standing is not Standing.LIVE:
            raise Refused(
                "stale_head", "the newest version of this memory is forgotten: restore that one first"
            )
        raise Refused(outcome.refusal, "this memory changed meanwhile: look at its history and try again")
    raise Refused(outcome.refusal, "the namespace does not take this: sign anew and try again")


def _head_of(opened: OpenNamespace, old: RecordState) -> bytes:
    """Return the newest version of those that took an old one's place, at first or second hand; the log looks if it is live."""
    records = opened.log.state.records
    seen = {old.record}
    newer = old
    while (found := records.get(newer.superseded_by)) is not None and found.record not in seen:
        seen.add(found.record)
        newer = found
    return newer.record
