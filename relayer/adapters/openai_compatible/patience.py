"""When to try again, and when to stop asking for a while, so that an outage does not multiply the load.

Retries are paid from a bucket that successes fill: at rest a few, in an outage none, as in gRPC's retry throttling
(proposal A6). Beside it a breaker: after several failures in a row, requests are refused at once for a growing time,
and then one is let through to see.
"""

from __future__ import annotations

from relayer.ports import Clock

__all__ = ["Breaker", "RetryBudget"]


class RetryBudget:
    """Tokens for retries: each costs one, each success gives back a tenth."""

    def __init__(self, capacity: float = 10.0, per_success: float = 0.1) -> None:
        self._capacity = capacity
        self._per_success = per_success
        self._tokens = capacity

    def take(self) -> bool:
        """Pay for one retry, if it can be paid."""
        # Ten tenths are a little less than one.
        if self._tokens < 1.0 - 1e-6:
            return False
        self._tokens = max(0.0, self._tokens - 1.0)
        return True

    def succeeded(self) -> None:
        """Note a request that worked."""
        self._tokens = min(self._capacity, self._tokens + self._per_success)


class Breaker:
    """Says whether to ask at all.

    Attributes:
        reason: why the last request failed; empty after a success.
    """

    def __init__(
        self, clock: Clock, *, failures: int = 3, first_pause: float = 1.0, longest_pause: float = 30.0
    ) -> None:
        self._clock = clock
        self._allowed = failures
        self._first = first_pause
        self._longest = longest_pause
        self._failures = 0
        self._until = float("-inf")
        self.reason = ""

    def wait(self) -> float:
        """Return the seconds until a request is let through; 0 now. Who gets 0 in an outage is alone for a while."""
        left = self._until - self._clock.monotonic()
        if left > 0:
            return left
        if self._failures >= self._allowed:
            self._until = self._clock.monotonic() + self._pause()
        return 0.0

    def succeeded(self) -> None:
        """Note that the endpoint answered."""
        self._failures = 0
        self._until = float("-inf")
        self.reason = ""

    def failed(self, reason: str, retry_after: float | None = None) -> None:
        """Note that it did not; ``retry_after`` holds back everybody, because it was said to this relayer."""
        self._failures += 1
        self.reason = reason
        pause = self._pause() if self._failures >= self._allowed else 0.0
        self._until = max(self._until, self._clock.monotonic() + max(pause, retry_after or 0.0))

    def _pause(self) -> float:
        return min(self._longest, self._first * 2.0 ** min(self._failures - self._allowed, 10))
