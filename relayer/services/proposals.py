"""What could be tidied up between two memories that are both live: the rules of consolidation, without a model.

They are the rules by which a capture is judged (`relayer.services.consolidating`), applied afterwards to what came in
where they could not be: through two replicas at once, while no embedder answered, or by hand beside a capture. Whoever
applies a proposal judges the pair again, so that its id is all that has to be sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from relayer.domain.record import Kind, Record, Trust
from relayer.domain.standing import RecordState
from relayer.extraction.change import Relation, relation_of
from relayer.extraction.gist import LONGEST, gist_of
from relayer.extraction.sameness import NEAR, says_the_same
from relayer.search.vectors import Vector
from relayer.services.consolidating import LOOKED_AT, same_voice
from relayer.services.open_namespace import OpenNamespace

__all__ = ["Known", "Proposal", "Reason", "known_before", "known_of", "proposal_of"]


class Reason(StrEnum):
    """Why one of two memories should go."""

    DUPLICATE = "duplicate"
    REPLACED = "replaced"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Known:
    """A memory, what became of it, and its vector of length 1."""

    record: Record
    state: RecordState
    vector: Vector

    @property
    def said_at(self) -> tuple[int, int]:
        """When it was said, or else stored, and its place in the log."""
        record = self.record
        at = record.created_at if record.occurred_at is None else record.occurred_at
        return at, self.state.seq

    @property
    def captured(self) -> bool:
        """Whether an extractor made it; what somebody wrote by hand is meant as it stands."""
        return bool(self.record.extractor.name)


@dataclass(frozen=True, slots=True)
class Proposal:
    """One of two memories should go; of a conflict, neither does."""

    reason: Reason
    stays: Known
    goes: Known


def known_of(opened: OpenNamespace, wanted: bytes, now: int) -> Known | None:
    """Return a memory that consolidation looks at: live, short enough to be compared, findable by meaning.

    Notes of whole sessions are left out: they repeat memories because that is what they are for.
    """
    state, record = opened.log.state.records.get(wanted), opened.view.get(wanted)
    if state is None or record is None or not state.live_at(now):
        return None
    if len(record.text) > LONGEST or record.kind is Kind.SUMMARY:
        return None
    number = opened.view.number_of(wanted)
    row = None if number is None else opened.view.index.row(number)
    if row is None:
        return None
    return Known(record, state, row / np.float32(np.linalg.norm(row)))


def known_before(opened: OpenNamespace, one: Known, now: int) -> list[Known]:
    """Return the memories near one that stand before it in the log; settle first."""
    view = opened.view
    number = view.number_of(one.record.id)
    if number is None:
        return []
    hits = view.index.search(one.vector, one.record.text, LOOKED_AT, floor=0.0).hits
    near = (known_of(opened, view.id_of(hit.key), now) for hit in hits if hit.key < number)
    return [other for other in near if other is not None]


def proposal_of(one: Known, other: Known) -> Proposal | None:
    """Return what could be done about two memories, in whichever order they are given; None when nothing.

    Only memories of the same voice among the same people are compared.
    """
    if one.record.id == other.record.id or not same_voice(one.record, other.record):
        return None
    goes, stays = sorted((one, other), key=_worth)
    for gone, kept in ((goes, stays), (stays, goes)):
        if _repeats(gone, kept):
            return Proposal(Reason.DUPLICATE, kept, gone)
    # Only the user's own word is enough to question what is known.
    if one.record.suspect or one.record.trust is not Trust.USER:
        return None
    older, newer = sorted((one, other), key=lambda known: known.said_at)
    relation = relation_of(older.record.text, newer.record.text)
    if relation is Relation.NONE:
        return None
    replaces = relation is Relation.REPLACES and not older.record.pinned
    return Proposal(Reason.REPLACED if replaces else Reason.CONFLICT, newer, older)


def _worth(known: Known) -> tuple[bool, bool, int, float, int, bytes]:
    """How much a memory is worth keeping before one that says the same; of equals, the first one told."""
    record, state = known.record, known.state
    return (
        record.pinned,
        not known.captured,
        state.reinforced,
        record.importance,
        -state.seq,
        bytes(255 - byte for byte in record.id),
    )


def _repeats(gone: Known, kept: Known) -> bool:
    """Whether nothing is lost without a capture, because the other memory says the same, as long, of the same time."""
    left, stays = gone.record, kept.record
    if left.pinned or not gone.captured or left.kind is Kind.EVENT:
        return False
    if left.kind not in {Kind.STATEMENT, stays.kind}:
        return False
    # A model's fact and the words that it was read from are both kept (docs/adr/0012).
    if kept.captured and left.extractor.name != stays.extractor.name:
        return False
    if (left.valid_from, left.valid_to) != (stays.valid_from, stays.valid_to):
        return False
    lasts = stays.expires_at is None or (left.expires_at is not None and left.expires_at <= stays.expires_at)
    near = float(gone.vector @ kept.vector) >= NEAR
    return lasts and near and says_the_same(gist_of(stays.text), gist_of(left.text))
