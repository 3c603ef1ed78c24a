"""Vectors of one embedding model, and what turns their evidence into relevance.

A namespace is searched by the vectors of one model at a time. When the operator changes the model, its memories are embedded
anew in the background, and meanwhile it is searched by the former one: see `relayer.namespaces.projection`.
"""

from __future__ import annotations

from dataclasses import dataclass

from relayer.ports import EmbeddingModel
from relayer.search.baseline import Calibration

# So many memories may still lack a vector when a namespace turns to the new model: while it is written to all the time,
# there is never an instant without any.
_MOST_LEFT = 32
_SHARE_LEFT = 100


@dataclass(frozen=True, slots=True)
class EmbeddingSpace:
    """An embedding model with the calibration of its evidence."""

    model: EmbeddingModel
    calibration: Calibration


def few_enough(lacking: int, memories: int) -> bool:
    """Whether a namespace can turn to the new model: all its memories have a vector of it, or all but 1 %, 32 at most."""
    return lacking <= min(_MOST_LEFT, memories // _SHARE_LEFT)
