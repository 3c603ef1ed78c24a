"""A segment's directory: for each entry what it says without its bodies, and how long each body is.

A directory is cut into pages, so that a large segment is read in steps and no sealed object grows without bound. All are
MessagePack arrays by position; fields are only ever appended, with defaults.
"""

from __future__ import annotations

import msgspec

from relayer.errors import CorruptNamespace, UpgradeRequired

__all__ = ["PAGE_FORMAT", "Page", "PageRow", "decode_page", "encode_page"]

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


class _Head(msgspec.Struct, frozen=True, array_like=True):
    format: int


_UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Page)
_HEAD = msgspec.msgpack.Decoder(_Head)


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
    except _UNDECODABLE as error:
        raise CorruptNamespace("a segment holds something else than its directory") from error
    raise UpgradeRequired(f"a segment has format {known}; this relayer knows {PAGE_FORMAT}")
