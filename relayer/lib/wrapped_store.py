"""A store around another one, for what is done with every request: counted, paced, held back, made to fail."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from relayer.ports import CreateOutcome, GetOutcome, ObjectInfo, ObjectStore, SwapOutcome

T = TypeVar("T")


class WrappedStore(ABC):
    """An `ObjectStore` that makes each request of ``inner`` through `around`, which is for others to say."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    @abstractmethod
    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:
        """Make a request by calling ``ask``, or do not.

        Args:
            operation: the port's method.
            key: what it is asked about; of a listing, the prefix.
            ask: asks the inner store; of a listing, returns its rows as they come.
            data: what it is to write.
        """

    @property
    def description(self) -> str:
        """The inner store's."""
        return self._inner.description

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """As the port says, through `around`."""
        return await self.around(
            "get", key, lambda: self._inner.get(key, byte_range=byte_range, if_none_match=if_none_match)
        )

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """As the port says, through `around`."""
        return await self.around("create", key, lambda: self._inner.create(key, data), data)

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """As the port says, through `around`."""
        return await self.around("swap", key, lambda: self._inner.swap(key, data, etag), data)

    async def delete(self, key: str) -> None:
        """As the port says, through `around`."""
        await self.around("delete", key, lambda: self._inner.delete(key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """As the port says, through `around`."""

        async def rows() -> AsyncIterator[ObjectInfo]:
            return self._inner.list(prefix)

        async for info in await self.around("list", prefix, rows):
            yield info

    async def versions(self, key: str) -> int:
        """As the port says, through `around`."""
        return await self.around("versions", key, lambda: self._inner.versions(key))

    async def purge(self, key: str) -> int:
        """As the port says, through `around`."""
        return await self.around("purge", key, lambda: self._inner.purge(key))

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()
