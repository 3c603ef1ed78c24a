from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from operator_site import Site

from relayer.adapters.memory_store import MemoryStore
from relayer.testing.fake_clock import FakeClock


@pytest.fixture
async def site(calibration) -> AsyncIterator[Site]:
    clock = FakeClock()
    made = Site(clock, MemoryStore(clock), calibration)
    await made.begin()
    yield made
    await made.close()
