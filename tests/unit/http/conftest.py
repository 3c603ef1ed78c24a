from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from border import Border, border


@pytest.fixture
async def at() -> AsyncIterator[Border]:
    """A relayer with nothing in it."""
    async with border() as running:
        yield running
