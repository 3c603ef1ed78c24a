"""Retrieval measures, macro over questions: the share of the evidence among the first k, and how early it comes."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["CUTS", "Scores"]

CUTS = (5, 10, 20)


class Scores:
    """Collects one ranking after the other. All measures are in percent."""

    def __init__(self) -> None:
        self._recall: dict[int, list[float]] = {cut: [] for cut in CUTS}
        self._reciprocal: list[float] = []
        self._gain: list[float] = []

    def __len__(self) -> int:
        return len(self._reciprocal)

    def add(self, found: Sequence[str], evidence: Sequence[str]) -> None:
        """Add a ranking, best first, of ids that may include those of the evidence (at least one)."""
        wanted = set(evidence)
        places = sorted(at for at, item in enumerate(found) if item in wanted)
        for cut, values in self._recall.items():
            values.append(sum(at < cut for at in places) / len(wanted))
        self._reciprocal.append(1 / (1 + places[0]) if places else 0.0)
        best = sum(1 / math.log2(2 + at) for at in range(min(len(wanted), 10)))
        self._gain.append(sum(1 / math.log2(2 + at) for at in places if at < 10) / best)

    def means(self) -> dict[str, float]:
        """Return r@5, r@10, r@20, MRR and nDCG@10."""
        named = {f"r@{cut}": values for cut, values in self._recall.items()}
        named |= {"MRR": self._reciprocal, "nDCG@10": self._gain}
        return {name: 100 * sum(values) / len(values) if values else 0.0 for name, values in named.items()}
