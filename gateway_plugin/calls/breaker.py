"""A circuit breaker: after some failures in a row, ask nobody for a while.

A relayer that hangs would otherwise cost every turn its whole deadline. When the pause is over one call tries again;
the others wait for what it finds.
"""

from __future__ import annotations

from gateway_plugin.clock import Clock
from gateway_plugin.errors import GatewayError, RelayerUnreachable, RelayerUntrusted

__all__ = ["Breaker"]


class Breaker:
    """Counts failures in a row; ``limit`` of them open it for ``cooldown`` seconds (AM-26: 3 and 60)."""

    def __init__(self, clock: Clock, *, limit: int = 3, cooldown: float = 60.0) -> None:
        self._clock = clock
        self._limit = limit
        self._cooldown = cooldown
        self._failures = 0
        self._closed_at = 0.0
        self._last: GatewayError | None = None

    @property
    def remaining(self) -> float:
        """Seconds until the next call may try; 0 while calls go through."""
        if self._failures < self._limit:
            return 0.0
        return max(self._closed_at - self._clock.monotonic(), 0.0)

    def check(self) -> None:
        """Let a call through.

        Raises:
            RelayerUnreachable: not now.
            RelayerUntrusted: not now, and who answered last did not prove to be the relayer.
        """
        if self._failures < self._limit:
            return
        if self.remaining > 0 and isinstance(self._last, RelayerUntrusted):
            raise RelayerUntrusted(f"{self._last} (the next try is in {self.remaining:.0f} s)")
        if self.remaining > 0:
            raise RelayerUnreachable(
                f"the relayer failed {self._failures} times in a row; the next try is in {self.remaining:.0f} s"
            )
        # This call is the trial; until it is over, the others are held off.
        self._closed_at = self._clock.monotonic() + self._cooldown

    def succeeded(self) -> None:
        """Note that the relayer answered."""
        self._failures = 0

    def failed(self, error: GatewayError | None = None) -> None:
        """Note that it did not, and why."""
        self._failures += 1
        self._last = error
        self._closed_at = self._clock.monotonic() + self._cooldown
