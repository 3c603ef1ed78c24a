"""The machine's own clock and randomness, and a store that is watched for metrics."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from time import perf_counter
from typing import TypeVar

from relayer.errors import StoreError
from relayer.ports import CreateOutcome, GetOutcome, ObjectInfo, ObjectStore, SwapOutcome


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

_Outcome = TypeVar("_Outcome")


class MeteredStore:
    """Passes everything on to ``inner`` and tells ``observe`` about each call."""

    def __init__(self, inner: ObjectStore, observe: Observe) -> None:
        self._inner = inner
        self._observe = observe

    @property
    def description(self) -> str:
        """The inner store's."""
        return self._inner.description

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """As the port says."""
        return await self._timed(
            "get", self._inner.get(key, byte_range=byte_range, if_none_match=if_none_match)
        )

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """As the port says."""
        return await self._timed("create", self._inner.create(key, data))

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """As the port says."""
        return await self._timed("swap", self._inner.swap(key, data, etag))

    async def delete(self, key: str) -> None:
        """As the port says."""
        await self._timed("delete", self._inner.delete(key))

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

    async def versions(self, key: str) -> int:
        """As the port says."""
        return await self._timed("versions", self._inner.versions(key))

    async def purge(self, key: str) -> int:
        """As the port says."""
        return await self._timed("purge", self._inner.purge(key))

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()

    async def _timed(self, call: str, work: Awaitable[_Outcome]) -> _Outcome:
        began, end = perf_counter(), "failed"
        try:
            outcome = await work
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
            self._observe(call, end, perf_counter() - began)


def _name(error: StoreError) -> str:
    return type(error).__name__.removeprefix("Store").lower()
