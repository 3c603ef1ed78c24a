"""The records of one namespace, sealed in memory, opened when somebody asks for them.

Opening and decoding a record takes some 40 us, and a recall needs a handful of thousands; sealed they take a fraction of
what they take as values. What was asked for lately stays open, within a few KiB.

Records come from the log one by one, each under its own seal, or from a stored index in blocks of many.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from relayer.crypto.namespace_keys import NamespaceKeys
from relayer.domain.record import Record, decode_record
from relayer.wire.errors import UnsealError

__all__ = ["BLOCK_RECORDS", "RecordShelf"]

# A block of so many is opened for one of them, in about the time of two single records.
BLOCK_RECORDS = 32
_OPEN_BYTES = 32 * 1024
# A record as a value takes about this many times its encoded size.
_AS_VALUE = 6
_ENTRY_BYTES = 150

_BLOCK = msgspec.msgpack.Decoder(list[bytes])


class _Block(NamedTuple):
    """Sealed records ``first`` and following; an absent one is empty. ``name`` returns the id inside the seal."""

    first: int
    name: Callable[[], bytes]
    sealed: bytes


class RecordShelf:
    """Records by number."""

    def __init__(self, keys: NamespaceKeys) -> None:
        self._keys = keys
        self._single: dict[int, tuple[bytes, bytes]] = {}
        self._blocks: list[_Block] = []
        self._open: OrderedDict[int, tuple[Record, int]] = OrderedDict()
        self._open_bytes = 0
        self._sealed_bytes = 0
        # Whoever goes through all records opens each block once.
        self._last: tuple[_Block, list[bytes]] | None = None

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        entries = len(self._single) + len(self._blocks)
        return self._sealed_bytes + entries * _ENTRY_BYTES + self._open_bytes * _AS_VALUE

    def put(self, number: int, record_id: bytes, sealed: bytes) -> Record:
        """Take a record as the log holds it.

        Raises:
            UnsealError, msgspec.MsgspecError: it does not open; nothing was kept.
        """
        encoded = self._keys.unseal_record(record_id, sealed)
        record = decode_record(encoded)
        self.keep(number, record_id, sealed, record, len(encoded))
        return record

    def keep(self, number: int, record_id: bytes, sealed: bytes, record: Record, size: int) -> None:
        """Take a record of which the contents are known already; ``size`` is that of its encoding."""
        self._single[number] = (record_id, sealed)
        self._sealed_bytes += len(sealed)
        self._note(number, record, size)

    def put_block(self, first: int, name: Callable[[], bytes], sealed: bytes) -> None:
        """Take a block of a stored index, unopened; blocks come in order, before any single record."""
        self._blocks.append(_Block(first, name, sealed))
        self._sealed_bytes += len(sealed)

    def get(self, number: int) -> Record | None:
        """Open a record; None when there is none, or it does not open any more."""
        known = self._open.get(number)
        if known is not None:
            self._open.move_to_end(number)
            return known[0]
        try:
            encoded = self._encoded(number)
            if not encoded:
                return None
            record = decode_record(encoded)
        except (UnsealError, msgspec.MsgspecError):
            return None
        self._note(number, record, len(encoded))
        return record

    def drop(self, number: int, salt: bytes) -> None:
        """Destroy a record: what is left of its block is sealed anew, with ``salt``, without it."""
        known = self._open.pop(number, None)
        if known is not None:
            self._open_bytes -= known[1]
        single = self._single.pop(number, None)
        if single is not None:
            self._sealed_bytes -= len(single[1])
            return
        at = self._block_of(number)
        if at is None:
            return
        block = self._blocks[at]
        members, self._last = self._members(block), None
        if number - block.first < len(members):
            members[number - block.first] = b""
        self._sealed_bytes -= len(block.sealed)
        sealed = self._keys.seal_index(block.name(), msgspec.msgpack.encode(members), salt=salt)
        self._blocks[at] = block._replace(sealed=sealed)
        self._sealed_bytes += len(sealed)

    def encoded_blocks(self, count: int) -> Iterator[bytes]:
        """Yield the plaintexts of blocks that hold records 0 to ``count``, for `put_block` of another shelf.

        Raises:
            UnsealError: one does not open any more.
        """
        for first in range(0, count, BLOCK_RECORDS):
            at = self._block_of(first)
            known = [] if at is None else self._members(self._blocks[at])[first - self._blocks[at].first :]
            members = list(known[: count - first])
            for number in range(first, min(first + BLOCK_RECORDS, count)):
                if number - first >= len(members) or number in self._single:
                    single = self._single.get(number)
                    encoded = b"" if single is None else self._keys.unseal_record(*single)
                    members[number - first : number - first + 1] = [encoded]
            yield msgspec.msgpack.encode(members)

    def _encoded(self, number: int) -> bytes:
        single = self._single.get(number)
        if single is not None:
            return self._keys.unseal_record(*single)
        at = self._block_of(number)
        if at is None:
            return b""
        members = self._members(self._blocks[at])
        place = number - self._blocks[at].first
        return members[place] if place < len(members) else b""

    def _members(self, block: _Block) -> list[bytes]:
        if self._last is None or self._last[0] is not block:
            self._last = (block, _BLOCK.decode(self._keys.unseal_index(block.name(), block.sealed)))
        return self._last[1]

    def _block_of(self, number: int) -> int | None:
        at = bisect_right(self._blocks, number, key=_first) - 1
        return at if at >= 0 else None

    def _note(self, number: int, record: Record, size: int) -> None:
        self._open[number] = (record, size)
        self._open_bytes += size
        while self._open_bytes > _OPEN_BYTES and len(self._open) > 1:
            _, (_, oldest) = self._open.popitem(last=False)
            self._open_bytes -= oldest


def _first(block: _Block) -> int:
    return block.first
