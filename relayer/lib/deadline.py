"""One deadline per request, and the name of the step that was running when it passed."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType

from relayer.errors import DeadlineExceeded
from relayer.ports import Clock


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

    def step(self, name: str) -> AbstractAsyncContextManager[None]:
        """Bound a step; raises `DeadlineExceeded` with its name when the time is up."""
        return _Step(self.remaining(), name)


class _Step(AbstractAsyncContextManager[None]):
    """A bounded step. A class, because every request has some, and a generator would take twice as long."""

    __slots__ = ("_name", "_timeout")

    def __init__(self, seconds: float, name: str) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._name = name

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError as over:
            raise DeadlineExceeded(self._name) from over
        if isinstance(error, TimeoutError):
            raise DeadlineExceeded(self._name) from error
