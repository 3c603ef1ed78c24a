"""What a captured memory does to what is known: repeats it, replaces it, or contradicts it.

It is judged here, by meaning and by words, because only who holds a key can read; the log decides whether it holds. The
operation names the record that was meant, and `relayer.domain.state.NamespaceState.apply` looks whether that is still
live when the entry's turn comes. So every replica gets the same outcome, whatever was written in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relayer.domain.record import Audience, Kind, Record, Trust
from relayer.domain.standing import Standing
from relayer.extraction.change import Relation, relation_of
from relayer.extraction.gist import LONGEST, Gist, gist_of
from relayer.extraction.sameness import NEAR, says_the_same
from relayer.services.context import Context
from relayer.services.draft import Draft
from relayer.services.open_namespace import OpenNamespace

__all__ = ["LOOKED_AT", "NOTHING_KNOWN", "Bearing", "bearing_of", "is_noted", "same_voice"]

LOOKED_AT = 12
"""How many of the nearest memories one is compared with."""
_MOST_CONTRADICTED = 3


@dataclass(frozen=True, slots=True)
class Bearing:
    """Records that a draft is about: at most one of ``twin`` and ``replaces`` is given."""

    twin: bytes = b""
    replaces: bytes = b""
    contradicts: tuple[bytes, ...] = ()


NOTHING_KNOWN = Bearing()


# Of the nearest memories as many are compared as this allows, a capture's own text counted with each: two dozen where
# they are as long as most.
_COMPARED_CHARACTERS = 8_000
# What it takes to compare, as a multiple of what it takes to look for secrets.
_COMPARING = 6


async def bearing_of(
    ctx: Context, opened: OpenNamespace, draft: Draft, vector: NDArray[np.float32] | None, account: str
) -> Bearing:
    """Return what a draft does to the memories near it, for an account; settle first, and append as soon as may be.

    Only what was captured is judged: what somebody stores by hand is meant as it stands. Only memories of the same voice
    among the same people count, and without a vector, or in a text too long for one statement, nothing does.
    """
    if not draft.captured or vector is None or len(draft.text) > LONGEST or draft.supersedes:
        return NOTHING_KNOWN
    states = opened.log.state.records
    near: list[_Near] = []
    room = _COMPARED_CHARACTERS
    for record, cosine in _near(opened, draft, vector):
        room -= len(draft.text) + min(len(record.text), LONGEST)
        if near and room < 0:
            break
        near.append(_Near(record, cosine, states[record.id].standing))
    work = _COMPARING * (_COMPARED_CHARACTERS - room)
    found = await ctx.texts.make(account, _bearings(draft, near), work)
    return found[-1]


async def is_noted(
    ctx: Context, opened: OpenNamespace, draft: Draft, vector: NDArray[np.float32] | None, account: str
) -> bool:
    """Whether what a job made says what one made before, or what was forgotten; settle first.

    A verbatim turn that says the same is no reason to leave it out: it has neither a kind nor a weight.
    """
    if draft.kind is Kind.SUMMARY:
        return False
    twin = (await bearing_of(ctx, opened, draft, vector, account)).twin
    record = opened.view.get(twin) if twin else None
    if record is None:
        return False
    is_live = opened.log.state.records[twin].standing is Standing.LIVE
    return not is_live or record.extractor.name == draft.extractor.name


def _near(opened: OpenNamespace, draft: Draft, vector: NDArray[np.float32]) -> Iterator[tuple[Record, float]]:
    """Yield the nearest records of the same voice with their cosine: live ones first, then those that are not."""
    for index in (opened.view.index, opened.view.past):
        for hit in index.search(vector, draft.text, LOOKED_AT, floor=0.0).hits:
            record = opened.view.by_number(hit.key)
            if same_voice(record, draft) and not _is_over(opened, record):
                yield record, hit.cosine or 0.0


def same_voice(record: Record, other: Draft | Record) -> bool:
    """Whether both were said by the same voice among the same people."""
    return (
        record.audience is other.audience
        and record.trust is other.trust
        and record.suspect is other.suspect
        and record.source.speaker == other.source.speaker
        # In a group nobody can tell whose words they are when no name stands by them.
        and not (other.audience is Audience.GROUP and not other.source.speaker)
    )


def _is_over(opened: OpenNamespace, record: Record) -> bool:
    """Whether a live memory's time is over: it stands for nothing, and one near it that is not may."""
    state = opened.log.state.records[record.id]
    return state.standing is Standing.LIVE and not state.live_at(opened.log.state.last_time)


@dataclass(frozen=True, slots=True)
class _Near:
    """A memory near a draft, as it stood when it was looked up."""

    record: Record
    cosine: float
    standing: Standing


def _bearings(draft: Draft, near: Sequence[_Near]) -> Iterator[Bearing]:
    """Yield what a draft does to the memories near it, as far as is known after each of them; the last one counts."""
    yield NOTHING_KNOWN
    gist = gist_of(draft.text)
    for one in near:
        twin = _is_twin(one, gist)
        yield Bearing(twin=one.record.id) if twin else NOTHING_KNOWN
        if twin:
            return
    # Only the user's own word is enough to question what is known.
    if draft.suspect or draft.trust is not Trust.USER:
        return
    contradicts: list[bytes] = []
    for one in near:
        if one.standing is not Standing.LIVE:
            continue
        relation = relation_of(one.record.text, draft.text)
        if relation is Relation.REPLACES and not one.record.pinned and not _is_later(one.record, draft):
            yield Bearing(replaces=one.record.id)
            return
        if relation is not Relation.NONE:
            contradicts.append(one.record.id)
        yield Bearing(contradicts=tuple(contradicts[:_MOST_CONTRADICTED]))


def _is_twin(one: _Near, gist: Gist) -> bool:
    """Whether a memory says the same: live, or forgotten, and then the log refuses the capture."""
    if one.cosine < NEAR or one.standing is Standing.SUPERSEDED or len(one.record.text) > LONGEST:
        return False
    return says_the_same(gist_of(one.record.text), gist)


def _is_later(record: Record, draft: Draft) -> bool:
    """Whether the known memory is of a later time: old conversations that are captured late replace nothing."""
    return (
        draft.occurred_at is not None
        and record.occurred_at is not None
        and record.occurred_at > draft.occurred_at
    )
