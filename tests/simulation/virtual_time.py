"""An event loop on which time passes only when everybody waits, and then at once."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _Jumping(selectors.DefaultSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everybody waits for something that will never happen")
        self.loop.elapsed += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """No sockets, no threads: what runs on it is decided by its tasks alone."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.elapsed

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Do a thread's work at once, here: a thread would end whenever it likes."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever waits for it gets it
            done.set_exception(error)
        return done


class VirtualClock:
    """The `Clock` port over the loop's time."""

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class WrongClock:
    """A machine's clock: hours off, and set anew now and then. Only `monotonic` can be relied on."""

    def __init__(self, clock: VirtualClock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._error_ms = rng.randint(-7_200_000, 7_200_000)

    def now_ms(self) -> int:
        if self._rng.random() < 0.05:
            self._error_ms = self._rng.randint(-7_200_000, 7_200_000)
        return self._clock.now_ms() + self._error_ms

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(work)
