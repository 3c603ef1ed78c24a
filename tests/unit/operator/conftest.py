from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from operator_site import Site

from relayer.adapters.memory_store import MemoryStore
from relayer.search.baseline import Calibration, calibrate
from relayer.testing.fake_clock import FakeClock
from relayer.testing.hashing_embedder import HashingEmbedder


@pytest.fixture(scope="session")
def calibration() -> Calibration:
    return asyncio.run(calibrate(HashingEmbedder()))


@pytest.fixture
async def site(calibration) -> AsyncIterator[Site]:
    clock = FakeClock()
    made = Site(clock, MemoryStore(clock), calibration)
    await made.begin()
    yield made
    await made.close()
