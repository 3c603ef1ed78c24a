"""Requests and answers about recall: what is asked for, what was found, and why."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from relayer.wire.fields import NamespaceName, Text, Time, Unit, Vector, at_most
from relayer.wire.memories import MAX_LIMIT, Memory
from relayer.wire.shapes import Answer, Request
from relayer.wire.vocabulary import AudienceName, Consistency, KindName, Position, TrustName

__all__ = [
    "Evidence",
    "Judgement",
    "PastName",
    "RecallHit",
    "RecallRequest",
    "RecallResponse",
    "SourcePenalty",
]

PastName = Literal["superseded", "forgotten"]


class SourcePenalty(Request):
    """How much less a source counts. ``match`` is a pattern with ``*`` and ``?`` over what a memory comes from.

    That is its ``source.reference``, ``transcript:`` and its transcript, ``kind:`` and its kind, or ``trust:`` and its
    trust. The largest penalty that matches counts; it moves a memory down and leaves none out.
    """

    match: Annotated[str, Field(min_length=1, max_length=200)]
    penalty: Unit = 0.15


class RecallRequest(Request):
    """``POST /v1/recall``: a query, a vector, or both (then the vector is taken as the query's).

    ``include`` adds memories that are superseded or forgotten; ``as_of`` answers from what held at that time, in ms,
    superseded or not.
    """

    query: Text | None = None
    vector: Vector | None = None
    namespace: NamespaceName | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 5
    floor: Unit = 0.3
    max_tokens: Annotated[int, Field(ge=1, le=100_000)] | None = None
    kinds: Annotated[tuple[KindName, ...], Field(max_length=9), at_most(9)] = ()
    audiences: Annotated[tuple[AudienceName, ...], Field(max_length=3), at_most(3)] = ()
    trusts: Annotated[tuple[TrustName, ...], Field(max_length=4), at_most(4)] = ()
    include_suspect: bool = False
    occurred_after: Time | None = None
    occurred_before: Time | None = None
    consistency: Consistency = Consistency.STRONG
    min_position: Position | None = None
    explain: bool = False
    penalties: Annotated[tuple[SourcePenalty, ...], Field(max_length=16), at_most(16)] | None = None
    diversity: Unit = 0.0
    half_life_days: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] | None = None
    include: Annotated[tuple[PastName, ...], Field(max_length=2), at_most(2)] = ()
    as_of: Time | None = None

    @model_validator(mode="after")
    def _needs_something(self) -> RecallRequest:
        if self.query is None and self.vector is None:
            raise ValueError("give a query, a vector, or both")
        return self


class Evidence(Answer):
    """Why a hit stands where it does; only with ``explain``.

    ``covered`` is the share of the query's terms that it has, rare ones for more, ``speaker`` whether the query names
    who said it, and ``score`` what it ranks by (cosine, covered share, speaker, and what better neighbours in the
    conversation lend) before its ``penalty``.
    """

    cosine: float | None = None
    bm25: float | None = None
    covered: float = 0.0
    speaker: bool = False
    score: float = 0.0
    penalty: float = 0.0


class Judgement(Answer):
    """Why a prompt was answered or met silence; only with ``explain``.

    ``best`` is the evidence of the best memory less the ``doubt`` about a name that no memory knows, ``usual`` what
    every other unrelated prompt finds here, and ``needed`` what one in a hundred of them does: relevance 0.3.
    """

    best: float | None = None
    usual: float = 0.0
    needed: float = 0.0
    doubt: float = 0.0


class RecallHit(Memory):
    """A memory found; ``relevance`` is calibrated, 0..1, and ``distance`` is 1 - relevance."""

    relevance: float
    distance: float
    evidence: Evidence | None = None


class RecallResponse(Answer):
    """Hits, best first; an empty answer is a good one. ``considered`` counts what was searched."""

    memories: tuple[RecallHit, ...]
    position: Position | None = None
    degraded: bool = False
    considered: int = 0
    judgement: Judgement | None = None
