"""Vectors of one embedding model: what made them, what judges them, and which memories of a namespace have none yet.

A namespace is searched in one space at a time. When the operator changes the model, its memories are embedded anew by the
maintenance, and meanwhile it is searched in the former space: see `relayer.namespaces.projection`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from relayer.ports import EmbeddingModel
from relayer.search.baseline import Calibration

# So many memories may still lack a vector when a namespace cuts over to the new model: while it is written to all the time,
# there is never an instant without any.
_MOST_LEFT = 32
_SHARE_LEFT = 100


@dataclass(slots=True, eq=False)
class CalibratedModel:
    """An embedding model and what turns its evidence into relevance; one for all namespaces, completed once."""

    model: EmbeddingModel
    calibration: Calibration


@dataclass(slots=True, eq=False)
class EmbeddingSpace:
    """The vectors of one model in one namespace.

    Attributes:
        lacking: ids of the memories without a vector of the model, in the order in which they are to get one.
    """

    by: CalibratedModel
    lacking: dict[bytes, None] = field(default_factory=dict)

    @property
    def model(self) -> EmbeddingModel:
        """What makes the vectors."""
        return self.by.model

    @property
    def calibration(self) -> Calibration:
        """What relevance is judged by."""
        return self.by.calibration

    def may_serve(self, memories: int) -> bool:
        """Whether a namespace can be searched here: all its memories have a vector, or all but 1 %, 32 at most."""
        return len(self.lacking) <= min(_MOST_LEFT, memories // _SHARE_LEFT)
