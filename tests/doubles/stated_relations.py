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
        """State the relation of a newer text to an older one or to a clause of one; the rest of the likelihood is that of ``both``."""
        self._stated[_key(old), _key(new)] = (relation, likely)

    async def relations(self, pairs: Sequence[tuple[Sequence[str], str]]) -> list[NDArray[np.float32]]:
        """Return the likelihoods of each pair's relations: rows for the whole older text and for each of its clauses.

        A whole text of which nothing is stated is as likely to be replaced as its likeliest clause.
        """
        self.asked += [(" ".join(clause.strip() for clause in clauses), new) for clauses, new in pairs]
        found = []
        for clauses, new in pairs:
            parts = [self._row(old, new) for old in clauses]
            whole = self._row("".join(clauses), new)
            if (_key("".join(clauses)), _key(new)) not in self._stated:
                whole = max([whole, *parts], key=lambda row: row[RELATIONS.index("replaces")])
            found.append(np.stack([whole, *parts]))
        return found

    def _row(self, old: str, new: str) -> NDArray[np.float32]:
        relation, likely = self._stated.get((_key(old), _key(new)), (self._otherwise, 1.0))
        row = np.zeros(len(RELATIONS), np.float32)
        row[RELATIONS.index("both")] = 1 - likely
        row[RELATIONS.index(relation)] = likely
        return row


def _key(text: str) -> str:
    """Return a text without spaces, and without what ends a clause."""
    return "".join(text.split()).rstrip(",;:")
