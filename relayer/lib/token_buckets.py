"""Token buckets by name: how much of something each caller may use, in a table that cannot grow without bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cachetools import LRUCache


@dataclass(frozen=True, slots=True)
class Limit:
    """Room for ``capacity`` tokens, of which ``per_second`` come back each second."""

    capacity: float
    per_second: float


class Buckets:
    """One bucket per name, full at first sight. Beyond ``most`` names the one unused for longest is forgotten."""

    def __init__(self, limit: Limit, *, most: int = 20_000) -> None:
        self._limit = limit
        self._levels: LRUCache[str, tuple[float, float]] = LRUCache(most)

    def wait(self, name: str, cost: float, now: float) -> float:
        """Return the seconds until ``cost`` tokens are there; 0 when they are. ``now`` is monotonic, in seconds.

        A cost above the capacity waits for a full bucket, and then gets through.
        """
        lacking = min(cost, self._limit.capacity) - self._level(name, now)
        # Refilling adds rounding errors; a caller that waited exactly as told must get in.
        return lacking / self._limit.per_second if lacking > 1e-6 else 0.0

    def spend(self, name: str, cost: float, now: float) -> None:
        """Take tokens, down to an empty bucket; a cost below zero gives them back, up to a full one."""
        self._levels[name] = (max(0.0, self._level(name, now) - cost), now)

    def __len__(self) -> int:
        return len(self._levels)

    def _level(self, name: str, now: float) -> float:
        level, at = self._levels.get(name, (self._limit.capacity, now))
        return min(self._limit.capacity, level + max(0.0, now - at) * self._limit.per_second)


def take(buckets: Sequence[tuple[Buckets, str]], cost: float, now: float) -> float:
    """Take ``cost`` tokens from every bucket, or from none: returns the seconds to wait, 0 when taken."""
    wait = max(table.wait(name, cost, now) for table, name in buckets)
    if not wait:
        for table, name in buckets:
            table.spend(name, cost, now)
    return wait
