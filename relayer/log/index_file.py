"""Stored indexes: objects with a snapshot of a namespace's state and of its search index.

`IndexObjects` begins, publishes and opens the indexes of a log, `IndexBuilder` builds the bytes of one, and `IndexReader`
reads them. An index consists of a header, a head, and three runs of sealed blocks:

    offset  size  field
    0       4     magic "MRI1"
    4       8     bytes of the object, big endian, as are the next two
    12      4     bytes of the head
    16      4     where the blocks begin
    20            head, sealed under the metadata key; nothing from there to the blocks
                  blocks of the state, sealed under the metadata key: positions, then the pages of the state
                  blocks of the view, sealed under the namespace's index key
                  blocks of texts, sealed under the namespace's index key

Blocks are read in order, each in about a millisecond, while the next bytes are being fetched. The log does not know what is
in the blocks of the view and of texts.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import AsyncIterator, Sequence
from enum import IntEnum
from io import BytesIO

import msgspec

from relayer.domain.namespace import LogPosition, Manifest
from relayer.domain.operations import facet_schema
from relayer.domain.snapshot import SNAPSHOT_FORMAT, StateReader
from relayer.errors import CorruptNamespace, StoreUnavailable
from relayer.log.collector import destroy
from relayer.log.objects import IncarnationObjects, Layout, LogPorts, ObjectLocation, PartSealer, ReadAhead
from relayer.log.replica import Replica, StartingState
from relayer.ports import Absent, Created, EmbeddingModel
from relayer.wire import codec as ulid
from relayer.wire.codec import lp
from relayer.wire.sealing import ObjectType

# To be raised with every change to the contents of the blocks of the view and of texts. Facets need none: see `model_tag`.
INDEX_FORMAT = 2

_MAGIC = b"MRI1"
_HEADER = struct.Struct(">4sQII")
HEADER_SIZE = _HEADER.size
_SHA256 = 32


class Part(IntEnum):
    """The three runs of blocks, in their order."""

    STATE = 0
    VIEW = 1
    TEXTS = 2


class IndexHead(msgspec.Struct, frozen=True, array_like=True):
    """The head of an index, which describes its contents.

    The index is of the state after ``position``, with vectors of the model in ``tag`` (`model_tag`), of ``dimension`` numbers. ``blocks`` has the lengths in bytes of the sealed blocks of each `Part`,
    and ``texts`` is the SHA-256 of the blocks of texts.
    """

    tag: str
    position: LogPosition
    dimension: int
    blocks: tuple[list[int], list[int], list[int]]
    texts: bytes


def model_tag(model: EmbeddingModel) -> str:
    """Return the tag of an index in the manifest: its formats, a hash of its facets, and the SHA-256 of its embedding model."""
    return f"{INDEX_FORMAT}.{SNAPSHOT_FORMAT}.{facet_schema()}.{model.sha256}"


def block_id(key: str, part: Part, number: int) -> bytes:
    """Return the id that a block is sealed for: it can be unsealed only in this index, part and position."""
    return lp(key, int(part), number)


# The bytes that a head takes without the lengths of blocks, and the bytes of one length.
_HEAD_BYTES, _LENGTH_BYTES = 512, 5


class IndexBuilder:
    """The builder of one index, to which blocks are added in order.

    The blocks are collected in one buffer with space in front, into which `finish` writes the head without copying them.

    Attributes:
        key: the key of the object, for which every block is sealed.
        position: the position in the log of the state.
    """

    def __init__(
        self, place: PartSealer, positions: Sequence[LogPosition], model: EmbeddingModel, blocks: int
    ) -> None:
        """Reserve space for a head with the lengths of ``blocks`` blocks; if there are more, `finish` copies the object."""
        self.key = place.key
        self.position = positions[-1]
        self._place = place
        self._model = model
        self._sizes: tuple[list[int], list[int], list[int]] = ([], [], [])
        self._texts = hashlib.sha256()
        self._room = HEADER_SIZE + _HEAD_BYTES + _LENGTH_BYTES * blocks
        self._data = BytesIO()
        self._data.seek(self._room)
        self.add_page(b"".join(position.digest for position in positions))

    def add_page(self, page: bytes) -> None:
        """Seal and append a block of the state."""
        self.add(Part.STATE, self._place.seal(f"state/{len(self._sizes[Part.STATE])}", page))

    def add(self, part: Part, sealed: bytes) -> None:
        """Append a block of the view or of texts, sealed for `block_id`."""
        if any(self._sizes[part + 1 :]):
            raise ValueError("the blocks of an index come in the order of its parts")
        self._sizes[part].append(len(sealed))
        self._data.write(sealed)
        if part is Part.TEXTS:
            self._texts.update(sealed)

    def finish(self) -> bytes:
        """Return the object's bytes; nothing may be added after that."""
        described = IndexHead(
            model_tag(self._model), self.position, self._model.dimension, self._sizes, self._texts.digest()
        )
        head = self._place.seal("head", msgspec.msgpack.encode(described))
        start, total = HEADER_SIZE + len(head), self._data.tell()
        if start > self._room:
            header = _HEADER.pack(_MAGIC, total + start - self._room, len(head), start)
            return b"".join((header, head, self._data.getbuffer()[self._room :]))
        self._data.seek(0)
        self._data.write(_HEADER.pack(_MAGIC, total, len(head), self._room) + head)
        return self._data.getvalue()


def read_header(data: memoryview) -> tuple[int, int, int]:
    """Return the sizes of the object and of its head, and the offset of its blocks, in bytes; raises `CorruptNamespace`."""
    try:
        magic, total, head, blocks = _HEADER.unpack_from(data)
    except struct.error as error:
        raise CorruptNamespace("an index is too short to be one") from error
    if magic != _MAGIC or not HEADER_SIZE + head <= blocks <= total:
        raise CorruptNamespace("an index does not begin as one")
    return total, head, blocks


def decode_positions(page: bytes, last: LogPosition) -> list[LogPosition]:
    """Return the positions up to ``last``, oldest first; raises `CorruptNamespace`."""
    count, rest = divmod(len(page), _SHA256)
    digests = [page[at * _SHA256 : (at + 1) * _SHA256] for at in range(count)]
    if rest or not digests or digests[-1] != last.digest or count > last.seq + 1:
        raise CorruptNamespace("an index does not know where it is in the log")
    return [LogPosition(last.seq - count + 1 + at, digest) for at, digest in enumerate(digests)]


# A small index is read with one request; of a large one, two pieces are in memory at a time.
FIRST_BYTES = 2 * 1024 * 1024
PIECE_BYTES = 8 * 1024 * 1024


class IndexReader:
    """The reader of one index, which is read once and in order: `state`, then `blocks` of the view, then those of texts.

    Attributes:
        key: the key of the object, for which every block is sealed.
    """

    def __init__(self, place: PartSealer, pieces: _Pieces, head: IndexHead) -> None:
        self.key = place.key
        self.head = head
        self._place = place
        self._pieces = pieces

    @classmethod
    async def open(cls, store: ReadAhead, at: str, place: PartSealer) -> IndexReader | None:
        """Read the beginning of an index; None if there is no such object.

        Some of the reads of the object at the store's key ``at`` may have begun already in ``store``. Raises
        `CorruptNamespace`: the object is not an index, or not the index with this key.
        """
        pieces = _Pieces(store, at)
        header = await pieces.take(HEADER_SIZE)
        if header is None:
            return None
        pieces.total, size, blocks = read_header(header)
        plain = place.unseal("head", await pieces.take_all(size))
        try:
            head = msgspec.msgpack.decode(plain, type=IndexHead)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CorruptNamespace("an index does not begin as one") from error
        await pieces.take_all(blocks - pieces.at)
        if pieces.at + sum(map(sum, head.blocks)) != pieces.total:
            raise CorruptNamespace("an index has another size than it says")
        return cls(place, pieces, head)

    async def state(self) -> StartingState:
        """Read the state and the positions that led to it; raises as `open`."""
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
        return StartingState(state, positions)

    async def blocks(self, part: Part) -> AsyncIterator[memoryview]:
        """Yield the sealed blocks of a part; raises as `open`.

        A block is a view of a larger buffer, so a caller that keeps it should copy it.
        """
        for size in self.head.blocks[part]:
            yield await self._pieces.take_all(size)

    async def close(self) -> None:
        """Stop reading ahead."""
        await self._pieces.close()

    async def _page(self, number: int, size: int) -> bytes:
        return self._place.unseal(f"state/{number}", await self._pieces.take_all(size))


class _Pieces:
    """The bytes of an object in order, read in pieces: the next piece is being fetched while the current one is used."""

    def __init__(self, store: ReadAhead, key: str) -> None:
        self._store = store
        self._key = key
        self._buffer = memoryview(b"")
        self._next: asyncio.Task[bytes | None] | None = None
        self.total = FIRST_BYTES
        self.read = 0
        self.at = 0

    async def take(self, count: int) -> memoryview | None:
        """Return the next ``count`` bytes; None if the object is absent. Raises as `take_all`."""
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
        """Return the next ``count`` bytes; raises `CorruptNamespace` if they do not exist, and `StoreError`."""
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
        # The size of the object is in the first piece, so the second is not requested before the first was read.
        if self.read >= FIRST_BYTES:
            self._next = asyncio.create_task(self._ask())
        return True

    async def _ask(self) -> bytes | None:
        size = PIECE_BYTES if self.read else FIRST_BYTES
        if self.read and self.read >= self.total:
            return b""
        outcome = await self._store.get(self._key, byte_range=(self.read, self.read + size))
        return None if isinstance(outcome, Absent) else outcome.data


_ROUNDS = 5


class IndexObjects(IncarnationObjects):
    """The stored indexes of the log that ``replica`` follows."""

    def __init__(
        self, ports: LogPorts, account: str, replica: Replica, ahead: ReadAhead | None = None
    ) -> None:
        super().__init__(ports, account, replica.incarnation, ahead)
        self._replica = replica

    async def open(self, manifest: Manifest, model: EmbeddingModel) -> IndexReader | None:
        """Begin to read the index that a manifest names; None if there is none for this model.

        Raises:
            CorruptNamespace: it is damaged.
        """
        if not manifest.index_key or manifest.index_model != model_tag(model):
            return None
        key = manifest.index_key
        reader = await IndexReader.open(self._ahead, key, self._place(key))
        if reader is None:
            return None
        head = reader.head
        if head.position.seq != manifest.index_seq or head.tag != manifest.index_model:
            raise CorruptNamespace("the manifest names an index of another state")
        return reader if head.dimension == model.dimension else None

    async def indexed(self, model: EmbeddingModel) -> int:
        """Return the last entry that the manifest's index covers, as the store shows it now; 0 if none is for this model.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed, StoreError: as `ManifestView.see`.
        """
        manifest = await self._replica.manifest.read()
        return manifest.index_seq if manifest.index_model == model_tag(model) else 0

    def begin(self, model: EmbeddingModel, blocks: int = 0) -> IndexBuilder:
        """Begin to build an index of the replica's current state, with a unique key; see `IndexBuilder`."""
        positions = self._replica.positions()
        now = max(self._replica.store_time, 0)
        name = ulid.make(now, self._ports.randomness.bytes(10))
        key = Layout.index(self._incarnation, positions[-1].seq, name)
        return IndexBuilder(self._place(key), positions, model, blocks)

    async def publish(self, builder: IndexBuilder, model: EmbeddingModel, data: bytes, erased: int) -> bool:
        """Upload an index and name it in the manifest; returns whether it is named (I9).

        Args:
            builder: the builder whose ``finish`` returned ``data``.
            model: the model that `begin` got.
            data: the bytes of the object.
            erased: the number of erased records in the state that was written. If more are erased now, the index may
                contain one of them, so it is not named but deleted permanently.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed, StoreError: it is not known whether it is named; that is
                harmless.
        """
        try:
            if not isinstance(await self._ports.store.create(builder.key, data), Created):
                return False
        except StoreUnavailable:
            return False
        seq, tag = builder.position.seq, model_tag(model)
        for _ in range(_ROUNDS):
            seen = await self._replica.manifest.see()
            # This is after the manifest was read. An erasure that is not in the log by now will find this index in the store.
            await self._replica.catch_up()
            if len(self._replica.state.erased) != erased:
                if (await self._replica.manifest.read()).index_key != builder.key:
                    await destroy(self._ports.store, [builder.key])
                return False
            if seen.manifest.index_model == tag and seen.manifest.index_seq >= seq:
                return False
            if await self._replica.manifest.name_index(seen, builder.key, seq, tag):
                return True
        return False

    def _place(self, key: str) -> PartSealer:
        place = ObjectLocation(ObjectType.INDEX, self._account, self._incarnation, key)
        return PartSealer(self._sealer, place)
