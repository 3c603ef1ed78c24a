"""An event loop on a thread of its own: how code that is not asynchronous uses code that is.

One implementation serves both forms of the plugin; the sync form hands each call over and waits. Work that goes on
between calls, such as delivering captures, keeps running on the loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["LoopClosed", "LoopThread"]

_T = TypeVar("_T")


class LoopClosed(RuntimeError):
    """Raised when the loop is closed, was closed during the call, or belongs to the process this one was forked from."""

    def __init__(self) -> None:
        super().__init__("this object is closed, or was made before a fork: make a new one")


class LoopThread:
    """A started loop; `close` ends it. The thread is a daemon: a forgotten `close` never keeps a process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        # Held while work is handed over, so that nothing is handed to a loop that has ended.
        self._gate = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop and return what it returns; an interrupt here cancels it there.

        Raises:
            LoopClosed: it will not be finished.
        """
        future = self._handed_over(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise LoopClosed from error
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and wait for its thread; calls under way end with `LoopClosed`. A second call does nothing."""
        if os.getpid() != self._process:
            return
        with self._gate:
            was_open, self._open = self._open, False
        if was_open:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _handed_over(self, work: Coroutine[Any, Any, _T]) -> concurrent.futures.Future[_T]:
        # The process first: a fork copies the lock in whatever state it was.
        if os.getpid() == self._process:
            with self._gate:
                if self._open:
                    return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise LoopClosed

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._end_tasks()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(_turns())
            self._loop.close()

    def _end_tasks(self) -> None:
        """Cancel what still runs: whoever waits for it in another thread would wait for ever."""
        while tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(tasks))


async def _turns() -> None:
    """Let connections that were told to close do so: asyncio closes a socket in the turn after the one it was told in."""
    for _ in range(3):
        await asyncio.sleep(0)
