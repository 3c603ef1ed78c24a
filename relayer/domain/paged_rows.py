"""A dictionary whose values stay encoded in pages until one of them is read.

Of a state that was stored, most requests read a few rows only, and decoding all rows would take most of the time of
opening it. So `PagedRows` decodes a page when one of its values is read for the first time. `PagedRows.pages` returns the
pages that were never read as they are, so that they can be stored again without decoding them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, KeysView, MutableMapping, ValuesView
from typing import Generic, TypeVar, cast, overload

V = TypeVar("V")
T = TypeVar("T")
D = TypeVar("D")


class _Unread(Generic[T]):
    """A page that was not decoded yet: its keys, in order, and its encoded rows."""

    __slots__ = ("encoded", "keys")

    def __init__(self, keys: list[bytes], encoded: T) -> None:
        self.keys = keys
        self.encoded = encoded


class PagedRows(MutableMapping[bytes, V], Generic[V, T]):
    """A dictionary in the order in which values were added, with pages that are decoded on demand.

    ``T`` is the type of an encoded page. ``decode`` returns the keys and values of a page, with exactly the keys that the page
    was added with. Its exceptions are raised by the method that reads a value of the page.
    """

    def __init__(self, decode: Callable[[T], Iterable[tuple[bytes, V]]] | None = None) -> None:
        self._decode = decode
        self._held: dict[bytes, V | _Unread[T]] = {}
        # The number of values in pages that are not decoded yet.
        self.unread = 0

    def add_page(self, keys: list[bytes], encoded: T) -> None:
        """Append the values of an encoded page without decoding it."""
        self._held.update(dict.fromkeys(keys, _Unread(keys, encoded)))
        self.unread += len(keys)

    def copy(self) -> PagedRows[V, T]:
        """Return a shallow copy: an independent dictionary with the same values and pages."""
        copied = PagedRows(self._decode)
        copied._held, copied.unread = self._held.copy(), self.unread
        return copied

    def pages(self, size: int) -> Iterator[tuple[list[bytes], T | list[V]]]:
        """Yield all keys and values in order: pages not decoded yet as they are, other values as lists of up to ``size``."""
        keys: list[bytes] = []
        values: list[V] = []
        passed: _Unread[T] | None = None
        for key, value in self._held.items():
            if isinstance(value, _Unread):
                if value is not passed:
                    if keys:
                        yield keys, values
                        keys, values = [], []
                    # The page is complete: changing or removing one of its values would have decoded it.
                    yield value.keys, value.encoded
                    passed = value
                continue
            keys.append(key)
            values.append(value)
            if len(keys) == size:
                yield keys, values
                keys, values = [], []
        if keys:
            yield keys, values

    def __getitem__(self, key: bytes) -> V:
        value = self._held[key]
        if not isinstance(value, _Unread):
            return value
        if self._decode is None:
            raise TypeError("there is no page without a decoder")
        self._held.update(self._decode(value.encoded))
        self.unread -= len(value.keys)
        return cast("V", self._held[key])

    @overload
    def get(self, key: bytes, /) -> V | None: ...
    @overload
    def get(self, key: bytes, default: V, /) -> V: ...
    @overload
    def get(self, key: bytes, default: D, /) -> V | D: ...
    def get(self, key: bytes, default: object = None, /) -> object:
        """Return the value of a key, or the default if there is none."""
        return self[key] if key in self._held else default

    def __setitem__(self, key: bytes, value: V) -> None:
        if self.unread and key in self._held:
            self[key]  # decode its page, which is not complete any more
        self._held[key] = value

    def __delitem__(self, key: bytes) -> None:
        self[key]
        del self._held[key]

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def keys(self) -> KeysView[bytes]:
        """Return the keys, in order; no page is decoded."""
        return self._held.keys()

    def values(self) -> _Values[V]:
        """Return the values, in order; each page is decoded when the iteration reaches it."""
        return _Values(self, self._held)


class _Values(ValuesView[V]):
    def __init__(self, rows: PagedRows[V, T], keys: dict[bytes, V | _Unread[T]]) -> None:
        super().__init__(rows)
        self._one: Callable[[bytes], V] = rows.__getitem__
        self._keys: Collection[bytes] = keys.keys()
        self._backwards: Callable[[], Iterator[bytes]] = keys.__reversed__

    def __iter__(self) -> Iterator[V]:
        return map(self._one, self._keys)

    def __reversed__(self) -> Iterator[V]:
        return map(self._one, self._backwards())
