"""An object store that records its requests, for tests of how many requests an operation makes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from relayer.ports import ObjectStore, T, WrappedStore


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One request: the method of the port, its key or prefix, and the number of bytes to write."""

    operation: str
    key: str
    size: int = 0


class RecordingStore(WrappedStore):
    """Wraps an object store and records its requests in order."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.calls: list[StoreCall] = []

    def count(self, operation: str | None = None, prefix: str = "") -> int:
        """Return the number of requests of ``operation`` (None counts all) for keys that start with ``prefix``."""
        return sum(operation in {None, call.operation} and call.key.startswith(prefix) for call in self.calls)

    def clear(self) -> None:
        """Delete the recorded requests."""
        self.calls.clear()

    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:
        """Record the request and make it."""
        self.calls.append(StoreCall(operation, key, len(data)))
        return await ask()
