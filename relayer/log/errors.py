"""Errors of the log that its callers decide on, beyond those of `relayer.errors`.

RelayerError
├─ RollbackDetected       the store shows less, or other, than somebody remembers: do not trust it
└─ PositionUnknown        too old to say: take the current position and go on
"""

from __future__ import annotations

from relayer.domain.namespace import Position
from relayer.errors import RelayerError

__all__ = ["PositionUnknown", "RollbackDetected"]


class RollbackDetected(RelayerError):
    """Raised when a remembered position is above the log's head, or is in the log with another digest."""


class PositionUnknown(RelayerError):
    """Raised when a remembered position is older than every digest that is kept.

    Attributes:
        current: the log's position, which the caller may remember instead.
    """

    def __init__(self, current: Position) -> None:
        super().__init__("the remembered position is older than what this relayer keeps")
        self.current = current
