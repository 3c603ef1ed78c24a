"""A store that remembers what was asked of it: for claims on how many requests something costs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from relayer.ports import ObjectStore, T, WrappedStore

__all__ = ["Call", "RecordingStore"]


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the port's method, its key or prefix, and how many bytes it wanted to write."""

    operation: str
    key: str
    size: int = 0


class RecordingStore(WrappedStore):
    """Keeps the calls, in the order in which they were made."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.calls: list[Call] = []

    def count(self, operation: str | None = None, prefix: str = "") -> int:
        """Count the calls of ``operation`` (None: all) on keys that start with ``prefix``."""
        return sum(operation in {None, call.operation} and call.key.startswith(prefix) for call in self.calls)

    def clear(self) -> None:
        """Forget the calls so far."""
        self.calls.clear()

    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:
        """Note the call and make it."""
        self.calls.append(Call(operation, key, len(data)))
        return await ask()
