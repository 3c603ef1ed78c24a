"""A store in which every request waits until the test says what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from relayer.errors import StoreUnavailable
from relayer.ports import CreateOutcome, GetOutcome, ObjectInfo, ObjectStore, SwapOutcome, Unknown

__all__ = ["Delayed", "Fate", "Request", "SteppingStore"]

T = TypeVar("T")


class Fate(Enum):
    """What becomes of a request. Where the port has no `Unknown`, `StoreUnavailable` is raised in its place."""

    PROCEED = "applied and answered"
    APPLIED_UNANSWERED = "applied, and the answer is lost"
    LOST = "not applied, and nobody can tell"
    DELAYED = "the answer is lost, and it is applied when the test says"


def _new_future() -> asyncio.Future[Fate]:
    return asyncio.get_running_loop().create_future()


@dataclass(eq=False, slots=True)
class Request:
    """A request that waits. ``number`` counts all requests of the store from 0."""

    number: int
    operation: str
    key: str
    data: bytes = b""
    fate: asyncio.Future[Fate] = field(repr=False, default_factory=_new_future)
    done: asyncio.Event = field(repr=False, default_factory=asyncio.Event)


@dataclass(eq=False, slots=True)
class Delayed:
    """A request that was answered with nothing and may still be applied, once."""

    operation: str
    key: str
    apply: Callable[[], Awaitable[Any]] = field(repr=False)


class SteppingStore:
    """Wraps ``inner``; `pending` is the order of arrival, and requests take effect in the order of release.

    A request whose task is cancelled while it waits has not reached the store; release it as `Fate.DELAYED` or
    `Fate.APPLIED_UNANSWERED` first for one that has.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self._pending: list[Request] = []
        self._arrived = asyncio.Event()
        self._count = 0
        self._free = False
        self.delayed: list[Delayed] = []

    @property
    def description(self) -> str:
        """The inner store's."""
        return self._inner.description

    @property
    def pending(self) -> Sequence[Request]:
        """The requests that wait, in their order of arrival."""
        return tuple(self._pending)

    async def wait_for(self, count: int = 1) -> Sequence[Request]:
        """Return `pending` as soon as at least ``count`` requests wait."""
        while len(self._pending) < count:
            self._arrived.clear()
            await self._arrived.wait()
        return self.pending

    def release(self, position: int = 0, fate: Fate = Fate.PROCEED) -> Request:
        """Decide on the request at ``position`` in `pending`; raises `IndexError` if none waits there."""
        request = self._pending.pop(position)
        request.fate.set_result(fate)
        return request

    def release_all(self, fate: Fate = Fate.PROCEED) -> None:
        """Decide on every request that waits now."""
        while self._pending:
            self.release(fate=fate)

    async def step(self, position: int = 0, fate: Fate = Fate.PROCEED) -> Request:
        """Decide on a request and return when it has taken effect and its task has its answer."""
        request = self.release(position, fate)
        await request.done.wait()
        await asyncio.sleep(0)
        return request

    def open_gates(self) -> None:
        """Let everything through from now on, what waits included."""
        self._free = True
        self.release_all()

    async def apply_delayed(self, position: int = 0) -> Any:
        """Apply a delayed request now; returns what the store would have answered."""
        return await self.delayed.pop(position).apply()

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """As the port says, once released."""
        return await self._pass(
            Request(self._number(), "get", key),
            lambda: self._inner.get(key, byte_range=byte_range, if_none_match=if_none_match),
            _unavailable,
        )

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """As the port says, once released."""
        request = Request(self._number(), "create", key, data)
        return await self._pass(request, lambda: self._inner.create(key, data), _unknown)

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """As the port says, once released."""
        request = Request(self._number(), "swap", key, data)
        return await self._pass(request, lambda: self._inner.swap(key, data, etag), _unknown)

    async def delete(self, key: str) -> None:
        """As the port says, once released."""
        request = Request(self._number(), "delete", key)
        await self._pass(request, lambda: self._inner.delete(key), _unavailable)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """As the port says, once released; the listing is taken as a whole."""
        request = Request(self._number(), "list", prefix)
        for info in await self._pass(request, lambda: self._listing(prefix), _unavailable):
            yield info

    async def versions(self, key: str) -> int:
        """As the port says, once released."""
        request = Request(self._number(), "versions", key)
        return await self._pass(request, lambda: self._inner.versions(key), _unavailable)

    async def purge(self, key: str) -> int:
        """As the port says, once released."""
        request = Request(self._number(), "purge", key)
        return await self._pass(request, lambda: self._inner.purge(key), _unavailable)

    async def close(self) -> None:
        """Close the inner store; this one does not wait."""
        await self._inner.close()

    async def _pass(
        self, request: Request, apply: Callable[[], Awaitable[T]], no_answer: Callable[[], T]
    ) -> T:
        try:
            return await self._decided(request, await self._fate(request), apply, no_answer)
        finally:
            request.done.set()

    async def _fate(self, request: Request) -> Fate:
        if self._free:
            return Fate.PROCEED
        self._pending.append(request)
        self._arrived.set()
        try:
            return await request.fate
        finally:
            if request in self._pending:  # its task was cancelled
                self._pending.remove(request)

    async def _decided(
        self, request: Request, fate: Fate, apply: Callable[[], Awaitable[T]], no_answer: Callable[[], T]
    ) -> T:
        if fate is Fate.PROCEED:
            return await apply()
        if fate is Fate.APPLIED_UNANSWERED:
            await apply()
        elif fate is Fate.DELAYED:
            self.delayed.append(Delayed(request.operation, request.key, apply))
        return no_answer()

    async def _listing(self, prefix: str) -> Sequence[ObjectInfo]:
        return [info async for info in self._inner.list(prefix)]

    def _number(self) -> int:
        self._count += 1
        return self._count - 1


def _unknown() -> Unknown:
    return Unknown("the answer was lost")


def _unavailable() -> Any:
    raise StoreUnavailable("the answer was lost")
