"""`relevance`: the one score that leaves the relayer, and the decision to stay silent.

The question behind it: *would a prompt that has nothing to do with this namespace find something this good?* The
best of n unrelated memories scores higher the larger n is, so evidence is compared with the **null**: the
distribution of the best evidence that unrelated prompts find among n memories. Its 99 % quantile is relevance 0.3 by
definition; a floor of 0.3 therefore lets 1 % of unrelated prompts pass, in a namespace of one memory as in one of
thousands.

The decision is taken per prompt, on its best memory; the others inherit the prompt's relevance in proportion to
their evidence. A floor on each item alone would cost far more recall at the same rate of unwanted injection.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import exp, log

import numpy as np
from numpy.typing import NDArray

__all__ = ["CALIBRATION_POINT", "Null", "Prior", "gate", "null_for", "prompt_relevance"]

CALIBRATION_POINT = 0.3

# From this size on a namespace's own null counts, and from twice this size it counts alone.
ENOUGH_MEMORIES = 200
# How far a namespace's own quantile may leave the prior: probes that are about the namespace's own subject are
# related to it, and must not silence it.
MOST_ABOVE_PRIOR = 0.05
MOST_BELOW_PRIOR = 0.20
# The null beyond the largest size of a prior goes on with this share of its slope over the decade before: what short
# texts have in common by chance is used up slowly. In namespaces of 400 to 3,000 turns it rises by 0.04 to 0.07 for
# each e-fold, and that of the prior by 0.08 (docs/adr/0011).
SLOPE_BEYOND = 0.5
_DECADE = 10
# Keeps the scale of relevance finite where unrelated prompts find nothing at all.
NARROWEST = 0.1


@dataclass(frozen=True, slots=True)
class Null:
    """Quantiles (50 % and 99 %) of the best evidence that unrelated prompts find."""

    median: float
    high: float


@dataclass(frozen=True, slots=True)
class Prior:
    """The null by namespace size, measured on texts that ship with it.

    Attributes:
        points: (size, null) with rising sizes, the first of them 1; linear in ln(size) between them, because the
            largest of n draws from a tail that falls exponentially rises with ln(n) (Gumbel, "Statistics of
            Extremes", 1958), and beyond the last with `SLOPE_BEYOND` of the slope of the last decade.
    """

    points: tuple[tuple[int, Null], ...]

    def at(self, size: int) -> Null:
        """The null among ``size`` memories."""
        for (small, below), (large, above) in pairwise(self.points):
            if size < large:
                return _between(below, above, log(max(size, small) / small) / log(large / small))
        last, end = self.points[-1]
        start, begin = next(
            (point for point in reversed(self.points) if _DECADE * point[0] <= last), self.points[0]
        )
        beyond = SLOPE_BEYOND * log(max(size, last) / last) / log(last / start) if last > start else 0.0
        return _between(begin, end, 1 + beyond)


def null_for(size: int, prior: Prior, own: Null | None = None, own_size: int = 0) -> Null:
    """The null to judge by when ``size`` memories are searched.

    Args:
        size: memories that the prompt is compared with, after filters.
        prior: the model's.
        own: as measured in this namespace, or None.
        own_size: memories in the namespace when ``own`` was measured.
    """
    expected = prior.at(size)
    weight = min(1.0, max(0.0, (own_size - ENOUGH_MEMORIES) / ENOUGH_MEMORIES))
    if own is None or weight == 0.0:
        return expected
    # A filter leaves fewer memories than the null was measured with.
    fewer = expected.high - prior.at(own_size).high
    high = _within(own.high + fewer, expected.high)
    median = min(own.median + fewer, high)
    return Null(
        median=(1 - weight) * expected.median + weight * median,
        high=(1 - weight) * expected.high + weight * high,
    )


def prompt_relevance(best: float, null: Null) -> float:
    """Relevance of a prompt whose best memory has this evidence; 0..1, rising, 0.3 at the null's 99 % quantile."""
    if best <= 0:
        return 0.0
    width = max(null.high - null.median, NARROWEST)
    steps = 1 + (best - null.high) / width
    if steps <= 0:
        return 0.0
    if steps <= 1:
        return CALIBRATION_POINT * steps
    # Approaches 1 with the slope it arrives with.
    rest = 1 - CALIBRATION_POINT
    return 1 - rest * exp(-(steps - 1) * CALIBRATION_POINT / rest)


def gate(evidence: NDArray[np.float64], relevance: float, floor: float) -> list[tuple[int, float]]:
    """What may leave, as (index, relevance), best first, ties by index; empty when the prompt does not pass.

    Args:
        evidence: what each candidate ranks by, see `relayer.search.ranking`; any order.
        relevance: of the prompt, see `prompt_relevance`.
        floor: least relevance; 0 returns everything with its relevance.
    """
    if not len(evidence) or relevance < floor:
        return []
    best = max(float(evidence.max()), 0.0)
    each = relevance * (np.maximum(evidence, 0.0) / best) if best > 0 else np.zeros_like(evidence)
    # Stable: what ties stays in the order of its index.
    order = np.argsort(-evidence, kind="stable")
    order = order[each[order] >= floor]
    return list(zip(order.tolist(), each[order].tolist(), strict=True))


def _between(below: Null, above: Null, share: float) -> Null:
    return Null(
        median=below.median + share * (above.median - below.median),
        high=below.high + share * (above.high - below.high),
    )


def _within(own: float, expected: float) -> float:
    return min(max(own, expected - MOST_BELOW_PRIOR), expected + MOST_ABOVE_PRIOR)
