"""An embedder without a model, for tests.

Texts that share words have similar vectors. It is deterministic and fast, and can simulate an outage.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relayer.errors import EmbedderUnavailable
from relayer.ports import EmbeddingModel

# Texts up to this size are hashed on the event loop: a thread would take longer and make the order of events random.
_INLINE_CHARACTERS, _INLINE_TEXTS = 1024, 8
_WORD = re.compile(r"\w+")


class HashingEmbedder:
    """An `Embedder` for tests: hashes a bag of words to a unit vector.

    Attributes:
        down: if true, every call raises `EmbedderUnavailable`.
        calls: the texts of every successful call.
    """

    def __init__(self, dimension: int = 64, name: str = "hashing") -> None:
        self.down = False
        self.calls: list[list[str]] = []
        self._model = EmbeddingModel(name, hashlib.sha256(name.encode()).hexdigest(), dimension)

    @property
    def model(self) -> EmbeddingModel:
        """The identity of this hashing as a model."""
        return self._model

    async def embed(
        self,
        texts: Sequence[str],
        *,
        query: bool = False,  # noqa: ARG002 - not needed here
        prompt: bool = False,  # noqa: ARG002 - not trained for it
    ) -> NDArray[np.float32]:
        """Embed texts; returns rows of length 1, shape (len(texts), dimension)."""
        if self.down:
            raise EmbedderUnavailable("the embedder is down")
        self.calls.append(list(texts))
        if len(texts) <= _INLINE_TEXTS and sum(map(len, texts)) <= _INLINE_CHARACTERS:
            # A real model yields to the event loop as well, however many calls follow each other.
            await asyncio.sleep(0)
            return self._rows(texts)
        return await asyncio.to_thread(self._rows, texts)

    def _rows(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self._direction(text) for text in texts])

    def _direction(self, text: str) -> NDArray[np.float32]:
        row = np.zeros(self._model.dimension, np.float32)
        row[0] = 1e-3
        for word in _WORD.findall(text.lower()):
            digest = hashlib.sha256(word.encode()).digest()
            row[digest[0] % self._model.dimension] += 1 if digest[1] % 2 else -1
        unit: NDArray[np.float32] = row / np.float32(np.linalg.norm(row))
        return unit

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""
