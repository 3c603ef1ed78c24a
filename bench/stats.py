"""Numbers from samples: percentiles, and ratios of what was measured side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Ratio", "Spread", "likely_median", "percentile", "ratio", "spread"]

_NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest of some values: the middle, and the noise around it."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Ratio(Spread):
    """A ratio of two things measured in the same rounds; low and high are those of single rounds."""

    def __str__(self) -> str:
        return f"{self.median:.2f}x ({self.low:.2f}..{self.high:.2f})"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least ``share`` (0..1) of the values do not exceed (nearest rank).

    Raises:
        ValueError: no values, or a share outside 0..1.
    """
    if not values or not 0 <= share <= 1:
        raise ValueError("a percentile needs values and a share of 0..1")
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def spread(values: Sequence[float]) -> Spread:
    """Return median, least and greatest of at least one value."""
    return Spread(statistics.median(values), min(values), max(values))


def likely_median(values: Sequence[float]) -> Spread:
    """Return the median and its confidence interval of 95 %, by ranks (binomial), whatever the distribution is.

    Fewer than six values give no such interval; then low and high are the least and the greatest.
    """
    ranked = sorted(values)
    below = max(math.floor(len(ranked) / 2 - _NORMAL_95 * math.sqrt(len(ranked)) / 2), 0)
    return Spread(statistics.median(ranked), ranked[below], ranked[-1 - below])


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """Return the ratio over rounds: entry i of both was measured in round i, one right after the other.

    The middle is the median of the rounds' ratios, so that a disturbance that hit one round does not move it.

    Raises:
        ValueError: no rounds, a different number of them, or a denominator that is not positive.
    """
    if not numerators or any(value <= 0 for value in denominators):
        raise ValueError("a ratio needs rounds, and denominators above zero")
    each = spread([above / below for above, below in zip(numerators, denominators, strict=True)])
    return Ratio(each.median, each.low, each.high)
