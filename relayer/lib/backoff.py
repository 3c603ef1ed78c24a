"""How long to wait before the next attempt: twice as long each time up to a bound, and never all at the same time."""

from __future__ import annotations

from relayer.ports import Randomness
from relayer.wire.retries import doubled

_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 2.0


def fraction(randomness: Randomness) -> float:
    """Return something from 0 to below 1."""
    return int.from_bytes(randomness.bytes(4), "big") / 2**32


def uneven(randomness: Randomness) -> float:
    """Return something between a half and one and a half: what a pause is multiplied by, so that replicas drift apart."""
    return 0.5 + fraction(randomness)


class Backoff:
    """Counts failed attempts of writers that compete, and says how long to wait after each.

    Full jitter (a uniform draw from zero to the cap of the attempt) spreads competitors best, as simulated in "Exponential
    Backoff And Jitter", AWS Architecture Blog, 2015.
    """

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._failures = 0

    def reset(self) -> None:
        """Start over after a success."""
        self._failures = 0

    def next_delay(self, at_least: float = 0.0) -> float:
        """Return the seconds to wait now; ``at_least`` is what the store asked for."""
        cap = doubled(_FIRST_SECONDS, self._failures, _LONGEST_SECONDS)
        self._failures += 1
        return at_least + cap * fraction(self._randomness)
