"""How long to wait before the next attempt: exponential, capped, with full jitter.

Full jitter (a uniform draw from zero to the cap of the attempt) spreads competing clients best, as simulated in "Exponential
Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

from relayer.ports import Randomness

_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 2.0


class Backoff:
    """Counts failed attempts and says how long to wait after each."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._failures = 0

    def reset(self) -> None:
        """Start over after a success."""
        self._failures = 0

    def next_delay(self, at_least: float = 0.0) -> float:
        """Return the seconds to wait now; ``at_least`` is what the store asked for."""
        cap = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(self._failures, 10))
        self._failures += 1
        draw = int.from_bytes(self._randomness.bytes(4), "big") / 2**32
        return at_least + cap * draw
