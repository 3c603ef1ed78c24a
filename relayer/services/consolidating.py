"""What a captured memory does to what is known: repeats it, replaces it, or contradicts it.

It is judged here, by meaning and by words, because only who holds a key can read; the log decides whether it holds. The
operation names the record that was meant, and `relayer.domain.state.NamespaceState.apply` looks whether that is still
live when the entry's turn comes. So every replica gets the same outcome, whatever was written in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relayer.domain.record import Audience, Kind, Record, Trust
from relayer.domain.standing import Standing
from relayer.extraction.change import Relation, relation_of
from relayer.extraction.gist import LONGEST, Gist, gist_of
from relayer.extraction.sameness import NEAR, says_the_same
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


def bearing_of(opened: OpenNamespace, draft: Draft, vector: NDArray[np.float32] | None) -> Bearing:
    """Return what a draft does to the memories near it; settle first, and append without waiting in between.

    Only what was captured is judged: what somebody stores by hand is meant as it stands. Only memories of the same voice
    among the same people count, and without a vector, or in a text too long for one statement, nothing does.
    """
    if not draft.captured or vector is None or len(draft.text) > LONGEST or draft.supersedes:
        return NOTHING_KNOWN
    gist = gist_of(draft.text)
    near = list(_near(opened, draft, vector))
    twin = next(_twins(opened, gist, near), b"")
    # Only the user's own word is enough to question what is known.
    if twin or draft.suspect or draft.trust is not Trust.USER:
        return Bearing(twin=twin)
    return _change(opened, draft, [record for record, _ in near])


def is_noted(opened: OpenNamespace, draft: Draft, vector: NDArray[np.float32] | None) -> bool:
    """Whether what a job made says what one made before, or what was forgotten; settle first.

    A verbatim turn that says the same is no reason to leave it out: it has neither a kind nor a weight.
    """
    if draft.kind is Kind.SUMMARY:
        return False
    twin = bearing_of(opened, draft, vector).twin
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


def _twins(opened: OpenNamespace, gist: Gist, near: Iterable[tuple[Record, float]]) -> Iterator[bytes]:
    """Yield what says the same: live, or forgotten, and then the log refuses the capture."""
    states = opened.log.state.records
    for record, cosine in near:
        if cosine < NEAR or states[record.id].standing is Standing.SUPERSEDED or len(record.text) > LONGEST:
            continue
        if says_the_same(gist_of(record.text), gist):
            yield record.id


def _change(opened: OpenNamespace, draft: Draft, near: Iterable[Record]) -> Bearing:
    contradicts: list[bytes] = []
    for record in near:
        if opened.log.state.records[record.id].standing is not Standing.LIVE:
            continue
        relation = relation_of(record.text, draft.text)
        if relation is Relation.REPLACES and not record.pinned and not _is_later(record, draft):
            return Bearing(replaces=record.id)
        if relation is not Relation.NONE:
            contradicts.append(record.id)
    return Bearing(contradicts=tuple(contradicts[:_MOST_CONTRADICTED]))


def _is_later(record: Record, draft: Draft) -> bool:
    """Whether the known memory is of a later time: old conversations that are captured late replace nothing."""
    return (
        draft.occurred_at is not None
        and record.occurred_at is not None
        and record.occurred_at > draft.occurred_at
    )
