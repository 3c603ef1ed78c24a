"""A namespace answers while its index is written, however large it is."""

from __future__ import annotations

import asyncio
import base64
import time

import numpy as np
import pytest

from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.testing.local_relayer import LocalRelayer, local_relayer

DIMENSION = 384
AT_ONCE = 100
# From so many memories on an index takes longer to write than some calls. A call that waits for it takes nearly as long as it.
LEAST = 4_000
_WORDS = (
    "harbour", "kettle", "piano", "winter", "bicycle", "garden", "lisbon", "coffee", "compass", "letter",
)  # fmt: skip


class Caller:
    """Remembers and recalls over HTTP, with vectors of its own."""

    def __init__(self, relayer: LocalRelayer) -> None:
        self._relayer = relayer
        self._random = np.random.default_rng(1)
        self.count = 0

    def _vector(self) -> str:
        row = self._random.standard_normal(DIMENSION).astype(np.float32)
        return base64.b64encode((row / np.linalg.norm(row)).astype("<f4").tobytes()).decode()

    async def remember(self, how_many: int) -> None:
        chosen = self._random.integers(0, len(_WORDS), (how_many, 8))
        items = [
            {
                "text": f"note {self.count + at} of {' '.join(_WORDS[word] for word in words)}",
                "vector": self._vector(),
            }
            for at, words in enumerate(chosen)
        ]
        answer = await self._relayer.call("POST", "/v1/memories", {"items": items})
        assert answer.status_code < 300, answer.text
        self.count += how_many

    async def recall(self) -> None:
        body = {"query": f"note {self.count - 1}", "vector": self._vector(), "limit": 5, "floor": 0}
        answer = await self._relayer.call("POST", "/v1/recall", body)
        assert answer.status_code < 300, answer.text
        assert answer.json()["considered"] == self.count

    async def pair(self) -> float:
        """Remember and recall once; returns how many seconds both took."""
        began = time.perf_counter()
        await self.remember(1)
        await self.recall()
        return time.perf_counter() - began

    async def pairs(self, task: asyncio.Task[object]) -> list[float]:
        """Remember and recall until a task is done; returns how many seconds each pair took."""
        waits = []
        while not task.done():
            waits.append(await self.pair())
        return waits


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((LEAST, 8_000), marks=pytest.mark.tier("all")),
        # A graph of three shards; its rows alone take a minute to be added.
        pytest.param((LEAST, 50_000), marks=[pytest.mark.tier("prove"), pytest.mark.timeout(900)]),
    ],
)
async def test_writes_and_recalls_go_on_through_every_write_of_an_index(sizes):
    async with local_relayer(embedder=HashingEmbedder(DIMENSION), rate_limits="off") as relayer:
        caller = Caller(relayer)
        for size in sizes:
            while caller.count < size:
                await caller.remember(AT_ONCE)
            [opened] = relayer.relayer.context.namespaces.all()
            await opened.tidy_indexes()
            usual = await caller.pair()
            began = time.perf_counter()
            writing = asyncio.create_task(opened.write_index())
            waits = await caller.pairs(writing)
            took = time.perf_counter() - began
            assert (await writing).records >= size
            said = f"{size} memories, index in {took:.2f} s, a pair of calls in {usual:.3f} s, then {[round(wait, 3) for wait in waits]}"
            # A call that waits takes as long as the write. The other bounds allow for calls that are slow by themselves.
            assert max(waits) < max(took / 2, 3 * usual, 0.2), said
