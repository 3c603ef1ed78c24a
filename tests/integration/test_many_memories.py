"""A namespace of thousands, asked over HTTP: what lies apart from most of it is found all the same."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relayer.maintenance.open_namespaces import maintain
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.testing.local_relayer import LocalRelayer, local_relayer

DIMENSION = 384
MANY, APART, AT_ONCE = 3500, 20, 100


def _rows() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Vectors of memories, of which the last lie apart from the others; and of questions that are between both."""
    random = np.random.default_rng(3)
    apart = 1.2 * random.standard_normal((APART, DIMENSION))
    common = random.standard_normal((12, DIMENSION)) / 3
    many = random.standard_normal((MANY, 12)) @ common + 0.5 * random.standard_normal((MANY, DIMENSION))
    asked = 0.5 * apart + random.standard_normal((APART, 12)) @ common
    asked += 0.5 * random.standard_normal((APART, DIMENSION))
    memories, questions = (
        (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        for rows in (np.concatenate((many, apart)), asked)
    )
    return memories, questions


async def _called(relayer: LocalRelayer, target: str, body: dict[str, object]) -> dict[str, object]:
    answer = await relayer.call("POST", target, body)
    assert answer.status_code < 300, answer.text
    found: dict[str, object] = answer.json()
    return found


def _sent(vector: NDArray[np.float32]) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


class RowsEmbedder(HashingEmbedder):
    """Embeds ``memory N`` as a row of a matrix."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        super().__init__(DIMENSION)
        self._matrix = rows

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, prompt: bool = False
    ) -> NDArray[np.float32]:
        """Return the rows of the texts; for any other text that of `HashingEmbedder`."""
        other = await super().embed(texts)
        numbers = [re.fullmatch(r"memory (\d+)", text) for text in texts]
        rows = [
            other[at] if match is None else self._matrix[int(match[1])] for at, match in enumerate(numbers)
        ]
        return np.stack(rows)


async def test_of_thousands_the_nearest_are_told_wherever_they_lie():
    memories, questions = _rows()
    async with local_relayer(embedder=RowsEmbedder(memories), rate_limits="off") as relayer:
        for start in range(0, len(memories), AT_ONCE):
            items = [{"text": f"memory {at}"} for at in range(start, min(start + AT_ONCE, len(memories)))]
            await _called(relayer, "/v1/memories", {"items": items})
        await maintain(relayer.relayer.context)
        for question in questions:
            nearest = np.argsort(-(memories @ question), kind="stable")[:10].tolist()
            found = await _called(relayer, "/v1/recall", {"vector": _sent(question), "limit": 10, "floor": 0})
            assert [one["text"] for one in found["memories"]] == [f"memory {at}" for at in nearest]
