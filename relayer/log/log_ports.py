"""What every part of the log is given from outside."""

from __future__ import annotations

from dataclasses import dataclass, field

from relayer.crypto.relayer_keys import RelayerKeys
from relayer.log.layout import Layout
from relayer.ports import Clock, ObjectStore, Randomness

__all__ = ["LogPorts"]


@dataclass(frozen=True, slots=True)
class LogPorts:
    """The store and where in it, the clock, the randomness, and the relayer's keys."""

    store: ObjectStore
    clock: Clock
    randomness: Randomness
    keys: RelayerKeys = field(repr=False)
    layout: Layout = field(default_factory=Layout)
