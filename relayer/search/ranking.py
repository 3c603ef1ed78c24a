"""One number from two kinds of evidence, in units that compare across queries.

Fusions that rescale each query's scores rank as well, but what they return says nothing about whether the best hit
is any good. Raw cosine plus covered share of the query's terms does both (docs/adr/0003).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["TERM_WEIGHT", "coverage", "evidence"]

Number = TypeVar("Number", float, NDArray[np.floating])

# A full match of the query's terms is worth this much cosine.
TERM_WEIGHT = 0.7


def coverage(bm25: float, ceiling: float) -> float:
    """BM25 as a share of what a text with every term of the query would score; 0 for a query without terms."""
    return bm25 / ceiling if ceiling > 0 else 0.0


def evidence(cosine: Number, covered: Number) -> Number:
    """What speaks for a memory, or for each of several; ranks within a query, and is judged across queries."""
    return cosine + TERM_WEIGHT * covered
