"""What is to become a memory, before it is sealed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relayer.domain.record import Audience, Kind, Model, Source, Trust

__all__ = ["Draft"]


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
