"""The clock of the plugin, which is passed as a parameter so that tests can control the time.

`Clock` is the interface. `SystemClock` implements it with the functions of the standard library.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A source of time: wall time for signatures and certificates, monotonic time for deadlines and pauses."""

    def now(self) -> float:
        """Return the wall time, in seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start; the value never decreases."""
        ...

    async def sleep(self, seconds: float, /) -> None:
        """Suspend the calling task for a number of seconds."""
        ...


class SystemClock:
    """The clock of this machine."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)
