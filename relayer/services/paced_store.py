"""A store that asks for little: what works slowly through a whole bucket shares its requests out over time."""

from __future__ import annotations

from collections.abc import AsyncIterator

from relayer.ports import Clock, CreateOutcome, GetOutcome, ObjectInfo, ObjectStore, SwapOutcome

__all__ = ["PacedStore"]


class PacedStore:
    """Passes everything on to ``inner``, at most ``per_second`` requests a second, however many ask at once.

    A listing counts as one request; the inner store may need several.
    """

    def __init__(self, inner: ObjectStore, clock: Clock, per_second: float) -> None:
        self._inner = inner
        self._clock = clock
        self._gap = 1.0 / per_second
        self._next_at = float("-inf")

    @property
    def description(self) -> str:
        """The inner store's."""
        return self._inner.description

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """As the port says, in its turn."""
        await self._turn()
        return await self._inner.get(key, byte_range=byte_range, if_none_match=if_none_match)

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """As the port says, in its turn."""
        await self._turn()
        return await self._inner.create(key, data)

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """As the port says, in its turn."""
        await self._turn()
        return await self._inner.swap(key, data, etag)

    async def delete(self, key: str) -> None:
        """As the port says, in its turn."""
        await self._turn()
        await self._inner.delete(key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """As the port says, in its turn."""
        await self._turn()
        async for info in self._inner.list(prefix):
            yield info

    async def versions(self, key: str) -> int:
        """As the port says, in its turn."""
        await self._turn()
        return await self._inner.versions(key)

    async def purge(self, key: str) -> int:
        """As the port says, in its turn."""
        await self._turn()
        return await self._inner.purge(key)

    async def close(self) -> None:
        """Nothing: the inner store belongs to others as well."""

    async def _turn(self) -> None:
        now = self._clock.monotonic()
        at = max(now, self._next_at)
        self._next_at = at + self._gap
        if at > now:
            await self._clock.sleep(at - now)
