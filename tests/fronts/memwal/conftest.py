"""A relayer that serves MemWal's clients, and one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from memwal_calls import MemWalCaller

from relayer.testing.local_relayer import LocalRelayer, local_relayer


@pytest.fixture
async def relayer() -> AsyncIterator[LocalRelayer]:
    """A relayer of the test's own, with the settings that it has by itself."""
    async with local_relayer() as relayer:
        yield relayer


@pytest.fixture
def caller(relayer: LocalRelayer) -> MemWalCaller:
    """One key of an account of its own."""
    return MemWalCaller(relayer)
