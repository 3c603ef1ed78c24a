"""The machine's own clock and randomness."""

from __future__ import annotations

import asyncio
import secrets
import time


class SystemClock:
    """This machine's clock, as the `Clock` port."""

    def now_ms(self) -> int:
        """Return the time in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; the value never decreases."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task."""
        await asyncio.sleep(seconds)


class SystemRandomness:
    """The operating system's cryptographically strong generator, as the `Randomness` port."""

    def bytes(self, count: int) -> bytes:
        """Return ``count`` random bytes."""
        return secrets.token_bytes(count)
