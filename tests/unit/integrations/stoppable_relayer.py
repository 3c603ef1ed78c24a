"""A relayer that goes away and comes back."""

from __future__ import annotations

from contextlib import AsyncExitStack

from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.testing.local_relayer import local_relayer


class StoppableRelayer:
    """A relayer that can be stopped, and started again at the same address over the same store."""

    def __init__(self) -> None:
        self._store = MemoryStore(SystemClock())
        self._running = AsyncExitStack()
        self.url = "http://127.0.0.1:0"

    async def start(self) -> None:
        port = int(self.url.rpartition(":")[2])
        started = local_relayer(self._store, port=port, rate_limits="off")
        self.url = (await self._running.enter_async_context(started)).url

    async def stop(self) -> None:
        await self._running.aclose()
