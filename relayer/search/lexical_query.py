"""One query put to the texts of a namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from relayer.search.rows import Found, best_of

__all__ = ["LexicalQuery"]


class LexicalQuery:
    """A query and what every text scores for it, good until the index changes: to be used at once.

    Attributes:
        ceiling: the score of a text of average length that has every term of the query once: what a full match is
            worth. Terms that no text has count like the rarest ones: asking for something unknown is no match. One
            and a half such terms are imagined in every query that has any.
    """

    def __init__(
        self,
        ceiling: float,
        slots: Mapping[int, int],
        keys: NDArray[np.int64],
        scores: NDArray[np.float32],
        spoken: NDArray[np.bool_],
    ) -> None:
        self.ceiling = ceiling
        self._slots = slots
        self._keys = keys
        self._scores = scores
        self._spoken = spoken

    def best(self, k: int, allowed: AbstractSet[int] | None = None) -> Found:
        """Keys and BM25 scores of the best ``k`` allowed texts that share a term with the query, ties by key."""
        scores = self._scores
        if allowed is not None:
            inside = [self._slots[key] for key in allowed if key in self._slots]
            everywhere, scores = scores, np.zeros_like(scores)
            scores[inside] = everywhere[inside]
        found = np.flatnonzero(scores)
        found = found[best_of(scores[found], k)]
        keys = self._keys[found]
        order = np.lexsort((keys, -scores[found]))[:k]
        return keys[order], scores[found[order]]

    def scores(self, keys: Sequence[int]) -> NDArray[np.float64]:
        """The BM25 scores of these texts, 0 where no term is shared.

        Raises:
            KeyError: one of the keys has no text.
        """
        return self._scores[self._at(keys)].astype(np.float64)

    def spoken(self, keys: Sequence[int]) -> NDArray[np.bool_]:
        """Whether the query names who said each of these texts.

        Raises:
            KeyError: one of the keys has no text.
        """
        return self._spoken[self._at(keys)]

    def _at(self, keys: Sequence[int]) -> NDArray[np.int64]:
        return np.fromiter(map(self._slots.__getitem__, keys), np.int64, len(keys))
