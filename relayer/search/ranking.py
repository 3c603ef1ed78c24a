"""One number from several kinds of evidence, in units that compare across queries.

Fusions that rescale each query's scores rank as well, but what they return says nothing about whether the best hit
is any good. Raw cosine plus covered share of the query's terms does both (docs/adr/0003, docs/adr/0011).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "JUDGED_TERM_WEIGHT",
    "NAME_DOUBT",
    "SPEAKER_WEIGHT",
    "TERM_WEIGHT",
    "coverage",
    "evidence",
    "judged_evidence",
    "with_neighbours",
]

Number = TypeVar("Number", float, NDArray[np.floating])

# A full match of the query's terms is worth this much cosine: for the order of the memories, and for the judgement
# whether any of them is to the point. Words tell one memory from the next better than they tell a prompt about this
# namespace from any other, which has some words in common with it by chance.
TERM_WEIGHT = 1.0
JUDGED_TERM_WEIGHT = 0.5
# What it is worth that the query names the one who said it.
SPEAKER_WEIGHT = 0.15
# What it costs the prompt as a whole that it names somebody or something the namespace has never heard of.
NAME_DOUBT = 0.2
# Share of the gap that a better neighbour closes, by its distance in turns.
NEIGHBOUR_SHARES = (0.3, 0.2, 0.1)


def coverage(bm25: NDArray[np.float64], ceiling: float) -> NDArray[np.float64]:
    """BM25 as a share of what a text with every term of the query would score; 0 for a query without terms."""
    return bm25 / ceiling if ceiling > 0 else np.zeros_like(bm25)


def evidence(cosine: Number, covered: Number) -> Number:
    """What speaks for a memory, or for each of several, against the other memories of its namespace."""
    return cosine + TERM_WEIGHT * covered


def judged_evidence(cosine: Number, covered: Number) -> Number:
    """What speaks for a memory against silence; compares across queries."""
    return cosine + JUDGED_TERM_WEIGHT * covered


def with_neighbours(
    found: Mapping[int, float], lenders: Iterable[int], near: Callable[[int], Iterable[tuple[int, int]]]
) -> dict[int, float]:
    """Evidence by key, that of the lenders' neighbours in the conversation raised towards theirs.

    An answer rarely repeats the question before it, and a question rarely names what the next turn tells: a turn
    beside a good hit is worth more than its own words say.

    Args:
        found: evidence by key.
        lenders: the best of its keys; in a fixed order, because replicas must add alike.
        near: the neighbours of a key with their distances, from 1 to the number of shares.
    """
    raised = dict(found)
    for lender in lenders:
        best = found[lender]
        for key, distance in near(lender):
            value = found.get(key, best)
            if value < best:
                raised[key] += NEIGHBOUR_SHARES[distance - 1] * (best - value)
    return raised
