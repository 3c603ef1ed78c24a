"""What a recall asks of the order of its hits: penalties for sources, fading with age, diversity."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from relayer.domain.record import Record
from relayer.search.index import Hit
from relayer.search.ordering import diverse, faded, in_order
from relayer.services.view import NamespaceView
from relayer.wire import schemas

__all__ = ["DEFAULT_PENALTIES", "ordered", "wanted"]

# A draft is not yet what its author means, and a tool's output or a transcript is what somebody curated the rest from.
DEFAULT_PENALTIES = (
    schemas.SourcePenalty(match="*memory/drafts/*"),
    schemas.SourcePenalty(match="*memory/draft-*.md"),
    schemas.SourcePenalty(match="trust:tool"),
    schemas.SourcePenalty(match="transcript:*"),
)
# As many hits are put in order as were asked for, this many times over: a penalty moves few, fading and diversity many.
_CHOICE, _WIDE_CHOICE = 2, 4
_DAY_MS = 86_400_000


def wanted(request: schemas.RecallRequest) -> int:
    """How many hits to look for, so that one that ranks lower makes room for another."""
    wide = request.diversity or request.half_life_days is not None
    return (_WIDE_CHOICE if wide else _CHOICE) * request.limit


def ordered(
    view: NamespaceView, hits: Sequence[Hit], request: schemas.RecallRequest, now: int
) -> tuple[list[Hit], dict[int, float]]:
    """The hits in the order that the request asks for, and each hit's penalty by key, where there is one."""
    penalties = DEFAULT_PENALTIES if request.penalties is None else request.penalties
    costs: dict[int, float] = {}
    scores: dict[int, float] = {}
    for hit in hits:
        record = view.by_number(hit.key)
        cost = max((item.penalty for item in penalties if _matches(item.match, record)), default=0.0)
        if cost:
            costs[hit.key] = cost
        scores[hit.key] = hit.evidence - cost
        if request.half_life_days is not None and not record.pinned:
            when = record.created_at if record.occurred_at is None else record.occurred_at
            scores[hit.key] = faded(scores[hit.key], (now - when) / _DAY_MS, request.half_life_days)
    if request.diversity:
        scores = diverse(scores, view.index.row, request.diversity, request.limit)
    elif not costs and request.half_life_days is None:
        return list(hits), costs
    return in_order(hits, scores), costs


def _matches(pattern: str, record: Record) -> bool:
    source = record.source
    tags = (f"kind:{record.kind}", f"trust:{record.trust}")
    named = [source.reference, *tags] + ([f"transcript:{source.transcript}"] if source.transcript else [])
    return any(fnmatchcase(name, pattern) for name in named if name)
