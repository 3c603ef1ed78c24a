"""A namespace answers while its index is written, however large it is."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable

import numpy as np
import pytest

from relayer.maintenance.indexes import IndexLimits, IndexMaintenance
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.testing.local_relayer import LocalRelayer, local_relayer

DIMENSION = 384
AT_ONCE = 100
# A call that waits for an index waits for nearly all of its writing; one that shares the processor with it, for a slice.
SHARE, TIMES = 1 / 3, 10
_WORDS = (
    "harbour",
    "kettle",
    "piano",
    "winter",
    "bicycle",
    "garden",
    "lisbon",
    "coffee",
    "compass",
    "letter",
)


def fail(error: BaseException) -> None:
    raise error


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

    async def longest(self, is_over: Callable[[], bool]) -> float:
        """Remember and recall until something is over, at least twice; returns the longest wait in seconds."""
        longest, calls = 0.0, 0
        while calls < 2 or not is_over():
            began = time.perf_counter()
            await self.remember(1)
            await self.recall()
            longest, calls = max(longest, time.perf_counter() - began), calls + 1
        return longest


@pytest.mark.parametrize(
    "most",
    [
        pytest.param(6_000, marks=pytest.mark.tier("all")),
        pytest.param(100_000, marks=[pytest.mark.tier("prove"), pytest.mark.timeout(3600)]),
    ],
)
async def test_writes_and_recalls_go_on_through_every_write_of_an_index(most):
    async with local_relayer(embedder=HashingEmbedder(DIMENSION), rate_limits="off") as relayer:
        caller = Caller(relayer)
        keeper = relayer.relayer.indexes
        written = 0
        while written < most:
            while caller.count < min(most, 2 * max(written, 512)):
                await caller.remember(AT_ONCE)
            if caller.count >= most:
                keeper = IndexMaintenance(relayer.relayer.context, IndexLimits(growth=1.0, quiet_growth=1.0))
            until = time.perf_counter() + 1
            usual = await caller.longest(lambda until=until: time.perf_counter() > until)
            before, began = keeper.written, time.perf_counter()
            writing = asyncio.create_task(keeper.round(fail))
            longest = await caller.longest(writing.done)
            await writing
            took = time.perf_counter() - began
            assert keeper.written == before + 1
            written = caller.count
            assert longest < max(TIMES * usual, SHARE * took), (
                f"{written} memories, index in {took:.2f} s: a call took {longest:.2f} s, {usual:.2f} s otherwise"
            )
