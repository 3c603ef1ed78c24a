"""A relayer for the tests of integrations, and memories of a new agent."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from stoppable_relayer import StoppableRelayer

from memrelay import AsyncMemory
from relayer.testing.local_relayer import LocalRelayer, threaded_relayer

# Each test has an agent of its own; the relayer limits how many accounts a client creates.
_SECRET = "5e" * 32
_numbers = itertools.count()


def unopened_memory(relayer: LocalRelayer, home: Path) -> AsyncMemory:
    environ = {"HOME": str(home)}
    return AsyncMemory(agent=f"agent{next(_numbers)}", url=relayer.url, secret=_SECRET, environ=environ)


@pytest.fixture(scope="module")
def relayer() -> Iterator[LocalRelayer]:
    with threaded_relayer() as running:
        yield running


@pytest.fixture
async def memory(relayer: LocalRelayer, tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    async with unopened_memory(relayer, tmp_path) as made:
        yield made


@pytest.fixture
def unopened(relayer: LocalRelayer, tmp_path: Path) -> AsyncMemory:
    """Memories for synchronous code, whose connections close with the event loop that opens them."""
    return unopened_memory(relayer, tmp_path)


@pytest.fixture
async def stoppable() -> AsyncIterator[StoppableRelayer]:
    relayer = StoppableRelayer()
    await relayer.start()
    yield relayer
    await relayer.stop()


@pytest.fixture
async def away(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    """Memories of a relayer that is not there: nothing listens on the discard port of the loopback address."""
    async with AsyncMemory(
        url="http://127.0.0.1:9", secret="5a" * 32, environ={"HOME": str(tmp_path)}
    ) as made:
        yield made
