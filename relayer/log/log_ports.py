"""What every part of the log is given from outside, and what it raises."""

from __future__ import annotations

from dataclasses import dataclass, field

from relayer.crypto.relayer_keys import RelayerKeys
from relayer.domain.namespace import Position
from relayer.errors import RelayerError
from relayer.log.layout import Layout
from relayer.ports import Clock, ObjectStore, Randomness

TRUST_MS = 10 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogPorts:
    """The store and where in it, the clock, the randomness, and the relayer's keys.

    Attributes:
        trust_ms: for how long an answer of the manifest vouches for slots, by the store's time; 0 reads it again for
            every answer. Must be well below the time that any relayer of this store lets pass before it deletes.
    """

    store: ObjectStore
    clock: Clock
    randomness: Randomness
    keys: RelayerKeys = field(repr=False)
    layout: Layout = field(default_factory=Layout)
    trust_ms: int = TRUST_MS


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
