"""Long work on the event loop, a millisecond at a time."""

from __future__ import annotations

import asyncio
from time import perf_counter

# What a callback of others waits for, at each of its steps.
_SECONDS = 0.001


class Turns:
    """Gives others a turn whenever this work has held the event loop for a millisecond."""

    def __init__(self) -> None:
        self._since = perf_counter()

    async def give(self) -> None:
        """Return at once, or after everything else that is ready had its turn."""
        if perf_counter() - self._since >= _SECONDS:
            await asyncio.sleep(0)
            self._since = perf_counter()
