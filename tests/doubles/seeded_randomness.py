"""Random bytes that a seed repeats."""

from __future__ import annotations

import random

__all__ = ["SeededRandomness"]


class SeededRandomness:
    """The `Randomness` port for tests: the same seed gives the same bytes. Worthless for keys."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        """Return the next ``count`` bytes of the seed's sequence."""
        return self._random.randbytes(count)
