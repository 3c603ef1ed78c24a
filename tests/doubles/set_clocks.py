"""Clocks of a relayer that a test sets."""

from __future__ import annotations

from relayer.adapters.system import SystemClock


class AheadClock(SystemClock):
    """This machine's clock: its monotonic time is ``ahead`` seconds ahead, its time of day ``ahead_ms`` milliseconds."""

    ahead = 0.0
    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class StoppedClock(SystemClock):
    """A clock by which nothing is waited for, and no token comes back, until a test moves ``seconds``."""

    seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds
