"""What is to become a memory, before it is sealed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relayer.domain.record import Audience, Kind, Model, Role, Source, Trust
from relayer.wire.vocabulary import SourceInfo

__all__ = ["Draft", "given_source"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A memory before it has an id. Times in ms; ``vector`` a unit vector or None to have one computed.

    ``context_of`` is an existing record, ``context_draft`` the index of an earlier draft of the same request;
    ``sources`` are the records it was derived from, ``supersedes`` is the live one whose place it takes. ``created_at`` is
    given for what was stored elsewhere before; None is now.
    """

    text: str
    kind: Kind
    audience: Audience
    trust: Trust
    source: Source
    suspect: bool = False
    pinned: bool = False
    importance: float = 0.5
    lang: str = ""
    occurred_at: int | None = None
    valid_from: int | None = None
    valid_to: int | None = None
    expires_at: int | None = None
    vector: NDArray[np.float32] | None = None
    context_of: bytes = b""
    context_draft: int | None = None
    extractor: Model = field(default_factory=Model)
    captured: bool = False
    sources: tuple[bytes, ...] = ()
    contradicts: tuple[bytes, ...] = ()
    supersedes: bytes = b""
    created_at: int | None = None


def given_source(given: SourceInfo, agent: str) -> Source:
    """Return where a memory comes from that an agent sends as one."""
    return Source(
        host=given.host,
        agent=agent,
        session=given.session,
        speaker=given.speaker,
        role=Role(given.role),
        message_ids=given.message_ids,
        transcript=given.transcript,
        reference=given.reference,
    )
