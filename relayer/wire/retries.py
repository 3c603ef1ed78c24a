"""How long to wait after a failure, and when not to ask at all: the same for what a relayer asks and what asks a relayer."""

from __future__ import annotations

from collections.abc import Callable


def doubled(first: float, failures: int, longest: float) -> float:
    """Return the pause after a failure, when there were ``failures`` in a row before: ``first``, doubled for each."""
    return min(longest, first * 2.0 ** min(failures, 30))


class Breaker:
    """Counts failures in a row and holds calls back from the ``limit``-th on.

    Args:
        monotonic: the time in seconds.
        limit: failures that hold nobody back yet, and one more.
        first: seconds of the first pause; each further failure doubles it.
        longest: seconds of the longest one.
    """

    def __init__(self, monotonic: Callable[[], float], *, limit: int, first: float, longest: float) -> None:
        self.failures = 0
        self._monotonic = monotonic
        self._limit = limit
        self._first = first
        self._longest = longest
        self._until = float("-inf")

    @property
    def remaining(self) -> float:
        """Seconds until the next call may try; 0 while calls go through."""
        return max(self._until - self._monotonic(), 0.0)

    def wait(self) -> float:
        """Return the seconds until a call may try; 0 now, and then the others are held back until that trial is over."""
        left = self.remaining
        if not left and self.failures >= self._limit:
            self._until = self._monotonic() + self._pause()
        return left

    def succeeded(self) -> None:
        """Note that whoever is asked answered."""
        self.failures = 0
        self._until = float("-inf")

    def failed(self, at_least: float = 0.0) -> None:
        """Note that he did not; ``at_least`` are seconds that he asked for, which hold everybody back at once."""
        self.failures += 1
        pause = self._pause() if self.failures >= self._limit else 0.0
        self._until = max(self._until, self._monotonic() + max(pause, at_least))

    def _pause(self) -> float:
        return doubled(self._first, self.failures - self._limit, self._longest)
