"""Consolidation: propose which of two live memories is a duplicate or outdated, and apply the proposals that a user accepts.

The rules are those that a capture is checked by (`relayer.writing.merging`). They are applied afterwards to
memories for which they could not be applied when they were stored: through two replicas at the same time, while no embedder was
available, or by hand in addition to a capture. `propose` compares a page of memories with those before them (`proposals_of`), and
`take` checks an accepted pair again before it applies the proposal, so a client only sends the proposal's id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relayer.access.accounts import Access
from relayer.domain.operations import WHOLE, Model, Record, Restore
from relayer.errors import Refused
from relayer.lib.work import Deadline
from relayer.namespaces.context import Context, evaluated
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.records import OpenedMemory
from relayer.search.rows import Vector
from relayer.wire import codec as ulid
from relayer.wire import service as wire
from relayer.wire.codec import Malformed
from relayer.wire.fields import Kind, Status, Trust
from relayer.wire.service import Reason
from relayer.writing.drafts import Draft, append_drafts, next_version
from relayer.writing.merging import (
    FOLLOWS_FROM,
    LONGEST,
    LOOKED_AT,
    REPLACES_FROM,
    Relation,
    can_end,
    clauses_of,
    relations,
    same_voice,
    says_the_same,
)
from relayer.writing.present import PAGE_BYTES, encoded_size, position, show


@dataclass(frozen=True, slots=True)
class Comparable:
    """A memory, its key in the index, which rises with its position in the log, and its vector of length 1."""

    memory: OpenedMemory
    number: int
    vector: Vector

    @property
    def record(self) -> Record:
        """The memory's record."""
        return self.memory.record

    @property
    def said_at(self) -> tuple[int, int]:
        """The time when it was said or else stored, in ms, and the sequence number of its log entry."""
        return self.record.said_at, self.memory.state.seq

    @property
    def captured(self) -> bool:
        """Return whether an extractor made it. Otherwise a person wrote it by hand, so its wording is intended."""
        return bool(self.record.extractor.name)


@dataclass(frozen=True, slots=True)
class ConsolidationProposal:
    """A proposal about two memories: ``goes`` should be removed because of ``stays``. In a conflict, neither is removed.

    ``likely`` is the likelihood that ``stays`` replaces ``goes``; 0 for a duplicate.
    """

    reason: Reason
    stays: Comparable
    goes: Comparable
    likely: float = 0.0


def comparable(opened: OpenNamespace, wanted: bytes, now: int) -> Comparable | None:
    """Return a memory for consolidation; None if it is not live at ``now``, in ms, too long to be compared, or has no vector.

    Summaries of sessions are left out too, because they repeat memories on purpose.
    """
    memory, number = opened.memory(wanted), opened.key_of(wanted)
    if memory is None or number is None or not memory.state.live_at(now):
        return None
    if len(memory.record.text) > LONGEST or memory.record.kind is Kind.SUMMARY:
        return None
    row = opened.index().row(number)
    return None if row is None else Comparable(memory, number, row / np.float32(np.linalg.norm(row)))


def comparable_before(opened: OpenNamespace, one: Comparable, now: int) -> list[Comparable]:
    """Return the memories that are similar to one and come before it in the log. The caller waits until it is indexed."""
    hits = opened.index().search(one.vector, one.record.text, 2 * LOOKED_AT, floor=0.0).hits
    near = (
        comparable(opened, opened.state_of_hit(hit.key).record, now) for hit in hits if hit.key < one.number
    )
    return [other for other in near if other is not None][:LOOKED_AT]


async def proposals_of(
    ctx: Context, one: Comparable, others: Sequence[Comparable]
) -> list[ConsolidationProposal]:
    """Return the proposals about one memory and others; the order of the two memories of a pair does not matter.

    Only memories of the same voice and audience are compared, see `same_voice`.
    """
    pairs = [
        sorted((one, other), key=lambda known: known.said_at)
        for other in others
        if other.record.id != one.record.id and same_voice(one.record, other.record)
    ]
    read = await relations(
        ctx.relations, [([older.memory.text], newer.memory.text) for older, newer in pairs]
    )
    found = (_proposal(older, newer, relation) for (older, newer), relation in zip(pairs, read, strict=True))
    likely = [proposal for proposal in found if proposal is not None]
    replaced = [proposal for proposal in likely if proposal.reason is not Reason.DUPLICATE]
    best = max(replaced, key=lambda proposal: proposal.likely, default=None)
    # Of several memories that one may replace, only the likeliest one is proposed.
    return [proposal for proposal in likely if proposal.reason is Reason.DUPLICATE or proposal is best]


def _proposal(older: Comparable, newer: Comparable, relation: Relation) -> ConsolidationProposal | None:
    if says_the_same(older.memory.text, newer.memory.text, relation):
        goes, stays = sorted((older, newer), key=_worth)
        for gone, kept in ((goes, stays), (stays, goes)):
            if _may_repeat(gone, kept):
                return ConsolidationProposal(Reason.DUPLICATE, kept, gone)
    # Only the user's own words may replace or contradict a stored memory.
    if newer.record.suspect or newer.record.trust is not Trust.USER:
        return None
    # A fact that a model extracted and the words that it came from say the same, so the later one is no update.
    if older.captured and newer.captured and older.record.extractor.name != newer.record.extractor.name:
        return None
    if relation.replaces < FOLLOWS_FROM:
        return None
    replaces = (
        relation.replaces >= REPLACES_FROM
        and not older.record.pinned
        and len(clauses_of(older.memory)) <= 1
        and can_end(newer.memory.text, older.memory.text)
    )
    return ConsolidationProposal(
        Reason.REPLACED if replaces else Reason.CONFLICT, newer, older, relation.replaces
    )


def _worth(known: Comparable) -> tuple[bool, bool, int, float, int, bytes]:
    """Return a sort key for memories that say the same: the largest is kept. Among equals, that is the one stored first."""
    record, state = known.record, known.memory.state
    return (
        record.pinned,
        not known.captured,
        state.reinforced,
        record.importance,
        -state.seq,
        bytes(255 - byte for byte in record.id),
    )


def _may_repeat(gone: Comparable, kept: Comparable) -> bool:
    """Return whether a captured memory may be removed if another one says the same: that one is of the same time and lasts as long."""
    left, stays = gone.record, kept.record
    if left.pinned or not gone.captured or left.kind is Kind.EVENT:
        return False
    if left.kind not in {Kind.STATEMENT, Kind.FACT, stays.kind}:
        return False
    # A fact that a model extracted and the words that it came from are both kept (docs/adr/0012).
    if kept.captured and left.extractor.name != stays.extractor.name:
        return False
    if (left.valid_from, left.valid_to) != (stays.valid_from, stays.valid_to):
        return False
    return stays.expires_at is None or (left.expires_at is not None and left.expires_at <= stays.expires_at)


_MOST_PAIRS = 150  # they take about two seconds
# Of the newest memories, so many are looked at to find what captures replaced lately, and so many statements are listed.
_LOOKED_BACK = 2000
_MOST_REPLACED = 20
_AT_ONCE = 50
_EXTRACTOR = "consolidation"
_VERSION = "1"
# First operation index of `_take_back`, beyond the indexes of the request that stores the last versions.
_FIRST_TAKEN_BACK = 2 * wire.MAX_TAKEN


async def propose(
    ctx: Context, access: Access, request: wire.ConsolidationRequest, deadline: Deadline
) -> wire.ConsolidationResponse:
    """Compare a page of live memories with those before them, without changing anything; raises `Refused`: ``bad_cursor``."""
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return wire.ConsolidationResponse(proposals=(), examined=0, expired=0)
        await opened.refresh(deadline)
        now = ctx.clock.now_ms()
        ids = opened.ids()
        if request.cursor is not None:
            mark = ulid.parse(request.cursor)
            if mark not in ids:
                raise Refused("bad_cursor", "the memory that this cursor points to is gone: start over")
            ids = ids[ids.index(mark) + 1 :]
        rest = [record for record in ids if opened.is_live(record) and opened.is_memory(record)]
        async with deadline.step("compare"):
            found, page = await _compare(ctx, opened, rest[: request.limit], now)
            while len(page) > 1 and sum(map(encoded_size, found)) > PAGE_BYTES:
                found, page = await _compare(ctx, opened, page[: len(page) // 2], now)
        return wire.ConsolidationResponse(
            proposals=tuple(found),
            examined=len(page),
            expired=sum(_is_over(opened, record, now) for record in page),
            next_cursor=ulid.render(page[-1]) if len(rest) > len(page) else None,
            position=position(opened.position),
            replaced=() if request.cursor is not None else await _replaced_lately(opened),
        )


async def _replaced_lately(opened: OpenNamespace) -> tuple[wire.ReplacedView, ...]:
    """Return what the newest memories replaced when they were captured, and is still replaced."""
    found: list[wire.ReplacedView] = []
    for number, record in enumerate(reversed(opened.ids()[-_LOOKED_BACK:])):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        newer = opened.record(record)
        for replaced, start, end in () if newer is None else newer.replaces:
            old = opened.memory(replaced)
            if newer is None or old is None or (newer.id, start, end) not in _gone(old):
                continue
            found.append(
                wire.ReplacedView(
                    memory=ulid.render(replaced),
                    statement=old.record.text[slice(start, end or None)],
                    by=ulid.render(record),
                    text=newer.text,
                    at=newer.holds_from,
                )
            )
        if len(found) >= _MOST_REPLACED:
            break
    return tuple(found)


def _gone(old: OpenedMemory) -> list[tuple[bytes, int, int]]:
    """Return the statements of a memory that are replaced, in the form of `Record.replaces`."""
    if not old.is_live:
        return [(old.state.superseded_by, *WHOLE)]
    return [(gone.by, gone.start, gone.end) for gone in old.replaced]


async def take(
    ctx: Context, access: Access, request: wire.TakeRequest, deadline: Deadline
) -> wire.TakeResponse:
    """Apply proposals whose two memories have not changed since. Repeating the signed request applies no further ones.

    The removed memory gets a last version, which is valid for no time and expires immediately, so it is neither recalled nor
    listed. `relayer.use_cases.lifecycle` can restore the memory itself.
    """
    asked = {text: _pair(text) for text in request.proposals}
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            stale = tuple(wire.TakenView(id=text, status="stale") for text in request.proposals)
            return wire.TakeResponse(proposals=stale)
        await opened.refresh(deadline)
        now = ctx.clock.now_ms()
        accepted, refused = await _accepted(ctx, opened, list(asked.values()), now)
        # A repeated request applies only the proposals that it applied the first time.
        first = not opened.seen_before(access)
        if first and not accepted:
            await opened.append([evaluated(access)], deadline)
        elif first:
            drafts = [_last_version(access, proposal, now) for proposal in accepted]
            await append_drafts(ctx, opened, access, drafts, idempotency_key=None, deadline=deadline)
            await opened.wait_indexed()
            await _take_back(opened, access, accepted, deadline)
        return wire.TakeResponse(
            proposals=tuple(
                _taken(opened, text, pair[0], refused=pair in refused) for text, pair in asked.items()
            ),
            position=position(opened.position),
        )


def _pair(proposal_id: str) -> tuple[bytes, bytes]:
    """Return the ids of the removed and the remaining memory; both empty if the proposal's id is invalid."""
    goes, _, stays = proposal_id.partition("-")
    try:
        return ulid.parse(goes), ulid.parse(stays)
    except Malformed:
        return b"", b""


async def _compare(
    ctx: Context, opened: OpenNamespace, page: Sequence[bytes], now: int
) -> tuple[list[wire.ProposalView], Sequence[bytes]]:
    """Return the proposals about the memories of a page, and those that were compared: a page ends after `_MOST_PAIRS` pairs."""
    found: list[ConsolidationProposal] = []
    gone: set[bytes] = set()
    kept: set[bytes] = set()
    pairs = 0
    for place, record in enumerate(page):
        if pairs >= _MOST_PAIRS:
            page = page[:place]
            break
        await opened.wait_indexed()
        await asyncio.sleep(0)
        one = comparable(opened, record, now)
        if one is None:
            continue
        others = comparable_before(opened, one, now)
        pairs += len(others)
        for proposal in await proposals_of(ctx, one, others):
            if _excluded(proposal, gone, kept):
                continue
            found.append(proposal)
            if proposal.reason is not Reason.CONFLICT:
                gone.add(proposal.goes.record.id)
                kept.add(proposal.stays.record.id)
    # A conflict may have been found before one of its memories was proposed for removal, which resolves the conflict.
    left = [one for one in found if one.reason is not Reason.CONFLICT or not _excluded(one, gone, kept)]
    return [_view(one) for one in left], page


def _excluded(proposal: ConsolidationProposal, gone: set[bytes], kept: set[bytes]) -> bool:
    """Return whether a memory of the pair is to be removed already, or the removed one is why another one is removed."""
    stays, goes = proposal.stays.record.id, proposal.goes.record.id
    if proposal.reason is Reason.CONFLICT:
        return not gone.isdisjoint((stays, goes))
    return not gone.isdisjoint((stays, goes)) or goes in kept


async def _accepted(
    ctx: Context, opened: OpenNamespace, pairs: Sequence[tuple[bytes, bytes]], now: int
) -> tuple[list[ConsolidationProposal], set[tuple[bytes, bytes]]]:
    """Return the proposals that can be applied together, and the pairs of live memories that the rules do not propose."""
    accepted: list[ConsolidationProposal] = []
    refused: set[tuple[bytes, bytes]] = set()
    gone: set[bytes] = set()
    kept: set[bytes] = set()
    for goes, stays in pairs:
        left, other = comparable(opened, goes, now), comparable(opened, stays, now)
        if left is None or other is None or gone & {goes, stays}:
            continue
        proposal = next(iter(await proposals_of(ctx, left, [other])), None)
        if proposal is None or proposal.reason is Reason.CONFLICT or proposal.goes.record.id != goes:
            refused.add((goes, stays))
            continue
        if goes in kept:
            continue
        accepted.append(proposal)
        gone.add(goes)
        kept.add(stays)
    return accepted, refused


def _last_version(access: Access, proposal: ConsolidationProposal, now: int) -> Draft:
    old, sources = proposal.goes.record, proposal.goes.memory.state.sources
    # A replaced memory was valid until the other one became valid, a duplicate until now.
    until, replaced_by = now, tuple[bytes, ...]()
    if proposal.reason is Reason.REPLACED:
        stays = proposal.stays
        until = stays.said_at[0] if stays.record.valid_from is None else stays.record.valid_from
        replaced_by = (stays.record.id,)
    version = next_version(
        old,
        access,
        None,
        pinned=False,
        valid_from=until,
        valid_to=until,
        expires_at=now,
        extractor=Model(_EXTRACTOR, proposal.reason.value, _VERSION),
        contradicts=tuple(dict.fromkeys((*old.contradicts, *replaced_by))),
    )
    return Draft(version, sources=sources, replaces=old.id)


def _version_of(opened: OpenNamespace, goes: bytes) -> bytes:
    """Return the id of the last version that consolidation gave a memory; empty if it has no newer version or another one."""
    state = opened.state(goes)
    if state is None or state.status is not Status.SUPERSEDED:
        return b""
    successor = opened.record(state.superseded_by)
    return b"" if successor is None or successor.extractor.name != _EXTRACTOR else successor.id


async def _take_back(
    opened: OpenNamespace, access: Access, accepted: Sequence[ConsolidationProposal], deadline: Deadline
) -> None:
    """Restore memories that were removed because of a memory that changed before the request was appended to the log.

    The log itself checks that the removed memory is still the newest version. Whether the other one is still live is known only
    after the entry is appended.
    """
    undone: list[Restore] = []
    for number, proposal in enumerate(accepted):
        goes = proposal.goes.record.id
        version = _version_of(opened, goes)
        if version and not opened.is_live(proposal.stays.record.id):
            undone.append(Restore(access.origin(_FIRST_TAKEN_BACK + number), goes, version))
    if undone:
        await opened.append(undone, deadline)
        await opened.wait_indexed()


def _taken(opened: OpenNamespace, text: str, goes: bytes, *, refused: bool) -> wire.TakenView:
    version = _version_of(opened, goes)
    if version:
        return wire.TakenView(id=text, status="taken", version=ulid.render(version))
    return wire.TakenView(id=text, status="refused" if refused else "stale")


def _is_over(opened: OpenNamespace, wanted: bytes, now: int) -> bool:
    """Return whether a memory whose status is live has expired, other than by consolidation."""
    memory = opened.memory(wanted)
    if memory is None or not memory.is_live:
        return False
    return not memory.state.live_at(now) and memory.record.extractor.name != _EXTRACTOR


def _view(proposal: ConsolidationProposal) -> wire.ProposalView:
    stays, goes = show(proposal.stays.memory), show(proposal.goes.memory)
    return wire.ProposalView(id=f"{goes.id}-{stays.id}", reason=proposal.reason, stays=stays, goes=goes)
