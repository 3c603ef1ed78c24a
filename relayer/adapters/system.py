"""The machine's own clock and randomness, and a store that is watched for metrics."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from time import perf_counter

from relayer.errors import StoreError
from relayer.lib.wrapped_store import T, WrappedStore
from relayer.ports import ObjectInfo, ObjectStore


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


def _name(error: StoreError) -> str:
    return type(error).__name__.removeprefix("Store").lower()
