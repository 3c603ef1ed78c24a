"""What a process does beside its requests: named tasks that come again, each failure told in one way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

from relayer.lib.work import fraction, uneven
from relayer.ports import Clock, Randomness

OnError = Callable[[BaseException], None]
Report = Callable[[str, BaseException], None]


class Wake:
    """A signal that a task's next round shall not wait; it is given at first, so that the first round comes at once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._event.set()

    def set(self) -> None:
        """Let the next round begin now, or as soon as the one under way has ended."""
        self._event.set()

    async def wait(self, clock: Clock, seconds: float) -> None:
        """Return when the signal is given, after so many seconds at the latest, and take it back."""
        waits = [asyncio.ensure_future(self._event.wait()), asyncio.ensure_future(clock.sleep(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._event.clear()


@dataclass(frozen=True, slots=True)
class Periodic:
    """A task that comes again until the process ends.

    Attributes:
        name: for logs and counts.
        round: does what is due. It tells its argument about what failed and did not keep it from going on, and returns
            the seconds until the next round, None for the usual ones.
        every: seconds between the end of a round and the next one, and before the first.
        uneven: give or take a half, and anything up to ``every`` before the first round: replicas that were started
            together shall not do the same at the same time.
        wake: ends a pause.
    """

    name: str
    round: Callable[[OnError], Awaitable[float | None]]
    every: float
    uneven: bool = False
    wake: Wake | None = None


class Scheduler:
    """Runs tasks from `start` to the end of its ``async with``, which cancels them and waits for them.

    Args:
        clock: for the pauses.
        randomness: for the uneven ones.
        report: told the task's name and what failed; the task's next round comes all the same.

    Attributes:
        failures: how often something of each task failed.
    """

    def __init__(self, clock: Clock, randomness: Randomness, report: Report) -> None:
        self.failures: Counter[str] = Counter()
        self._clock = clock
        self._randomness = randomness
        self._report = report
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def start(self, task: Periodic) -> None:
        """Run a task from now on."""
        self.spawn(self._repeat(task), task.name)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run something once, which deals with its own failures, and which ends when everything does."""
        running = asyncio.create_task(work, name=name)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return running

    async def _repeat(self, task: Periodic) -> None:
        on_error = partial(self._failed, task.name)
        pause = task.every * fraction(self._randomness) if task.uneven else task.every
        while True:
            await self._pause(pause, task.wake)
            wanted = None
            try:
                wanted = await task.round(on_error)
            except Exception as error:  # noqa: BLE001 - whatever it was, it is told, and the next round comes
                on_error(error)
            pause = task.every if wanted is None else wanted
            pause *= uneven(self._randomness) if task.uneven else 1.0

    async def _pause(self, seconds: float, wake: Wake | None) -> None:
        await (self._clock.sleep(seconds) if wake is None else wake.wait(self._clock, seconds))

    def _failed(self, name: str, error: BaseException) -> None:
        self.failures[name] += 1
        self._report(name, error)
