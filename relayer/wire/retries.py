"""Exponential backoff and a circuit breaker, for calls that the relayer makes and for calls to the relayer."""

from __future__ import annotations

from collections.abc import Callable


def doubled(first: float, failures: int, longest: float) -> float:
    """Return the pause after a failure: ``first``, doubled for each of the ``failures`` in a row before, at most ``longest``.

    Example:
        >>> [doubled(1.0, failures, 10.0) for failures in range(6)]
        [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    """
    return min(longest, first * 2.0 ** min(failures, 30))


class Breaker:
    """A circuit breaker: counts failures in a row, and blocks calls for a while from the ``limit``-th failure on.

    Args:
        monotonic: returns the time in seconds.
        limit: the number of failures in a row from which calls are blocked.
        first: seconds of the first pause; each further failure doubles it.
        longest: maximum seconds of a pause.
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
        """Return the seconds until the next call may be tried; 0 while calls are not blocked."""
        return max(self._until - self._monotonic(), 0.0)

    def wait(self) -> float:
        """Return the seconds until a call may be tried; 0 lets the caller try now.

        After the limit of failures, the caller that gets 0 makes the trial call, and other calls are blocked for another pause.
        """
        left = self.remaining
        if not left and self.failures >= self._limit:
            self._until = self._monotonic() + self._pause()
        return left

    def succeeded(self) -> None:
        """Record that a call succeeded."""
        self.failures = 0
        self._until = float("-inf")

    def failed(self, at_least: float = 0.0) -> None:
        """Record that a call failed.

        Args:
            at_least: seconds for which the server asked not to be called; this blocks calls even below the limit of failures.
        """
        self.failures += 1
        pause = self._pause() if self.failures >= self._limit else 0.0
        self._until = max(self._until, self._monotonic() + max(pause, at_least))

    def _pause(self) -> float:
        return doubled(self._first, self.failures - self._limit, self._longest)
