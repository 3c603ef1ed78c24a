"""The bytes of an index object: header, head, and three runs of sealed blocks.

    offset  size  field
    0       4     magic "MRI1"
    4       8     bytes of the object, big endian, as is the next
    12      4     bytes of the head
    16            head, sealed under the metadata key
                  blocks of the state, sealed under the metadata key: positions, then the pages of the state
                  blocks of the view, sealed under the namespace's index key
                  blocks of texts, sealed under the namespace's index key

Blocks are read in order, each in a millisecond or so, while the next bytes are under way. The log knows nothing of what
the blocks of the view and of texts hold.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

import msgspec

from relayer.domain.namespace import Position
from relayer.domain.snapshot import SNAPSHOT_FORMAT
from relayer.errors import CorruptNamespace
from relayer.log.sealed_objects import ObjectSealer, Place
from relayer.ports import EmbeddingModel
from relayer.wire.lp import lp
from relayer.wire.sealing import ObjectType

__all__ = [
    "HEADER_SIZE",
    "Head",
    "IndexBuilder",
    "IndexPlace",
    "Part",
    "block_id",
    "decode_positions",
    "model_tag",
    "read_header",
]

# Raised with every change of what the blocks of the view and of texts hold.
INDEX_FORMAT = 2

_MAGIC = b"MRI1"
_HEADER = struct.Struct(">4sQI")
HEADER_SIZE = _HEADER.size
_SHA256 = 32


class Part(IntEnum):
    """The three runs of blocks, in their order."""

    STATE = 0
    VIEW = 1
    TEXTS = 2


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What an index is of: the state after ``position``, seen with the keys of an epoch and a model's vectors.

    ``blocks`` are the lengths of the sealed blocks of each `Part`.
    """

    tag: str
    position: Position
    key_epoch: int
    dimension: int
    blocks: tuple[list[int], list[int], list[int]]


def model_tag(model: EmbeddingModel) -> str:
    """Return what the manifest says of an index: the formats it is written in and the model that its vectors are of."""
    return f"{INDEX_FORMAT}.{SNAPSHOT_FORMAT}.{model.sha256}"


def block_id(key: str, part: Part, number: int) -> bytes:
    """Return the object id of a block inside its seal: it opens in this index, run and place only."""
    return lp(key, int(part), number)


class IndexPlace:
    """Seals and opens what the log itself reads of the index with this key; ``key`` is without the store's prefix."""

    def __init__(self, sealer: ObjectSealer, account: str, incarnation: bytes, key: str) -> None:
        self._sealer = sealer
        self._account = account
        self._incarnation = incarnation
        self.key = key

    def seal_head(self, head: Head) -> bytes:
        """Seal the head."""
        return self._sealer.seal(self._place("head"), msgspec.msgpack.encode(head))

    def open_head(self, sealed: memoryview) -> Head:
        """Open the head; raises `CorruptNamespace`."""
        try:
            return msgspec.msgpack.decode(self._sealer.unseal(self._place("head"), sealed), type=Head)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CorruptNamespace("an index does not begin as one") from error

    def seal_page(self, page: bytes, number: int) -> bytes:
        """Seal a block of the state."""
        return self._sealer.seal(self._place(f"state/{number}"), page)

    def open_page(self, sealed: memoryview, number: int) -> bytes:
        """Open a block of the state; raises `CorruptNamespace`."""
        return self._sealer.unseal(self._place(f"state/{number}"), sealed)

    def _place(self, what: str) -> Place:
        return Place(ObjectType.INDEX, self._account, self._incarnation, f"{self.key}/{what}")


class IndexBuilder:
    """Collects the blocks of one index, in order.

    Attributes:
        key: the object's, which every block is sealed for.
        position: where in the log the state is.
    """

    def __init__(
        self, place: IndexPlace, positions: Sequence[Position], model: EmbeddingModel, key_epoch: int
    ) -> None:
        self.key = place.key
        self.position = positions[-1]
        self._place = place
        self._model = model
        self._key_epoch = key_epoch
        self._blocks: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
        self.add_page(_encode_positions(positions))

    def add_page(self, page: bytes) -> None:
        """Append a page of the state."""
        self.add(Part.STATE, self._place.seal_page(page, len(self._blocks[Part.STATE])))

    def add(self, part: Part, sealed: bytes) -> None:
        """Append a block of the view or of texts, sealed for `block_id`."""
        self._blocks[part].append(sealed)

    def finish(self) -> bytes:
        """Return the object's bytes."""
        state, view, texts = ([len(block) for block in blocks] for blocks in self._blocks)
        head = self._place.seal_head(
            Head(
                model_tag(self._model),
                self.position,
                self._key_epoch,
                self._model.dimension,
                (state, view, texts),
            )
        )
        total = HEADER_SIZE + len(head) + sum(map(sum, (state, view, texts)))
        header = _HEADER.pack(_MAGIC, total, len(head))
        return b"".join((header, head, *(block for blocks in self._blocks for block in blocks)))


def read_header(data: memoryview) -> tuple[int, int]:
    """Return the sizes of the object and of its head; raises `CorruptNamespace`."""
    try:
        magic, total, head = _HEADER.unpack_from(data)
    except struct.error as error:
        raise CorruptNamespace("an index is too short to be one") from error
    if magic != _MAGIC or HEADER_SIZE + head > total:
        raise CorruptNamespace("an index does not begin as one")
    return total, head


def decode_positions(page: bytes, last: Position) -> list[Position]:
    """Return the positions up to ``last``, oldest first; raises `CorruptNamespace`."""
    count, rest = divmod(len(page), _SHA256)
    digests = [page[at * _SHA256 : (at + 1) * _SHA256] for at in range(count)]
    if rest or not digests or digests[-1] != last.digest or count > last.seq + 1:
        raise CorruptNamespace("an index does not know where it is in the log")
    return [Position(last.seq - count + 1 + at, digest) for at, digest in enumerate(digests)]


def _encode_positions(positions: Sequence[Position]) -> bytes:
    return b"".join(position.digest for position in positions)
