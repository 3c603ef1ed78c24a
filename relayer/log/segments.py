"""Segments in the store: read and verified as the manifest names them, uploaded before it does."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from relayer.domain.namespace import SegmentRow
from relayer.errors import CorruptNamespace, StoreThrottled
from relayer.log.log_ports import LogPorts
from relayer.log.sealed_objects import ObjectSealer
from relayer.log.segment_pack import PackBuilder, PackPlace, open_pack
from relayer.log.slots import LinkedEntry
from relayer.log.together import AT_ONCE, together
from relayer.ports import Absent, Created, Throttled, Unchanged
from relayer.wire import ulid

__all__ = ["Segment", "Segments", "windows"]

# What is read before it is applied; a larger segment is read alone.
_WINDOW_BYTES = 32 * 1024 * 1024
# Hashing a MiB takes about a millisecond.
_HASH_BYTES = 1024 * 1024
_ULID_RANDOM = 10


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment whose bytes are those that the manifest names."""

    row: SegmentRow
    data: bytes = field(repr=False)
    _place: PackPlace

    def entries(self) -> Iterator[LinkedEntry]:
        """Yield its entries in order; raises as `open_pack`."""
        expected = self.row.first_seq
        for linked in open_pack(self.data, self._place):
            if linked.entry.seq != expected:
                raise CorruptNamespace(f"a segment lacks entry {expected}")
            yield linked
            expected += 1
        if expected != self.row.last_seq + 1:
            raise CorruptNamespace(f"a segment lacks entry {expected}")


class Segments:
    """The segments of one incarnation."""

    def __init__(self, ports: LogPorts, account: str, incarnation: bytes) -> None:
        self._ports = ports
        self._sealer = ObjectSealer(ports)
        self._account = account
        self._incarnation = incarnation

    async def read_all(self, rows: list[SegmentRow]) -> list[Segment | None]:
        """Read segments at the same time; None for one that is absent. Raises as `read`."""
        return await together([self.read(row) for row in rows])

    async def read(self, row: SegmentRow) -> Segment | None:
        """Read a segment; None when it is absent, which says that the manifest has changed since.

        Raises:
            CorruptNamespace: the store holds other bytes than the manifest says.
            StoreError: the store did not answer.
        """
        key = self._ports.layout.at(row.key)
        for _ in range(2):  # an answer that was cut short is asked for once more
            outcome = await self._ports.store.get(key)
            assert not isinstance(outcome, Unchanged), "no etag was given"
            if isinstance(outcome, Absent):
                return None
            if await _digest(outcome.data) == row.digest:
                return Segment(row, outcome.data, self._place(row.key))
        raise CorruptNamespace(f"the segment at {row.key} holds other bytes than the manifest says")

    async def upload(
        self, builder: PackBuilder, first_seq: int, now_ms: int, reduced_at: int = 0
    ) -> SegmentRow | None:
        """Store what was built under a name of its own and return the row that names it; None if that is not sure.

        ``reduced_at`` is the last entry of the log that was known when the first body was left out.
        Nobody reads it before a manifest names it. What is not named in the end is the collector's to delete.

        Raises:
            StoreError: the store did not take it.
        """
        name = ulid.make(now_ms, self._ports.randomness.bytes(_ULID_RANDOM))
        key = self._ports.layout.segment(self._incarnation, first_seq, name)
        data = builder.finish(self._place(key))
        digest = await _digest(data)
        outcome = await self._ports.store.create(self._ports.layout.at(key), data)
        if isinstance(outcome, Throttled):
            raise StoreThrottled("the store asks for patience", outcome.retry_after)
        if not isinstance(outcome, Created):
            return None
        last_seq = first_seq + builder.count - 1
        return SegmentRow(first_seq, last_seq, key, digest, len(data), builder.kept, reduced_at)

    async def read_loose(self, key: str) -> list[LinkedEntry] | None:
        """Return the entries of a segment that no manifest vouches for, by its key without prefix; None if it is absent.

        Raises:
            CorruptNamespace: it does not open as a segment of this place.
            UpgradeRequired, StoreError: as `read`.
        """
        outcome = await self._ports.store.get(self._ports.layout.at(key))
        assert not isinstance(outcome, Unchanged), "no etag was given"
        return None if isinstance(outcome, Absent) else list(open_pack(outcome.data, self._place(key)))

    def _place(self, key: str) -> PackPlace:
        return PackPlace(self._sealer, self._account, self._incarnation, key)


def windows(rows: list[SegmentRow]) -> Iterator[list[SegmentRow]]:
    """Cut rows into runs that are read at the same time: few enough requests, and not too many bytes."""
    window: list[SegmentRow] = []
    for row in rows:
        if window and (
            len(window) == AT_ONCE or sum(item.size for item in window) + row.size > _WINDOW_BYTES
        ):
            yield window
            window = []
        window.append(row)
    if window:
        yield window


async def _digest(data: bytes) -> bytes:
    """Hash in steps between which others get their turn."""
    digest = hashlib.sha256()
    view = memoryview(data)
    for start in range(0, len(view), _HASH_BYTES):
        digest.update(view[start : start + _HASH_BYTES])
        await asyncio.sleep(0)
    return digest.digest()
