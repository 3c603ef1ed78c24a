"""Consolidation: propose what could be tidied up in a namespace, and carry out what somebody took of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from relayer.domain.operations import Restore
from relayer.domain.record import Model
from relayer.domain.standing import Standing
from relayer.errors import Refused
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.draft import Draft
from relayer.services.drafting import request_origin
from relayer.services.finding import evaluated, fresh, seen_before
from relayer.services.open_namespace import OpenNamespace
from relayer.services.presentation import PAGE_BYTES, encoded_size, position, show
from relayer.services.proposals import Known, Proposal, Reason, known_before, known_of, proposal_of
from relayer.services.remember import append_drafts
from relayer.wire import consolidation as wire
from relayer.wire import ulid
from relayer.wire.errors import Malformed

__all__ = ["propose", "take"]

_EXTRACTOR = "consolidation"
_VERSION = "1"
# Behind every operation of the request that puts the versions in place.
_FIRST_TAKEN_BACK = 2 * wire.MAX_TAKEN


async def propose(
    ctx: Context, access: Access, request: wire.ConsolidationRequest, deadline: Deadline
) -> wire.ConsolidationResponse:
    """Compare a page of live memories with those before them; changes nothing.

    Raises:
        Refused: ``bad_cursor``.
    """
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return wire.ConsolidationResponse(proposals=(), examined=0, expired=0)
        await fresh(opened, deadline)
        now = ctx.clock.now_ms()
        rest = _live_after(opened, request.cursor)
        page = rest[: request.limit]
        async with deadline.step("compare"):
            found = [_view(opened, one) for one in await _compare(opened, page, now)]
            while len(page) > 1 and sum(map(encoded_size, found)) > PAGE_BYTES:
                page = page[: len(page) // 2]
                found = [_view(opened, one) for one in await _compare(opened, page, now)]
        return wire.ConsolidationResponse(
            proposals=tuple(found),
            examined=len(page),
            expired=sum(_is_over(opened, record, now) for record in page),
            next_cursor=ulid.render(page[-1]) if len(rest) > len(page) else None,
            position=position(opened.log.position),
        )


async def take(
    ctx: Context, access: Access, request: wire.TakeRequest, deadline: Deadline
) -> wire.TakeResponse:
    """Carry out proposals whose two memories are still as they were; the same signed request again takes no others.

    The memory that goes gets a last version, which holds for no time and is over at once: nobody recalls or lists it, and
    `relayer.services.restore` brings the memory itself back.
    """
    asked = {text: _pair(text) for text in request.proposals}
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            stale = tuple(wire.TakenView(id=text, status="stale") for text in request.proposals)
            return wire.TakeResponse(proposals=stale)
        await fresh(opened, deadline)
        now = ctx.clock.now_ms()
        accepted, refused = _accepted(opened, list(asked.values()), now)
        first = not seen_before(opened, access)  # what it could not take then it does not take now
        if first and not accepted:
            async with deadline.step("append"):
                await opened.log.append([evaluated(access)])
        elif first:
            drafts = [_last_version(proposal, now) for proposal in accepted]
            await append_drafts(ctx, opened, access, drafts, idempotency_key=None, deadline=deadline)
            await opened.settle()
            await _take_back(opened, access, accepted, deadline)
        return wire.TakeResponse(
            proposals=tuple(
                _taken(opened, text, pair[0], refused=pair in refused) for text, pair in asked.items()
            ),
            position=position(opened.log.position),
        )


def _pair(proposal_id: str) -> tuple[bytes, bytes]:
    """Return the ids of the memory that goes and of the one that stays; empty for what is none: nothing has that id."""
    goes, _, stays = proposal_id.partition("-")
    try:
        return ulid.parse(goes), ulid.parse(stays)
    except Malformed:
        return b"", b""


def _live_after(opened: OpenNamespace, cursor: str | None) -> list[bytes]:
    """Return the ids of live memories, oldest first, behind the cursor."""
    states = opened.log.state.records
    ids = list(states)
    if cursor is not None:
        mark = ulid.parse(cursor)
        if mark not in states:
            raise Refused("bad_cursor", "the memory that this cursor points to is gone: start over")
        ids = ids[ids.index(mark) + 1 :]
    return [record for record in ids if states[record].standing is Standing.LIVE and record in opened.view]


async def _compare(opened: OpenNamespace, page: Sequence[bytes], now: int) -> list[Proposal]:
    """Return the proposals about a page; others get their turn after each pair."""
    found: list[Proposal] = []
    gone: set[bytes] = set()
    kept: set[bytes] = set()
    for record in page:
        await opened.settle()
        await asyncio.sleep(0)
        one = known_of(opened, record, now)
        if one is None:
            continue
        for other in known_before(opened, one, now):
            await asyncio.sleep(0)
            proposal = proposal_of(one, other)
            if proposal is None or _excluded(proposal, gone, kept):
                continue
            found.append(proposal)
            if proposal.reason is not Reason.CONFLICT:
                gone.add(proposal.goes.record.id)
                kept.add(proposal.stays.record.id)
    # A conflict that was seen before one of its two was to go is settled with it.
    return [
        proposal
        for proposal in found
        if proposal.reason is not Reason.CONFLICT or not _excluded(proposal, gone, kept)
    ]


def _excluded(proposal: Proposal, gone: set[bytes], kept: set[bytes]) -> bool:
    """Whether one of the two is to go already, or the one that would go is what another one goes for."""
    stays, goes = proposal.stays.record.id, proposal.goes.record.id
    if proposal.reason is Reason.CONFLICT:
        return not gone.isdisjoint((stays, goes))
    return not gone.isdisjoint((stays, goes)) or goes in kept


def _accepted(
    opened: OpenNamespace, pairs: Sequence[tuple[bytes, bytes]], now: int
) -> tuple[list[Proposal], set[tuple[bytes, bytes]]]:
    """Return what can be carried out together, and the pairs of live memories that the rules do not propose."""
    accepted: list[Proposal] = []
    refused: set[tuple[bytes, bytes]] = set()
    gone: set[bytes] = set()
    kept: set[bytes] = set()
    for goes, stays in pairs:
        left, other = known_of(opened, goes, now), known_of(opened, stays, now)
        if left is None or other is None or gone & {goes, stays}:
            continue
        proposal = proposal_of(left, other)
        if proposal is None or proposal.reason is Reason.CONFLICT or proposal.goes.record.id != goes:
            refused.add((goes, stays))
            continue
        if goes in kept:
            continue
        accepted.append(proposal)
        gone.add(goes)
        kept.add(stays)
    return accepted, refused


def _last_version(proposal: Proposal, now: int) -> Draft:
    old, state = proposal.goes.record, proposal.goes.state
    # What another memory replaced held until that one began; what only repeated it, until now.
    until = _began(proposal.stays) if proposal.reason is Reason.REPLACED else now
    beside = (proposal.stays.record.id,) if proposal.reason is Reason.REPLACED else ()
    return Draft(
        text=old.text,
        kind=old.kind,
        audience=old.audience,
        trust=old.trust,
        suspect=old.suspect,
        importance=old.importance,
        lang=old.lang,
        occurred_at=old.occurred_at,
        valid_from=until,
        valid_to=until,
        expires_at=now,
        context_of=old.context_of,
        sources=state.sources,
        source=old.source,
        extractor=Model(_EXTRACTOR, proposal.reason.value, _VERSION),
        contradicts=tuple(dict.fromkeys((*old.contradicts, *beside))),
        supersedes=old.id,
    )


def _began(known: Known) -> int:
    return known.said_at[0] if known.record.valid_from is None else known.record.valid_from


def _version_of(opened: OpenNamespace, goes: bytes) -> bytes:
    """Return the last version that consolidation gave a memory, empty if another one or none took its place."""
    state = opened.log.state.records.get(goes)
    if state is None or state.standing is not Standing.SUPERSEDED:
        return b""
    successor = opened.view.get(state.superseded_by)
    return b"" if successor is None or successor.extractor.name != _EXTRACTOR else successor.id


async def _take_back(
    opened: OpenNamespace, access: Access, accepted: Sequence[Proposal], deadline: Deadline
) -> None:
    """Restore what went because of a memory that somebody changed before the log took the request.

    The log compares the head that goes. That the other one still stands is known only once the entry has its place.
    """
    states = opened.log.state.records
    undone: list[Restore] = []
    for number, proposal in enumerate(accepted):
        goes, stays = proposal.goes.record.id, states.get(proposal.stays.record.id)
        version = _version_of(opened, goes)
        if version and (stays is None or stays.standing is not Standing.LIVE):
            origin = request_origin(opened, access, _FIRST_TAKEN_BACK + number, None)
            undone.append(Restore(origin, goes, version))
    if undone:
        async with deadline.step("append"):
            await opened.log.append(undone)
        await opened.settle()


def _taken(opened: OpenNamespace, text: str, goes: bytes, *, refused: bool) -> wire.TakenView:
    version = _version_of(opened, goes)
    if version:
        return wire.TakenView(id=text, status="taken", version=ulid.render(version))
    return wire.TakenView(id=text, status="refused" if refused else "stale")


def _is_over(opened: OpenNamespace, wanted: bytes, now: int) -> bool:
    """Whether a live memory's time is over, and not because consolidation ended it."""
    state, record = opened.log.state.records.get(wanted), opened.view.get(wanted)
    if state is None or record is None or state.standing is not Standing.LIVE:
        return False
    return not state.live_at(now) and record.extractor.name != _EXTRACTOR


def _view(opened: OpenNamespace, proposal: Proposal) -> wire.ProposalView:
    stays, goes = (
        show(known.record, known.state, searchable=known.record.id not in opened.view.without_vector)
        for known in (proposal.stays, proposal.goes)
    )
    return wire.ProposalView(id=f"{goes.id}-{stays.id}", reason=proposal.reason.value, stays=stays, goes=goes)
