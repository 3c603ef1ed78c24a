"""A clock for tests, which moves only when the test says so."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# Iterations of the event loop after which tasks that do not sleep are assumed to have made all the progress they can.
_TURNS = 50
_IDLE_TURNS = 20_000


class FakeClock:
    """A `Clock` that is controlled by a test.

    Sleeping tasks wake in the order of their deadlines, and each sees the clock at its own deadline. The clock does not know of
    work in threads or on sockets: `run` gives it iterations of the event loop, and does not wait for it otherwise.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = float(now_ms)
        self._monotonic = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = 0

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, as set."""
        return int(self._now_ms)

    def monotonic(self) -> float:
        """Return seconds since this clock was created."""
        return self._monotonic

    @property
    def sleeping(self) -> int:
        """The number of tasks that are sleeping."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has moved by ``seconds``; zero or less only yields to other tasks."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._order += 1
        heapq.heappush(self._sleepers, (self._monotonic + seconds, self._order, future))
        await future

    def jump(self, seconds: float) -> None:
        """Move the time of day forwards or back, as an operator or NTP does; no sleeping task wakes.

        Example:
            >>> clock = FakeClock()
            >>> before = clock.now_ms()
            >>> clock.jump(60)
            >>> clock.now_ms() - before
            60000
        """
        self._now_ms += seconds * 1000

    async def advance(self, seconds: float) -> None:
        """Move the clock by ``seconds``, waking every task whose sleep ends by then, including sleeps that begin meanwhile."""
        end = self._monotonic + seconds
        await self._settle()
        while (deadline := self._next_deadline()) is not None and deadline <= end:
            self._wake_first()
            await self._settle()
        self._move_to(end)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` to completion, moving the clock to the next deadline whenever all tasks sleep.

        Raises:
            RuntimeError: no task sleeps, and the work makes no progress.
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
