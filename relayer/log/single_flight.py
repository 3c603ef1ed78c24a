"""One run of an action shared by everybody who asked before it began.

A caller never shares a run that had begun when it asked: that run may have read the store before something the caller
already knows of was written. At most one run is under way and one is due, however many wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from relayer.errors import RelayerError

__all__ = ["SingleFlight"]


class SingleFlight:
    """Runs ``action`` for its callers, one run at a time, in the task of one of them.

    A cancelled caller cancels nobody else: the next one that waits takes over.
    """

    def __init__(self, action: Callable[[], Awaitable[None]]) -> None:
        self._action = action
        self._turn = asyncio.Lock()
        self._begun = 0
        self._done = 0
        self._failed = 0
        self._failure: RelayerError | None = None

    async def run(self) -> None:
        """Return after a run that began after this call; raises what that run raised."""
        wanted = self._begun + 1
        async with self._turn:
            if self._done >= wanted:
                return
            if self._failed >= wanted and self._failure is not None:
                raise self._failure.with_traceback(None)
            self._begun += 1
            number = self._begun
            try:
                await self._action()
            except RelayerError as error:
                self._failed, self._failure = number, error
                raise
            self._done = number
