"""Reads an index object piece by piece: what is there is decoded while the next bytes are under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from relayer.domain.snapshot import StateReader
from relayer.errors import CorruptNamespace
from relayer.log.index_pack import HEADER_SIZE, Head, IndexPlace, Part, decode_positions, read_header
from relayer.log.replica import Start
from relayer.ports import Absent, ObjectStore, Unchanged

__all__ = ["IndexReader"]

# A small index is one request; of a large one, two pieces are in memory at a time.
FIRST_BYTES = 2 * 1024 * 1024
PIECE_BYTES = 8 * 1024 * 1024


class IndexReader:
    """One index object, read once and in order: `state`, then `blocks` of the view, then `blocks` of texts.

    Attributes:
        key: the object's, which every block is sealed for.
        head: what it is of.
        read: bytes read so far.
    """

    def __init__(self, place: IndexPlace, pieces: _Pieces, head: Head) -> None:
        self.key = place.key
        self.head = head
        self._place = place
        self._pieces = pieces

    @classmethod
    async def open(cls, store: ObjectStore, at: str, place: IndexPlace) -> IndexReader | None:
        """Read its beginning; None when there is no such object.

        Raises:
            CorruptNamespace: it is no index, or not the one of this place.
            StoreError: the store did not answer.
        """
        pieces = _Pieces(store, at)
        header = await pieces.take(HEADER_SIZE)
        if header is None:
            return None
        pieces.total, size = read_header(header)
        head = place.open_head(await pieces.take_all(size))
        if pieces.at + sum(map(sum, head.blocks)) != pieces.total:
            raise CorruptNamespace("an index has another size than it says")
        return cls(place, pieces, head)

    @property
    def read(self) -> int:
        """Bytes read so far."""
        return self._pieces.read

    async def state(self) -> Start:
        """Read the state; raises as `open`."""
        sizes = self.head.blocks[Part.STATE]
        if len(sizes) < 2:
            raise CorruptNamespace("an index lacks its state")
        positions = decode_positions(await self._page(0, sizes[0]), self.head.position)
        reader = StateReader(await self._page(1, sizes[1]))
        for number, size in enumerate(sizes[2:], 2):
            reader.add(await self._page(number, size))
            await asyncio.sleep(0)
        state = reader.finish()
        if state.position != self.head.position:
            raise CorruptNamespace("an index holds the state of another position")
        return Start(state, positions)

    async def blocks(self, part: Part) -> AsyncIterator[memoryview]:
        """Yield the sealed blocks of a part, which are pieces of something larger: copy what is kept. Raises as `open`."""
        for size in self.head.blocks[part]:
            yield await self._pieces.take_all(size)

    async def close(self) -> None:
        """Stop reading ahead."""
        await self._pieces.close()

    async def _page(self, number: int, size: int) -> bytes:
        return self._place.open_page(await self._pieces.take_all(size), number)


class _Pieces:
    """An object's bytes in order; one piece is being read while the one before is used."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store = store
        self._key = key
        self._buffer = memoryview(b"")
        self._next: asyncio.Task[bytes | None] | None = None
        self.total = FIRST_BYTES
        self.read = 0
        self.at = 0

    async def take(self, count: int) -> memoryview | None:
        """Return the next bytes; None when the object is absent. Raises as `take_all`."""
        if count <= len(self._buffer):
            self.at += count
            whole, self._buffer = self._buffer[:count], self._buffer[count:]
            return whole
        taken = bytearray()
        while len(taken) < count:
            if not self._buffer and not await self._refill():
                return None
            part = self._buffer[: count - len(taken)]
            taken += part
            self._buffer = self._buffer[len(part) :]
        self.at += count
        return memoryview(taken)

    async def take_all(self, count: int) -> memoryview:
        """Return the next bytes; raises `CorruptNamespace` when they are not there, and `StoreError`."""
        taken = await self.take(count)
        if taken is None:
            raise CorruptNamespace("an index went away while it was read")
        return taken

    async def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait([self._next])

    async def _refill(self) -> bool:
        data = await (self._next or self._ask())
        self._next = None
        if data is None:
            return False
        if not data:
            raise CorruptNamespace("an index is shorter than it says")
        self._buffer = memoryview(data)
        self.read += len(data)
        # The first piece says how long the object is, and is looked at before there is a second.
        if self.read >= FIRST_BYTES:
            self._next = asyncio.create_task(self._ask())
        return True

    async def _ask(self) -> bytes | None:
        size = PIECE_BYTES if self.read else FIRST_BYTES
        if self.read and self.read >= self.total:
            return b""
        outcome = await self._store.get(self._key, byte_range=(self.read, self.read + size))
        assert not isinstance(outcome, Unchanged), "no etag was given"
        return None if isinstance(outcome, Absent) else outcome.data
