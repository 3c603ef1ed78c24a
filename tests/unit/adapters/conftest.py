"""One loaded model for the tests of a module."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from relayer.adapters.local_embedder import LocalEmbedder


@pytest.fixture(scope="module")
def multilingual() -> Iterator[LocalEmbedder]:
    """The multilingual model, loaded."""
    embedder = LocalEmbedder("multilingual")
    asyncio.run(embedder.load())
    yield embedder
    asyncio.run(embedder.close())
