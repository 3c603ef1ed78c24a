"""The object stores that the contract runs over.

To add a store, write a factory that yields an empty one and enter it in `STORES`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from s3_servers import BUCKET, CREDENTIALS, KeptClient, S3Server
from store_processes import two_processes

from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.s3_store import S3Store, Timeouts
from relayer.adapters.s3_store.client import Client
from relayer.adapters.s3_store.store import THREADS
from relayer.adapters.system import SystemClock
from relayer.ports import ObjectStore

StoreFactory = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[ObjectStore]]


@asynccontextmanager
async def memory(_: pytest.FixtureRequest) -> AsyncIterator[ObjectStore]:
    yield MemoryStore(SystemClock())


@asynccontextmanager
async def directory(request: pytest.FixtureRequest) -> AsyncIterator[ObjectStore]:
    path: Path = request.getfixturevalue("tmp_path") / "data"
    # What it tries of the file system is tested in test_directory_store_start.py, once.
    store = await DirectoryStore.open(path, clock=SystemClock(), tried=True)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def directory_of_two(request: pytest.FixtureRequest) -> AsyncIterator[ObjectStore]:
    """What one of two processes was told, the other must know: they are asked in turn."""
    async with two_processes(request.getfixturevalue("tmp_path") / "data") as store:
        yield store


@pytest.fixture(scope="session")
def in_seaweedfs(seaweed: S3Server) -> Iterator[Client]:
    yield from _client(seaweed)


@pytest.fixture(scope="session")
def in_moto(moto_server: S3Server) -> Iterator[Client]:
    yield from _client(moto_server)


def _client(server: S3Server) -> Iterator[Client]:
    """One client for all tests, because making one takes longer than most of them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        client = Client(BUCKET, server.url, None, THREADS, Timeouts())
    yield client
    client.close()


def _emptied(server: str, client: str, prefix: str = "") -> StoreFactory:
    @asynccontextmanager
    async def emptied(request: pytest.FixtureRequest) -> AsyncIterator[ObjectStore]:
        request.getfixturevalue(server).empty()
        kept = KeptClient(request.getfixturevalue(client))
        store = S3Store(kept, BUCKET, SystemClock(), Timeouts(), prefix=prefix)
        try:
            yield store
        finally:
            await store.close()

    return emptied


STORES: dict[str, StoreFactory] = {
    "memory": memory,
    "directory": directory,
    "directory-of-two-processes": directory_of_two,
    "seaweedfs": _emptied("seaweed", "in_seaweedfs"),
    "moto": _emptied("moto_server", "in_moto"),
    "moto-below-a-prefix": _emptied("moto_server", "in_moto", "deep/er"),
}


def _params(names: Iterable[str]) -> list[Any]:
    """Servers are started by name, where tests/tiers.py does not see it."""
    here = {"memory", "directory"}
    return [
        pytest.param(name, marks=() if name in here else pytest.mark.tier("all")) for name in sorted(names)
    ]


@pytest.fixture(params=_params(STORES))
async def store(request: pytest.FixtureRequest) -> AsyncIterator[ObjectStore]:
    """An empty object store of each kind."""
    async with STORES[request.param](request) as opened:
        yield opened


@pytest.fixture(params=_params(name for name in STORES if not name.startswith("moto")))
async def raced_store(request: pytest.FixtureRequest) -> AsyncIterator[ObjectStore]:
    """An empty object store of each kind that keeps its promises to many at once: moto checks and writes in two steps."""
    async with STORES[request.param](request) as opened:
        yield opened
