"""The object stores that the contract runs over.

To add one, write a factory that yields an empty store and enter it in `STORES`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.ports import ObjectStore

StoreFactory = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[ObjectStore]]


@asynccontextmanager
async def memory(_: pytest.FixtureRequest) -> AsyncIterator[ObjectStore]:
    yield MemoryStore(SystemClock())


@asynccontextmanager
async def directory(request: pytest.FixtureRequest) -> AsyncIterator[ObjectStore]:
    path: Path = request.getfixturevalue("tmp_path") / "data"
    store = await DirectoryStore.open(path, clock=SystemClock())
    try:
        yield store
    finally:
        await store.close()


STORES: dict[str, StoreFactory] = {"memory": memory, "directory": directory}


@pytest.fixture(params=sorted(STORES))
async def store(request: pytest.FixtureRequest) -> AsyncIterator[ObjectStore]:
    """An empty object store of each kind."""
    async with STORES[request.param](request) as opened:
        yield opened
