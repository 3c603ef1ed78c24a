"""A reader of relations without a model: it knows the relations that a test states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relayer.ports import RELATIONS


class StatedRelations:
    """A `RelationReader` that answers what a test states.

    Args:
        otherwise: the relation of all other pairs.

    Attributes:
        asked: the pairs that were read, in order.
    """

    def __init__(self, otherwise: str = "both") -> None:
        self.asked: list[tuple[str, str]] = []
        self._otherwise = otherwise
        self._stated: dict[tuple[str, str], tuple[str, float]] = {}

    def state(self, old: str, new: str, relation: str, likely: float = 1.0) -> None:
        """State the relation of a newer text to an older one, and its likelihood; the rest is that of ``both``."""
        self._stated[old, new] = (relation, likely)

    async def relations(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Return the likelihoods of each pair's relations, of shape (len(pairs), 4)."""
        self.asked += pairs
        read = np.zeros((len(pairs), len(RELATIONS)), np.float32)
        for row, pair in zip(read, pairs, strict=True):
            relation, likely = self._stated.get(pair, (self._otherwise, 1.0))
            row[RELATIONS.index("both")] = 1 - likely
            row[RELATIONS.index(relation)] = likely
        return read
