"""The machine's own clock and randomness, and a store and an embedder that are watched for metrics."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from relayer.errors import StoreError
from relayer.ports import Embedder, EmbeddingModel, ObjectInfo, ObjectStore, T, WrappedStore


class SystemClock:
    """This machine's clock, as the `Clock` port."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task."""
        await asyncio.sleep(seconds)


class SystemRandomness:
    """The operating system's cryptographically strong generator, as the `Randomness` port."""

    def bytes(self, count: int) -> bytes:
        """Return ``count`` random bytes."""
        return secrets.token_bytes(count)


Observe = Callable[[str, str, float], None]
"""Takes a method of the port, how it ended, and seconds. The end is the outcome's or the error's name in lower case:
``found``, ``unknown``, ``unavailable``; ``done`` for what has no outcome."""


class MeteredStore(WrappedStore):
    """Tells ``observe`` about each call."""

    def __init__(self, inner: ObjectStore, observe: Observe) -> None:
        super().__init__(inner)
        self._observe = observe

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """As the port says; the time counted includes what the caller does between rows."""
        began, end = perf_counter(), "done"
        try:
            async for info in self._inner.list(prefix):
                yield info
        except StoreError as error:
            end = _name(error)
            raise
        finally:
            self._observe("list", end, perf_counter() - began)

    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:  # noqa: ARG002 - no name is told
        """Make the request, and tell how it ended and what time it took."""
        began, end = perf_counter(), "failed"
        try:
            outcome = await ask()
            end = "done" if outcome is None or isinstance(outcome, int) else type(outcome).__name__.lower()
        except StoreError as error:
            end = _name(error)
            raise
        except asyncio.CancelledError:
            end = "cancelled"
            raise
        else:
            return outcome
        finally:
            self._observe(operation, end, perf_counter() - began)


class MeteredEmbedder:
    """Tells ``observe`` about each call that succeeds: what was embedded, ``query`` or ``memory``, and the seconds it took."""

    def __init__(self, inner: Embedder, observe: Callable[[str, float], None]) -> None:
        self._inner = inner
        self._observe = observe

    @property
    def model(self) -> EmbeddingModel:
        """Identity of the model in use."""
        return self._inner.model

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """As the port says; time in an account's queue is not counted, the model's own is."""
        began = perf_counter()
        vectors = await self._inner.embed(texts, query=query)
        self._observe("query" if query else "memory", perf_counter() - began)
        return vectors

    async def close(self) -> None:
        """Release what the embedder holds."""
        await self._inner.close()


def _name(error: StoreError) -> str:
    return type(error).__name__.removeprefix("Store").lower()
