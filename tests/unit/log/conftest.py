from collections.abc import AsyncIterator

import pytest
from erasing_world import ErasingWorld
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


@pytest.fixture
async def erasing_world() -> AsyncIterator[ErasingWorld]:
    made = ErasingWorld()
    await made.create()
    yield made
    await made.stop()
