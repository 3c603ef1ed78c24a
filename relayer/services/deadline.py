"""One deadline per request, and the name of the step that was running when it passed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from relayer.errors import DeadlineExceeded
from relayer.ports import Clock

__all__ = ["Deadline"]


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the clock's monotonic scale, in seconds."""

    clock: Clock
    at: float

    @classmethod
    def after(cls, clock: Clock, seconds: float) -> Deadline:
        """Make a deadline that many seconds from now."""
        return cls(clock, clock.monotonic() + seconds)

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - self.clock.monotonic())

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Bound a step; raises `DeadlineExceeded` with its name when the time is up."""
        try:
            async with asyncio.timeout(self.remaining()):
                yield
        except TimeoutError as error:
            raise DeadlineExceeded(name) from error
