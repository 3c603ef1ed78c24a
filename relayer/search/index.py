"""What a namespace is searched with: vectors, terms, and the judgement whether anything found is relevant."""

from __future__ import annotations

from collections.abc import Iterable, KeysView
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayer.search.calibration import Calibration
from relayer.search.dense import DenseIndex, DenseParts
from relayer.search.lexical import LexicalIndex
from relayer.search.own_null import NullParts, OwnNull
from relayer.search.priors import LEXICAL_PRIOR
from relayer.search.ranking import coverage, evidence
from relayer.search.relevance import Null, gate, null_for
from relayer.search.stored_terms import LexicalParts
from relayer.search.vectors import Vector

__all__ = ["Hit", "IndexParts", "MemoryIndex", "SearchResult"]

# Candidates that each half proposes, at least; the other half then scores them too.
CANDIDATES = 50


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that was found.

    Attributes:
        key: as given to `MemoryIndex.put`.
        relevance: 0..1, see `relayer.search.relevance`.
        cosine: of its row and the query; None if either has no vector.
        bm25: of its text and the query; 0 if they share no term, None if the query has no text.
    """

    key: int
    relevance: float
    cosine: float | None
    bm25: float | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found.

    Attributes:
        hits: best first, all at or above the floor; empty is an answer.
        degraded: some or all of it rests on terms alone, for want of a vector of the query or of a memory.
        considered: memories that the filter allowed.
    """

    hits: tuple[Hit, ...]
    degraded: bool
    considered: int


class _Candidate(NamedTuple):
    key: int
    cosine: float | None
    bm25: float | None
    covered: float


class IndexParts(NamedTuple):
    """What a `MemoryIndex` is stored as."""

    dense: DenseParts
    lexical: LexicalParts
    null: NullParts


class MemoryIndex:
    """The memories of one namespace; for one event loop, whose thread calls everything here.

    Args:
        dimension: of every vector.
        calibration: of the embedding model, see `relayer.search.calibration.calibrate`.
    """

    def __init__(self, dimension: int, calibration: Calibration) -> None:
        self.calibration = calibration
        self._dense = DenseIndex(dimension)
        self._lexical = LexicalIndex()
        self._own = OwnNull()

    def __len__(self) -> int:
        return len(self._lexical)

    def __contains__(self, key: int) -> bool:
        return key in self._lexical

    def keys(self) -> KeysView[int]:
        """The keys of all memories."""
        return self._lexical.keys()

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        return self._dense.nbytes + self._lexical.nbytes + self._own.nbytes

    async def parts(self) -> IndexParts:
        """What `of_parts` takes; nothing may be put or removed meanwhile, and others get their turn."""
        return IndexParts(
            await self._dense.parts(), await self._lexical.parts(), self._own.parts(self.calibration)
        )

    @classmethod
    def of_parts(cls, dimension: int, calibration: Calibration, parts: IndexParts) -> MemoryIndex:
        """An index that answers as the one did whose parts these are, for the same embedding model.

        Raises:
            ValueError: they do not fit each other or the dimension.
        """
        index = cls(dimension, calibration)
        index._dense = DenseIndex.of_parts(dimension, parts.dense)
        index._lexical = LexicalIndex.of_parts(parts.lexical)
        index._own = OwnNull.of_parts(parts.null)
        if index._dense.keys() - index._lexical.keys():
            raise ValueError("a stored vector has no text")
        return index

    def put(self, key: int, row: NDArray[np.floating] | None, text: str, context: str | None = None) -> None:
        """Add a memory, or replace what ``key`` has.

        Args:
            key: not negative.
            row: see `relayer.search.vectors.search_row`; None when no vector can be had, and then the memory is
                found by its terms alone.
            text: see `relayer.search.text.indexed_text`.
            context: the indexed text of the turn before it.

        Raises:
            ValueError: the row is not one; nothing was changed.
        """
        if row is None:
            self._dense.remove(key)
        else:
            self._dense.add(key, row)
        self._lexical.put(key, text, context)
        self._own.put(key, text, context)

    def remove(self, key: int) -> bool:
        """Forget a memory; says whether there was one. See `maintain` for the last trace of its vector."""
        self._dense.remove(key)
        self._own.remove(key)
        return self._lexical.remove(key)

    def search(
        self,
        query_vector: NDArray[np.float32] | None,
        query_text: str | None,
        k: int,
        *,
        allowed: AbstractSet[int] | None = None,
        floor: float = 0.3,
    ) -> SearchResult:
        """The best ``k`` of the allowed memories (None: all) whose relevance is at least ``floor``.

        Raises:
            ValueError: the vector is not a query of this dimension, or ``k`` below 1.
        """
        if k < 1:
            raise ValueError("k is at least 1")
        keys = None if allowed is None else self._lexical.keys() & allowed
        considered = len(self) if keys is None else len(keys)
        # One half alone ranks by itself; wider proposals are for the other half to score.
        count = max(CANDIDATES, 4 * k) if query_vector is not None and query_text is not None else k
        candidates = self._candidates(query_vector, query_text, count, keys)
        with_vector = [candidate for candidate in candidates if candidate.cosine is not None]
        without = [candidate for candidate in candidates if candidate.cosine is None]
        null = null_for(considered, self.calibration.prior, self._own.null, self._own.size)
        passed = _judged(with_vector, null, floor)[:k]
        if without:
            passed += _judged(without, LEXICAL_PRIOR.at(considered), floor)[:k]
        passed.sort(key=lambda judged: (-judged[1], judged[0].key))
        return SearchResult(
            hits=tuple(
                Hit(found.key, relevance, found.cosine, found.bm25) for found, relevance in passed[:k]
            ),
            degraded=query_vector is None or self._lacks_vectors(keys),
            considered=considered,
        )

    async def maintain(self, *, purge: bool = False) -> None:
        """Bring the graph up to date; cheap when nothing is due, safe to cancel.

        Args:
            purge: leave no trace of removed vectors in memory, as after an erasure.
        """
        await self._dense.maintain(purge=purge)

    @property
    def null_is_due(self) -> bool:
        """Whether a search now could be judged otherwise than after `measure_null`."""
        return self._own.is_due(self.calibration)

    async def measure_null(self) -> None:
        """Measure what unrelated prompts find here, if that is due; see `relayer.search.own_null`."""
        await self._own.measure(self.calibration, self._dense.scores)

    def _candidates(
        self, vector: Vector | None, text: str | None, count: int, allowed: AbstractSet[int] | None
    ) -> list[_Candidate]:
        cosines: dict[int, float] = {}
        bm25: dict[int, float] = {}
        if vector is not None:
            cosines = {match.key: match.score for match in self._dense.search(vector, count, allowed)}
        if text is not None:
            bm25 = dict(self._lexical.search(text, count, allowed))
        if vector is not None and text is not None:
            cosines |= self._dense.scores(vector, _missing(bm25, cosines))
            bm25 |= self._lexical.scores(text, _missing(cosines, bm25))
        ceiling = 0.0 if text is None else self._lexical.ceiling(text)
        return [
            _Candidate(key, cosines.get(key), bm25.get(key), coverage(bm25.get(key, 0.0), ceiling))
            for key in cosines.keys() | bm25.keys()
        ]

    def _lacks_vectors(self, allowed: AbstractSet[int] | None) -> bool:
        if len(self._dense) == len(self._lexical):
            return False
        return allowed is None or any(key not in self._dense for key in allowed)


def _missing(of: Iterable[int], known: dict[int, float]) -> list[int]:
    return [key for key in of if key not in known]


def _evidence(candidate: _Candidate) -> float:
    return candidate.covered if candidate.cosine is None else evidence(candidate.cosine, candidate.covered)


def _judged(candidates: list[_Candidate], null: Null, floor: float) -> list[tuple[_Candidate, float]]:
    # By key first: where evidence ties, the gate keeps this order.
    ordered = sorted(candidates, key=itemgetter(0))
    passed = gate([_evidence(candidate) for candidate in ordered], null, floor)
    return [(ordered[at], relevance) for at, relevance in passed]
