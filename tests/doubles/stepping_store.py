"""A store in which every request waits until the test says what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

from relayer.errors import StoreUnavailable
from relayer.ports import ObjectInfo, ObjectStore, T, Unknown, WrappedStore

__all__ = ["Delayed", "Fate", "Request", "SteppingStore"]


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


class SteppingStore(WrappedStore):
    """`pending` is the order of arrival, and requests take effect in the order of release.

    A request whose task is cancelled while it waits has not reached the store; release it as `Fate.DELAYED` or
    `Fate.APPLIED_UNANSWERED` first for one that has.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._pending: list[Request] = []
        self._arrived = asyncio.Event()
        self._count = 0
        self._free = False
        self.delayed: list[Delayed] = []

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

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """As the port says, once released; the listing is taken as a whole."""

        async def rows() -> Sequence[ObjectInfo]:
            return [info async for info in self._inner.list(prefix)]

        for info in await self.around("list", prefix, rows):
            yield info

    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:
        """Hold the request until it is decided on."""
        request = Request(self._count, operation, key, data)
        self._count += 1
        try:
            return await self._decided(request, await self._fate(request), ask)
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

    async def _decided(self, request: Request, fate: Fate, apply: Callable[[], Awaitable[T]]) -> T:
        if fate is Fate.PROCEED:
            return await apply()
        if fate is Fate.APPLIED_UNANSWERED:
            await apply()
        elif fate is Fate.DELAYED:
            self.delayed.append(Delayed(request.operation, request.key, apply))
        if request.operation in {"create", "swap"}:
            return cast("T", Unknown("the answer was lost"))
        raise StoreUnavailable("the answer was lost")
