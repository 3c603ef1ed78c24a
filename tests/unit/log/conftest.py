from collections.abc import AsyncIterator

import pytest
from log_world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.create()
    yield made
    await made.stop()


@pytest.fixture
async def empty_world() -> World:
    return World()
