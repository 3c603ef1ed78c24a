"""Time as the plugin's network side sees it: given as a parameter, so that tests can move it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for signatures and certificates, monotonic time for everything that waits."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start, never going back."""
        ...

    async def sleep(self, seconds: float, /) -> None:
        """Suspend the calling task."""
        ...


class SystemClock:
    """This machine's clock."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)
