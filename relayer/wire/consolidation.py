"""Requests and answers about consolidation: a difference that somebody looks at, and what is taken of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from relayer.wire.fields import NOT_EMPTY, MemoryId, NamespaceName, at_most
from relayer.wire.memories import Memory
from relayer.wire.shapes import Answer, Request
from relayer.wire.vocabulary import Position

__all__ = [
    "MAX_EXAMINED",
    "MAX_TAKEN",
    "ConsolidationRequest",
    "ConsolidationResponse",
    "ProposalView",
    "ReasonName",
    "TakeRequest",
    "TakeResponse",
    "TakenView",
]

MAX_EXAMINED = 200
"""Memories that one request compares with those before them."""
MAX_TAKEN = 100
"""Proposals that one request takes: each is a new version, sealed and embedded."""

ReasonName = Literal["duplicate", "replaced", "conflict"]
ProposalId = Annotated[str, StringConstraints(pattern=r"^[0-9a-z]{26}-[0-9a-z]{26}$")]


class ConsolidationRequest(Request):
    """``POST /v1/consolidation``: what could be tidied up; changes nothing.

    ``limit`` memories are examined, oldest first, from behind ``cursor``, the ``next_cursor`` of the page before.
    """

    limit: Annotated[int, Field(ge=1, le=MAX_EXAMINED)] = 100
    cursor: MemoryId | None = None
    namespace: NamespaceName | None = None


class ProposalView(Answer):
    """One proposal: the memory that stays, the one that goes, and why.

    A ``conflict`` is for a person to decide: neither goes, and it cannot be taken; ``goes`` is the older one. The id names both
    memories, which are the heads that taking it expects to be live.
    """

    id: str
    reason: ReasonName
    stays: Memory
    goes: Memory


class ConsolidationResponse(Answer):
    """The difference; ``expired`` counts live memories of the page whose time is over: nobody is shown them any more."""

    proposals: tuple[ProposalView, ...]
    examined: int
    expired: int
    next_cursor: str | None = None
    position: Position | None = None


class TakeRequest(Request):
    """``POST /v1/consolidation/take``: the ids of the proposals to carry out."""

    proposals: Annotated[tuple[ProposalId, ...], Field(max_length=MAX_TAKEN), at_most(MAX_TAKEN), *NOT_EMPTY]
    namespace: NamespaceName | None = None


class TakenView(Answer):
    """What became of a proposal.

    ``taken``: the memory that goes ended with ``version``; also when an earlier request did that. ``stale``: one of the two changed
    meanwhile, or is not there. ``refused``: both are as they were, and the rules do not propose this.
    """

    id: str
    status: Literal["taken", "stale", "refused"]
    version: MemoryId | None = None


class TakeResponse(Answer):
    """What became of each proposal, in the order asked."""

    proposals: tuple[TakenView, ...]
    position: Position | None = None
