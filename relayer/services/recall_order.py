"""What a recall asks of the order of its hits: penalties for sources, fading with age, diversity."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from relayer.domain.record import Record
from relayer.search.found import Hit
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
    """At least as many of the hits as were asked for, in the order that the request asks for, and the penalties by key."""
    penalties = _Penalties(DEFAULT_PENALTIES if request.penalties is None else request.penalties)
    fades = request.half_life_days
    first = hits[: request.limit]
    moved = fades is not None or bool(request.diversity)
    # A penalty only moves a hit down. Where the first have none they stay the first, and the rest need no opening.
    if not moved and not any(penalties.of(view.by_number(hit.key)) for hit in first):
        return list(first), {}
    costs: dict[int, float] = {}
    scores: dict[int, float] = {}
    for hit in hits:
        record = view.by_number(hit.key)
        cost = penalties.of(record)
        if cost:
            costs[hit.key] = cost
        scores[hit.key] = hit.evidence - cost
        if fades is not None and not record.pinned:
            when = record.created_at if record.occurred_at is None else record.occurred_at
            scores[hit.key] = faded(scores[hit.key], (now - when) / _DAY_MS, fades)
    if request.diversity:
        scores = diverse(scores, view.index.row, request.diversity, request.limit)
    return in_order(hits, scores), costs


class _Penalties:
    """What each source costs; most memories of a namespace come from a few, so that each is compared once."""

    def __init__(self, penalties: Sequence[schemas.SourcePenalty]) -> None:
        self._penalties = penalties
        self._known: dict[tuple[str, ...], float] = {}

    def of(self, record: Record) -> float:
        """The largest penalty that a record's source has, 0 without one."""
        source = record.source
        origin = (record.kind, record.trust, source.transcript, source.reference)
        cost = self._known.get(origin)
        if cost is None:
            matching = (item.penalty for item in self._penalties if _matches(item.match, record))
            cost = self._known[origin] = max(matching, default=0.0)
        return cost


def _matches(pattern: str, record: Record) -> bool:
    source = record.source
    tags = (f"kind:{record.kind}", f"trust:{record.trust}")
    named = [source.reference, *tags] + ([f"transcript:{source.transcript}"] if source.transcript else [])
    return any(fnmatchcase(name, pattern) for name in named if name)
