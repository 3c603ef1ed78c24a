"""The order of what was found, when more than relevance decides: sources, age, and how alike the hits are.

Whether anything leaves is decided before, by relevance alone: a draft ranks lower here, and is left out by nothing but
the number of hits that were asked for. Relevance falls along the new order all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from relayer.search.found import Hit
from relayer.search.vectors import Vector

__all__ = ["diverse", "faded", "in_order"]


def in_order(hits: Sequence[Hit], scores: Mapping[int, float]) -> list[Hit]:
    """The hits by falling score, ties as they came; none has more relevance than the one before it."""
    least = 1.0
    ordered: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: -scores[hit.key]):
        least = min(least, hit.relevance)
        ordered.append(hit if hit.relevance == least else replace(hit, relevance=least))
    return ordered


def faded(score: float, age: float, half_life: float) -> float:
    """A score after an age in the unit of the half-life; what lies in the future has not aged."""
    return score * 0.5 ** (max(age, 0.0) / half_life) if score > 0 else score


def diverse(
    scores: Mapping[int, float], row: Callable[[int], Vector | None], share: float, count: int
) -> dict[int, float]:
    """Scores that put first what is good and unlike what stands before it, for the ``count`` best.

    Maximal marginal relevance (Carbonell and Goldstein, 1998), with 1 - ``share`` as its lambda.

    Args:
        scores: by key.
        row: the vector of a key; what has none is unlike everything.
        share: 0 leaves the order alone, 1 looks at likeness only.
        count: how many places to fill; the rest keep their order behind them.
    """
    rows = {key: found for key in scores if (found := row(key)) is not None}
    left = sorted(scores, key=lambda key: (-scores[key], key))
    likeness = dict.fromkeys(left, 0.0)
    chosen: list[int] = []
    while left and len(chosen) < count:
        best = max(left, key=lambda key: (1 - share) * scores[key] - share * likeness[key])
        left.remove(best)
        chosen.append(best)
        if best in rows:
            for key in left:
                if key in rows:
                    likeness[key] = max(likeness[key], _cosine(rows[key], rows[best]))
    places = (*chosen, *left)
    return {key: float(len(places) - place) for place, key in enumerate(places)}


def _cosine(one: Vector, other: Vector) -> float:
    return float(one @ other) / float(np.linalg.norm(one) * np.linalg.norm(other))
