"""A store that remembers what was asked of it: for claims on how many requests something costs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from relayer.ports import CreateOutcome, GetOutcome, ObjectInfo, ObjectStore, SwapOutcome

__all__ = ["Call", "RecordingStore"]


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the port's method, its key or prefix, and how many bytes it wanted to write."""

    operation: str
    key: str
    size: int = 0


class RecordingStore:
    """Passes everything on to ``inner`` and keeps the calls, in the order in which they were made."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.calls: list[Call] = []

    @property
    def description(self) -> str:
        """The inner store's."""
        return self._inner.description

    def count(self, operation: str | None = None, prefix: str = "") -> int:
        """Count the calls of ``operation`` (None: all) on keys that start with ``prefix``."""
        return sum(operation in {None, call.operation} and call.key.startswith(prefix) for call in self.calls)

    def clear(self) -> None:
        """Forget the calls so far."""
        self.calls.clear()

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """As the port says."""
        self.calls.append(Call("get", key))
        return await self._inner.get(key, byte_range=byte_range, if_none_match=if_none_match)

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """As the port says."""
        self.calls.append(Call("create", key, len(data)))
        return await self._inner.create(key, data)

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """As the port says."""
        self.calls.append(Call("swap", key, len(data)))
        return await self._inner.swap(key, data, etag)

    async def delete(self, key: str) -> None:
        """As the port says."""
        self.calls.append(Call("delete", key))
        await self._inner.delete(key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """As the port says."""
        self.calls.append(Call("list", prefix))
        async for info in self._inner.list(prefix):
            yield info

    async def versions(self, key: str) -> int:
        """As the port says."""
        self.calls.append(Call("versions", key))
        return await self._inner.versions(key)

    async def purge(self, key: str) -> int:
        """As the port says."""
        self.calls.append(Call("purge", key))
        return await self._inner.purge(key)

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()
