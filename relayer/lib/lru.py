"""A table with room for so many entries; the one unused for longest makes place."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


class BoundedCache(Generic[V]):
    """Values by digest, least recently used out first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[bytes, V] = OrderedDict()

    def get(self, key: bytes) -> V | None:
        """Return a value and mark it as used."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: bytes, value: V) -> None:
        """Keep a value."""
        self._values[key] = value
        if len(self._values) > self._most:
            self._values.popitem(last=False)

    def discard(self, key: bytes) -> None:
        """Drop a value, if it is there."""
        self._values.pop(key, None)

    def items(self) -> list[tuple[bytes, V]]:
        """Return a copy of everything, least recently used first."""
        return list(self._values.items())

    def __len__(self) -> int:
        return len(self._values)
