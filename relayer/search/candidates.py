"""What a search weighs: the memories that either half proposes, with the evidence of both halves for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayer.search.dense_query import DenseQuery
from relayer.search.lexical_query import LexicalQuery
from relayer.search.ranking import SPEAKER_WEIGHT, coverage, evidence, judged_evidence

__all__ = ["Candidates"]

Numbers = NDArray[np.float64]


class Candidates(NamedTuple):
    """Memories by rising key; every array has one number for each of them.

    Attributes:
        keys: of the memories.
        cosine: of its row and the query; NaN if either has no vector.
        bm25: of its text and the query; None if the query has no text.
        covered: share of the query's terms that it covers, weighted by how rare they are.
        spoken: whether the query names who said it.
    """

    keys: list[int]
    cosine: Numbers
    bm25: Numbers | None
    covered: Numbers
    spoken: NDArray[np.bool_]

    @classmethod
    def of(cls, keys: Iterable[int], dense: DenseQuery | None, lexical: LexicalQuery | None) -> Candidates:
        """The candidates with these keys, each of which has a text."""
        ordered = sorted(keys)
        count = len(ordered)
        cosine = np.full(count, np.nan) if dense is None else dense.scores(ordered)
        if lexical is None:
            return cls(ordered, cosine, None, np.zeros(count), np.zeros(count, np.bool_))
        bm25 = lexical.scores(ordered)
        return cls(ordered, cosine, bm25, coverage(bm25, lexical.ceiling), lexical.spoken(ordered))

    def where(self, chosen: NDArray[np.bool_]) -> Candidates:
        """Those for which ``chosen`` is true."""
        keys = [self.keys[at] for at in np.flatnonzero(chosen).tolist()]
        bm25 = None if self.bm25 is None else self.bm25[chosen]
        return Candidates(keys, self.cosine[chosen], bm25, self.covered[chosen], self.spoken[chosen])

    @property
    def by_terms(self) -> NDArray[np.bool_]:
        """Whether only terms speak for each of them, for want of a vector."""
        return np.isnan(self.cosine)

    @property
    def content(self) -> Numbers:
        """What each one's own words say, for the order."""
        return np.where(self.by_terms, self.covered, evidence(self.cosine, self.covered))

    @property
    def bonus(self) -> Numbers:
        """What it is worth that the right one said it; nobody lends that to a neighbour, who is often the other one."""
        bonus: Numbers = SPEAKER_WEIGHT * self.spoken.astype(np.float64)
        return bonus

    @property
    def judged(self) -> Numbers:
        """What each one says against silence."""
        return np.where(self.by_terms, self.covered, judged_evidence(self.cosine, self.covered)) + self.bonus

    def best(self, count: int) -> list[int]:
        """The keys with the most `content`, best first, ties by key."""
        order = np.argsort(-self.content, kind="stable")[:count]
        return [self.keys[at] for at in order.tolist()]
