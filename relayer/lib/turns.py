"""Cooperative yielding for long computations on the event loop."""

from __future__ import annotations

import asyncio
from time import perf_counter

# The time in seconds for which a computation may hold the event loop, and other callbacks may have to wait.
_SECONDS = 0.001


class Turns:
    """Yields to the event loop whenever a computation has held it for a millisecond."""

    def __init__(self) -> None:
        self._since = perf_counter()

    async def give(self) -> None:
        """Yield to all other ready callbacks if a millisecond has passed since the last time; else return immediately."""
        if perf_counter() - self._since >= _SECONDS:
            await asyncio.sleep(0)
            self._since = perf_counter()
