"""The bytes of a segment: header, directory, texts, vectors.

    offset  size  field
    0       4     magic "MRS1"
    4       8     bytes of the directory, big endian, as are the next two
    12      8     bytes of the texts
    20      8     bytes of the vectors
    28            directory: for each page its length in four bytes, and the page, sealed under the metadata key
                  texts: sealed records and job inputs, one after the other
                  vectors: sealed vectors, one after the other

The directory comes first, so that a reader who wants one section only, or one body, asks for two ranges. Bodies keep the
seals that their writers gave them; a page is sealed for its place among the pages of its segment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from relayer.domain.bodies import Section, put_back, take_out
from relayer.domain.entry import Entry
from relayer.domain.segment_page import PAGE_FORMAT, Page, PageRow, decode_page, encode_page
from relayer.errors import CorruptNamespace
from relayer.log.sealed_objects import ObjectSealer, Place
from relayer.log.slots import LinkedEntry
from relayer.wire.sealing import ObjectType

__all__ = ["PackBuilder", "PackPlace", "open_pack", "salvage_pack"]

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
