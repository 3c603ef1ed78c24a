"""What a search found, and why it is shown or not."""

from __future__ import annotations

from dataclasses import dataclass

from relayer.search.relevance import Null

__all__ = ["Hit", "Judgement", "SearchResult"]


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that was found.

    Attributes:
        key: as given to `relayer.search.index.MemoryIndex.put`.
        relevance: 0..1, see `relayer.search.relevance`.
        cosine: of its row and the query; None if either has no vector.
        bm25: of its text and the query; 0 if they share no term, None if the query has no text.
        covered: share of the query's terms that it covers, weighted by how rare they are.
        spoken: whether the query names its speaker.
        evidence: what it ranks by: cosine, covered share, speaker, and what its neighbours in the conversation lend.
    """

    key: int
    relevance: float
    cosine: float | None
    bm25: float | None
    covered: float
    spoken: bool
    evidence: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """Why a prompt passed, or met silence.

    Attributes:
        best: evidence of the best memory, less the doubt; None if nothing was found.
        null: what unrelated prompts find among as many memories.
        doubt: what was taken off because the prompt names somebody or something that no memory knows.
    """

    best: float | None
    null: Null
    doubt: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found.

    Attributes:
        hits: best first, all at or above the floor; empty is an answer.
        degraded: some or all of it rests on terms alone, for want of a vector of the query or of a memory.
        considered: memories that the filter allowed.
        judgement: what decided between them and silence.
    """

    hits: tuple[Hit, ...]
    degraded: bool
    considered: int
    judgement: Judgement
