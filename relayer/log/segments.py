"""Segments: objects that have the entries of many slots.

A segment has a directory of sealed pages, which are the entries without their bodies, followed by a section of texts and
one of vectors, which hold the bodies. `PackBuilder` builds the bytes of a segment, `open_pack` reads its entries, and
`salvage_pack` reads what is left of a damaged one. `Segments` uploads a segment before a manifest names it, and verifies
the bytes that it reads against the digest in the manifest.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from relayer.domain.bodies import Section, put_back, take_out
from relayer.domain.namespace import SegmentRow
from relayer.domain.operations import Entry, decode_versioned, encode_stored
from relayer.errors import CorruptNamespace, StoreThrottled
from relayer.lib.work import AT_ONCE
from relayer.log.objects import (
    IncarnationObjects,
    Layout,
    LinkedEntry,
    ObjectLocation,
    ObjectSealer,
    PartSealer,
)
from relayer.ports import Absent, Created, Throttled
from relayer.wire import codec as ulid
from relayer.wire.sealing import ObjectType

PAGE_FORMAT = 1


class PageRow(msgspec.Struct, frozen=True, array_like=True):
    """An entry without its bodies.

    ``version``, ``seq`` and ``time`` are the entry's, ``digest`` is the SHA-256 of its stored bytes. ``operations`` are
    the outer forms of its operations, and ``bodies`` the lengths in bytes of the bodies that were taken out of them, in the
    same order, 0 for an absent body.
    """

    version: int
    seq: int
    time: int
    digest: bytes
    operations: tuple[bytes, ...]
    bodies: tuple[int, ...]


class Page(msgspec.Struct, frozen=True, array_like=True):
    """A page: a run of consecutive entries.

    ``previous`` is the digest that the first of them links to. Their bodies begin at the offsets ``texts_at`` and
    ``vectors_at`` of the segment's two sections and follow each other without gaps.
    """

    format: int
    previous: bytes
    texts_at: int
    vectors_at: int
    rows: tuple[PageRow, ...]


_DECODER = msgspec.msgpack.Decoder(Page)


def decode_page(data: bytes) -> Page:
    """Decode a page; raises as `relayer.domain.operations.decode_versioned`."""
    corrupt = "a segment holds something else than its directory"
    return decode_versioned(data, _DECODER, PAGE_FORMAT, having="a segment has format", corrupt=corrupt)


_MAGIC = b"MRS1"
_HEADER = struct.Struct(">4sQQQ")
_LENGTH = struct.Struct(">I")
# A page of this size is unsealed and applied in a few milliseconds.
PAGE_BYTES = 64 * 1024
_ROW_FRAME = 64


def pack_place(sealer: ObjectSealer, account: str, incarnation: bytes, key: str) -> PartSealer:
    """Return the sealer of the pages of the segment with this key, each by its number from 0 and the number of pages."""
    return PartSealer(sealer, ObjectLocation(ObjectType.SEGMENT_DIRECTORY, account, incarnation, key))


class PackBuilder:
    """The builder of one segment, to which entries are added in order.

    Attributes:
        count: the number of entries so far.
        size: about the number of bytes that `finish` will return.
        kept: the number of operations so far that have a body.
    """

    def __init__(self) -> None:
        self.count = 0
        self.size = _HEADER.size
        self.kept = 0
        self._texts = bytearray()
        self._vectors = bytearray()
        self._pages: list[Page] = []
        self._rows: list[PageRow] = []
        self._row_bytes = 0
        self._previous = b""
        self._texts_at = 0
        self._vectors_at = 0

    def add(self, linked: LinkedEntry, operations: Sequence[bytes]) -> None:
        """Append an entry, with its operations as `relayer.domain.bodies.reduce` left them."""
        if not self._rows:
            self._previous = linked.entry.previous
            self._texts_at, self._vectors_at = len(self._texts), len(self._vectors)
            self._row_bytes = 0
        outer, lengths = [], []
        for raw in operations:
            skeleton, bodies = take_out(raw)
            outer.append(skeleton)
            for section, body in bodies:
                lengths.append(len(body))
                (self._texts if section is Section.TEXTS else self._vectors).extend(body)
            self.kept += any(body for _, body in bodies)
        entry = linked.entry
        self._rows.append(
            PageRow(entry.version, entry.seq, entry.time, linked.digest, tuple(outer), tuple(lengths))
        )
        row_bytes = sum(map(len, outer)) + _ROW_FRAME
        self.count += 1
        self.size += row_bytes + sum(lengths)
        self._row_bytes += row_bytes
        if self._row_bytes >= PAGE_BYTES:
            self._end_page()

    def _end_page(self) -> None:
        if self._rows:
            rows = tuple(self._rows)
            self._pages.append(Page(PAGE_FORMAT, self._previous, self._texts_at, self._vectors_at, rows))
            self._rows.clear()

    def finish(self, place: PartSealer) -> bytes:
        """Return the segment's bytes."""
        self._end_page()
        directory = bytearray()
        for number, page in enumerate(self._pages):
            sealed = place.seal(f"{number}/{len(self._pages)}", encode_stored(page))
            directory += _LENGTH.pack(len(sealed)) + sealed
        header = _HEADER.pack(_MAGIC, len(directory), len(self._texts), len(self._vectors))
        return b"".join((header, directory, self._texts, self._vectors))


def open_pack(data: bytes, place: PartSealer) -> Iterator[LinkedEntry]:
    """Yield the entries of a segment in order, each as it was stored, except for bodies that were left out.

    A page is unsealed when the iteration reaches its first entry. Raises `CorruptNamespace`: the bytes are not a segment, or
    not the segment with this key.
    """
    pages, texts, vectors = _parts(memoryview(data))
    for number, sealed in enumerate(pages):
        page = decode_page(place.unseal(f"{number}/{len(pages)}", sealed))
        yield from _entries(page, texts, vectors)


def salvage_pack(data: bytes, size: int, place: PartSealer) -> Iterator[LinkedEntry]:
    """Yield the entries of every page that can still be unsealed in a damaged segment, in order.

    What was cut off of the ``size`` bytes that it had is replaced with zeros, so bodies may be damaged; that is detected when
    they are unsealed.
    """
    try:
        pages, texts, vectors = _parts(memoryview(data[:size].ljust(size, b"\0")))
    except CorruptNamespace:
        return
    for number, sealed in enumerate(pages):
        try:
            page = decode_page(place.unseal(f"{number}/{len(pages)}", sealed))
            yield from _entries(page, texts, vectors)
        except CorruptNamespace:
            continue  # only this page's entries are lost


def _parts(view: memoryview) -> tuple[list[memoryview], memoryview, memoryview]:
    try:
        magic, directory, texts, vectors = _HEADER.unpack_from(view)
    except struct.error as error:
        raise CorruptNamespace("a segment is too short to be one") from error
    if magic != _MAGIC or len(view) != _HEADER.size + directory + texts + vectors:
        raise CorruptNamespace("a segment has another size than it says")
    start = _HEADER.size
    ends = (start + directory, start + directory + texts)
    return _split(view[start : ends[0]]), view[ends[0] : ends[1]], view[ends[1] :]


def _split(directory: memoryview) -> list[memoryview]:
    pages = []
    at = 0
    while at < len(directory):
        start = at + _LENGTH.size
        end = start + int.from_bytes(directory[at:start], "big")
        if end > len(directory):
            raise CorruptNamespace("a segment's directory ends within a page")
        pages.append(directory[start:end])
        at = end
    return pages


def _entries(page: Page, texts: memoryview, vectors: memoryview) -> Iterator[LinkedEntry]:
    """Yield a page's entries with their bodies; ``batch`` and ``writer`` are empty, because segments do not keep these."""
    sections = {Section.TEXTS: texts, Section.VECTORS: vectors}
    offsets = {Section.TEXTS: page.texts_at, Section.VECTORS: page.vectors_at}
    lengths: Iterator[int] = iter(())

    def take(section: Section) -> bytes:
        length = next(lengths, 0)
        view, at = sections[section], offsets[section]
        if not 0 <= at <= at + length <= len(view):
            raise CorruptNamespace("a segment's directory points outside of it")
        offsets[section] = at + length
        return bytes(view[at : at + length])

    previous = page.previous
    for row in page.rows:
        lengths = iter(row.bodies)
        operations = tuple(put_back(outer, take) for outer in row.operations)
        entry = Entry(
            row.version, row.seq, previous, batch=b"", writer=b"", time=row.time, operations=operations
        )
        yield LinkedEntry(entry, row.digest)
        previous = row.digest


# The maximum number of bytes that are read before they are applied; a larger segment is read alone.
_WINDOW_BYTES = 32 * 1024 * 1024
# Hashing a MiB takes about a millisecond.
_HASH_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment whose bytes were verified against the digest in the manifest."""

    row: SegmentRow
    data: bytes = field(repr=False)
    _place: PartSealer

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


class Segments(IncarnationObjects):
    """The segments of one incarnation in the store."""

    async def read(self, row: SegmentRow) -> Segment | None:
        """Read a segment; None if it is absent, which means that the manifest has changed since.

        Raises:
            CorruptNamespace: the bytes in the store do not have the digest that the manifest names.
        """
        for _ in range(2):  # a response may have been truncated, so a failed read is retried once
            outcome = await self._ahead.get(row.key)
            if isinstance(outcome, Absent):
                return None
            if await _digest(outcome.data) == row.digest:
                return Segment(row, outcome.data, self._place(row.key))
        raise CorruptNamespace(f"the segment at {row.key} holds other bytes than the manifest says")

    async def upload(
        self, builder: PackBuilder, first_seq: int, now_ms: int, reduced_at: int = 0
    ) -> SegmentRow | None:
        """Upload a segment under a unique key, and return its row for the manifest; None if the upload is not certain.

        A segment is not read before a manifest names it. The collector deletes one that is never named.

        Args:
            builder: the builder with all entries of the segment.
            first_seq: the slot of the first entry.
            now_ms: the store's time in ms, for the ULID in the key.
            reduced_at: the last entry of the log that was applied when bodies were first left out of this segment.

        Raises:
            StoreError: the store did not accept it.
        """
        name = ulid.make(now_ms, self._ports.randomness.bytes(10))
        key = Layout.segment(self._incarnation, first_seq, name)
        data = builder.finish(self._place(key))
        digest = await _digest(data)
        outcome = await self._ports.store.create(key, data)
        if isinstance(outcome, Throttled):
            raise StoreThrottled("the store asks for patience", outcome.retry_after)
        if not isinstance(outcome, Created):
            return None
        last_seq = first_seq + builder.count - 1
        return SegmentRow(first_seq, last_seq, key, digest, len(data), builder.kept, reduced_at)

    async def read_loose(self, key: str) -> list[LinkedEntry] | None:
        """Return the entries of a segment that no manifest names, by its key without prefix; None if it is absent.

        Raises:
            CorruptNamespace: the object cannot be read as the segment with this key.
        """
        found = await self._ports.get(key)
        return None if found is None else list(open_pack(found.data, self._place(key)))

    def _place(self, key: str) -> PartSealer:
        return pack_place(self._sealer, self._account, self._incarnation, key)


def windows(rows: list[SegmentRow]) -> Iterator[list[SegmentRow]]:
    """Split rows into runs to be read concurrently, with a limited number of requests and of bytes."""
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
    """Return the SHA-256 of bytes, computed in steps between which other tasks can run."""
    digest = hashlib.sha256()
    view = memoryview(data)
    for start in range(0, len(view), _HASH_BYTES):
        digest.update(view[start : start + _HASH_BYTES])
        await asyncio.sleep(0)
    return digest.digest()
