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

__all__ = ["LoopThread"]

_T = TypeVar("_T")


class LoopThread:
    """A started loop; `close` ends it. The thread is a daemon: a forgotten `close` never keeps a process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop and return what it returns; an interrupt here cancels it there.

        Raises:
            RuntimeError: the loop is closed, or belongs to the process that this one was forked from.
        """
        if os.getpid() != self._process or not self._thread.is_alive():
            work.close()
            raise RuntimeError("this object is closed, or was made before a fork: make a new one")
        future: concurrent.futures.Future[_T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and wait for its thread; a second call does nothing."""
        if os.getpid() != self._process or not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
