"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["FakeClock"]

T = TypeVar("T")

# How often everybody else may run before nothing more is expected of the tasks that do not sleep.
_TURNS = 50
_IDLE_TURNS = 20_000


class FakeClock:
    """The `Clock` port under a test's control.

    Tasks that sleep wake in the order of their deadlines, and each sees the clock at its own deadline. What runs in
    threads or waits for a socket is not the clock's to know: `run` gives such work turns of the event loop, no more.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = float(now_ms)
        self._monotonic = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as set."""
        return int(self._now_ms)

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._monotonic

    @property
    def sleeping(self) -> int:
        """How many tasks sleep now."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved by ``seconds``; zero or less only yields."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._order += 1
        heapq.heappush(self._sleepers, (self._monotonic + seconds, self._order, future))
        await future

    def jump(self, seconds: float) -> None:
        """Set the time of day forwards or back, as an operator or NTP does; nobody wakes."""
        self._now_ms += seconds * 1000

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass and wake who sleeps until then, whoever falls asleep meanwhile included."""
        end = self._monotonic + seconds
        await self._settle()
        while (deadline := self._next_deadline()) is not None and deadline <= end:
            self._wake_first()
            await self._settle()
        self._move_to(end)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` to its end, jumping to the next deadline whenever everybody sleeps.

        Raises `RuntimeError` when nobody sleeps and the work still does not get on.
        """
        task = asyncio.ensure_future(work)
        idle = 0
        try:
            while not task.done():
                await self._settle()
                if task.done():
                    break
                if self._next_deadline() is None:
                    idle += _TURNS
                    if idle > _IDLE_TURNS:
                        raise RuntimeError("the work waits for something that is not this clock")
                    continue
                idle = 0
                self._wake_first()
        finally:
            if not task.done():
                task.cancel()
        return await task

    async def _settle(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    def _next_deadline(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():  # its task was cancelled
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _wake_first(self) -> None:
        deadline, _, future = heapq.heappop(self._sleepers)
        self._move_to(deadline)
        future.set_result(None)

    def _move_to(self, monotonic: float) -> None:
        self._now_ms += (monotonic - self._monotonic) * 1000
        self._monotonic = monotonic
