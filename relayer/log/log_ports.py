"""What every part of the log is given from outside."""

from __future__ import annotations

from dataclasses import dataclass, field

from relayer.crypto.relayer_keys import RelayerKeys
from relayer.log.layout import Layout
from relayer.ports import Clock, ObjectStore, Randomness

__all__ = ["TRUST_MS", "LogPorts"]

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
