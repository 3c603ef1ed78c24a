"""Background tasks of a process: `Periodic` tasks that a `Scheduler` repeats, with one way to report failures.

A failure of a round does not end its task: it is counted and reported, and the next round follows. `Wake` lets other code
start the next round of a task early.

Cooperative yielding for long computations on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Self

from relayer.lib.work import cancel_all, fraction, uneven
from relayer.ports import Clock, Randomness

OnError = Callable[[BaseException], None]
Report = Callable[[str, BaseException], None]


class Wake:
    """A signal that ends the pause before a task's next round; initially set, so that the first round starts immediately."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._event.set()

    def set(self) -> None:
        """Start the next round now, or as soon as the current one has ended."""
        self._event.set()

    async def wait(self, clock: Clock, seconds: float) -> None:
        """Wait for the signal, for ``seconds`` at most, and clear it."""
        waits = [asyncio.ensure_future(self._event.wait()), asyncio.ensure_future(clock.sleep(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._event.clear()


@dataclass(frozen=True, slots=True)
class Periodic:
    """A task that is repeated until the process ends.

    Attributes:
        round: does the work that is due. It calls its argument with failures after which it continued, and returns the
            seconds until the next round, None for ``every``.
        every: seconds between the end of a round and the next one, and before the first.
        uneven: whether pauses are random: between half and one and a half times their length, and up to ``every`` before
            the first round, so that replicas that were started together do not act in lockstep.
        wake: a signal that ends a pause; None for none.
    """

    name: str
    round: Callable[[OnError], Awaitable[float | None]]
    every: float
    uneven: bool = False
    wake: Wake | None = None


class Scheduler:
    """Runs tasks from `start` to the end of its ``async with`` block, which cancels them and waits for them.

    Args:
        report: called with the task's name and the exception after each failure; the next round follows all the same.

    Attributes:
        failures: the number of failures of each task.
    """

    def __init__(self, clock: Clock, randomness: Randomness, report: Report) -> None:
        self.failures: Counter[str] = Counter()
        self._clock = clock
        self._randomness = randomness
        self._report = report
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel_all(self._running)

    def start(self, task: Periodic) -> None:
        """Start a periodic task."""
        self.spawn(self._repeat(task), task.name)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine once in the background; it handles its own errors, and is cancelled when the scheduler ends."""
        running = asyncio.create_task(work, name=name)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return running

    async def _repeat(self, task: Periodic) -> None:
        def on_error(error: BaseException) -> None:
            self.failures[task.name] += 1
            self._report(task.name, error)

        pause = task.every * fraction(self._randomness) if task.uneven else task.every
        while True:
            wake = task.wake
            await (self._clock.sleep(pause) if wake is None else wake.wait(self._clock, pause))
            wanted = None
            try:
                wanted = await task.round(on_error)
            except Exception as error:  # noqa: BLE001 - any failure is reported, and the next round follows
                on_error(error)
            pause = task.every if wanted is None else wanted
            pause *= uneven(self._randomness) if task.uneven else 1.0


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
