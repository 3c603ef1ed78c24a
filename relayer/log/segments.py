"""Segments: their bytes, reading them verified as the manifest names them, uploading them before it does."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from relayer.domain.bodies import Section, put_back, take_out
from relayer.domain.namespace import SegmentRow
from relayer.domain.operations import UNDECODABLE, Entry
from relayer.errors import CorruptNamespace, StoreThrottled, UpgradeRequired
from relayer.lib.work import AT_ONCE, together
from relayer.log.objects import LinkedEntry, LogPorts, ObjectSealer, Place, ReadAhead
from relayer.ports import Absent, Created, Throttled, Unchanged
from relayer.wire import codec as ulid
from relayer.wire.sealing import ObjectType

PAGE_FORMAT = 1


class PageRow(msgspec.Struct, frozen=True, array_like=True):
    """An entry without its bodies.

    ``version``, ``seq`` and ``time`` are the entry's, ``digest`` is the SHA-256 of its stored bytes. ``operations`` are
    their outer forms, ``bodies`` the lengths of what was taken out of them, in that order, 0 for none.
    """

    version: int
    seq: int
    time: int
    digest: bytes
    operations: tuple[bytes, ...]
    bodies: tuple[int, ...]


class Page(msgspec.Struct, frozen=True, array_like=True):
    """A run of entries.

    ``previous`` is the digest that the first of them links to; the bodies begin at ``texts_at`` and ``vectors_at`` of
    the segment's two sections and follow each other without gaps.
    """

    format: int
    previous: bytes
    texts_at: int
    vectors_at: int
    rows: tuple[PageRow, ...]


class _PageFormat(msgspec.Struct, frozen=True, array_like=True):
    format: int


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Page)
_HEAD = msgspec.msgpack.Decoder(_PageFormat)


def encode_page(page: Page) -> bytes:
    """Encode a page."""
    return _ENCODER.encode(page)


def decode_page(data: bytes) -> Page:
    """Decode a page.

    Raises:
        UpgradeRequired: a format this version does not know (I12).
        CorruptNamespace: no page at all.
    """
    try:
        known = _HEAD.decode(data).format
        if known == PAGE_FORMAT:
            return _DECODER.decode(data)
    except UNDECODABLE as error:
        raise CorruptNamespace("a segment holds something else than its directory") from error
    raise UpgradeRequired(f"a segment has format {known}; this relayer knows {PAGE_FORMAT}")


_MAGIC = b"MRS1"
_HEADER = struct.Struct(">4sQQQ")
_LENGTH = struct.Struct(">I")
# A page of this size is opened and applied in a few milliseconds.
PAGE_BYTES = 64 * 1024
_ROW_FRAME = 64


class PackPlace:
    """Seals and opens the pages of the segment with this key; ``key`` is without the store's prefix."""

    def __init__(self, sealer: ObjectSealer, account: str, incarnation: bytes, key: str) -> None:
        self._sealer = sealer
        self._account = account
        self._incarnation = incarnation
        self.key = key

    def _place(self, number: int, count: int) -> Place:
        page = f"{self.key}/{number}/{count}"
        return Place(ObjectType.SEGMENT_DIRECTORY, self._account, self._incarnation, page)

    def seal(self, page: Page, number: int, count: int) -> bytes:
        """Seal page ``number`` of ``count``, counted from 0."""
        return self._sealer.seal(self._place(number, count), encode_page(page))

    def open(self, sealed: bytes, number: int, count: int) -> Page:
        """Open a page; raises `CorruptNamespace` and `UpgradeRequired`."""
        return decode_page(self._sealer.unseal(self._place(number, count), sealed))


class PackBuilder:
    """Collects the entries of one segment, in order.

    Attributes:
        count: entries so far.
        size: about the bytes that `finish` will return.
        kept: operations so far that have a body.
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
            self._begin_page(linked.entry.previous)
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

    def _begin_page(self, previous: bytes) -> None:
        self._previous = previous
        self._texts_at, self._vectors_at = len(self._texts), len(self._vectors)
        self._row_bytes = 0

    def _end_page(self) -> None:
        if self._rows:
            rows = tuple(self._rows)
            self._pages.append(Page(PAGE_FORMAT, self._previous, self._texts_at, self._vectors_at, rows))
            self._rows.clear()

    def finish(self, place: PackPlace) -> bytes:
        """Return the segment's bytes."""
        self._end_page()
        directory = bytearray()
        for number, page in enumerate(self._pages):
            sealed = place.seal(page, number, len(self._pages))
            directory += _LENGTH.pack(len(sealed)) + sealed
        header = _HEADER.pack(_MAGIC, len(directory), len(self._texts), len(self._vectors))
        return b"".join((header, directory, self._texts, self._vectors))


def open_pack(data: bytes, place: PackPlace) -> Iterator[LinkedEntry]:
    """Yield the entries of a segment in order, each as it was stored, but for bodies that were left out.

    A page is opened when its first entry is asked for.

    Raises:
        CorruptNamespace: it is no segment, or not the one of this place.
        UpgradeRequired: its format is unknown (I12).
    """
    pages, texts, vectors = _parts(memoryview(data))
    for number, sealed in enumerate(pages):
        page = place.open(bytes(sealed), number, len(pages))
        reader = _PageReader(page, texts, vectors)
        previous = page.previous
        for row in page.rows:
            yield LinkedEntry(reader.entry(row, previous), row.digest)
            previous = row.digest


def salvage_pack(data: bytes, size: int, place: PackPlace) -> Iterator[LinkedEntry]:
    """Yield the entries of every page that still opens in a damaged segment, in order.

    Args:
        data: what is left of it.
        size: the bytes that it had; what was cut off is taken for zeros, so that bodies may be damaged, and say so when
            they are unsealed.
        place: where it belongs.
    """
    try:
        pages, texts, vectors = _parts(memoryview(data[:size].ljust(size, b"\0")))
    except CorruptNamespace:
        return
    for number, sealed in enumerate(pages):
        try:
            page = place.open(bytes(sealed), number, len(pages))
            reader, previous = _PageReader(page, texts, vectors), page.previous
            for row in page.rows:
                yield LinkedEntry(reader.entry(row, previous), row.digest)
                previous = row.digest
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
        if len(directory) - at < _LENGTH.size:
            raise CorruptNamespace("a segment's directory ends within a page")
        (length,) = _LENGTH.unpack_from(directory, at)
        at += _LENGTH.size
        if len(directory) - at < length:
            raise CorruptNamespace("a segment's directory ends within a page")
        pages.append(directory[at : at + length])
        at += length
    return pages


class _PageReader:
    """Puts the bodies of one page's entries back into their operations."""

    def __init__(self, page: Page, texts: memoryview, vectors: memoryview) -> None:
        self._sections = {Section.TEXTS: texts, Section.VECTORS: vectors}
        self._at = {Section.TEXTS: page.texts_at, Section.VECTORS: page.vectors_at}

    def entry(self, row: PageRow, previous: bytes) -> Entry:
        """Return the page's next entry; batch and writer are not kept."""
        lengths = iter(row.bodies)

        def take(section: Section) -> bytes:
            return self._take(section, next(lengths, 0))

        return Entry(
            version=row.version,
            seq=row.seq,
            previous=previous,
            batch=b"",
            writer=b"",
            time=row.time,
            operations=tuple(put_back(outer, take) for outer in row.operations),
        )

    def _take(self, section: Section, length: int) -> bytes:
        view, at = self._sections[section], self._at[section]
        if not 0 <= at <= at + length <= len(view):
            raise CorruptNamespace("a segment's directory points outside of it")
        self._at[section] = at + length
        return bytes(view[at : at + length])


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
    """The segments of one incarnation; ``ahead`` is asked for them, see `ReadAhead`."""

    def __init__(
        self, ports: LogPorts, account: str, incarnation: bytes, ahead: ReadAhead | None = None
    ) -> None:
        self._ports = ports
        self._ahead = ahead or ReadAhead(ports)
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
            outcome = await self._ahead.get(key)
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
