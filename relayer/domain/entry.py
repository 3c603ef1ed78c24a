"""A log entry: one immutable object, a batch of operations, linked to the entry before it; and the keys of objects."""

from __future__ import annotations

import re

import msgspec

from relayer.domain.operations import UNDECODABLE
from relayer.errors import CorruptNamespace, UpgradeRequired

ENTRY_VERSION = 1
MAX_ENTRY = 8 * 1024 * 1024
MAX_RECORD = 2 * 1024 * 1024


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """The content of one slot.

    ``previous`` is the SHA-256 of the previous entry's stored bytes, ``batch`` says only who wrote this (I10), ``time``
    is in ms and never goes back (I11); ``operations`` are encoded one by one and framed as bytes, so that whatever one holds spoils no other.
    """

    version: int
    seq: int
    previous: bytes
    batch: bytes
    writer: bytes
    time: int
    operations: tuple[bytes, ...]


class _Version(msgspec.Struct, frozen=True, array_like=True):
    """The one field that is read before the version is known."""

    version: int


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Entry)
_VERSION = msgspec.msgpack.Decoder(_Version)


def encode_entry(entry: Entry) -> bytes:
    """Encode an entry."""
    return _ENCODER.encode(entry)


def decode_entry(data: bytes) -> Entry:
    """Decode an entry.

    Raises:
        UpgradeRequired: a version this one does not know (I12).
        CorruptNamespace: no entry at all.
    """
    try:
        version = _VERSION.decode(data).version
        if version == ENTRY_VERSION:
            return _DECODER.decode(data)
    except UNDECODABLE as error:
        raise CorruptNamespace("a log object holds no entry") from error
    raise UpgradeRequired(f"an entry has version {version}; this relayer knows {ENTRY_VERSION}")


_KEY = re.compile(r"[a-z0-9_-]+(?:/[a-z0-9_-]+)*")
_PREFIX = re.compile(r"(?:[a-z0-9_-]+/)*[a-z0-9_-]*")
_LONGEST_SEGMENT = 255  # NAME_MAX of the common file systems
_LONGEST_KEY = 1024  # S3's limit, in bytes


def check_key(key: str) -> str:
    """Return ``key`` if it is ``[a-z0-9_-]`` segments joined by single slashes; raises `ValueError` if not."""
    if not _KEY.fullmatch(key) or len(key) > _LONGEST_KEY:
        raise ValueError(f"not an object key: {key[:80]!r}")
    if any(len(segment) > _LONGEST_SEGMENT for segment in key.split("/")):
        raise ValueError(
            f"an object key's segment is longer than {_LONGEST_SEGMENT} characters: {key[:80]!r}"
        )
    return key


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` if some key can start with it, the empty one included; raises `ValueError` if not."""
    if not _PREFIX.fullmatch(prefix) or len(prefix) > _LONGEST_KEY:
        raise ValueError(f"not a prefix of object keys: {prefix[:80]!r}")
    return prefix


def check_range(byte_range: tuple[int, int] | None) -> None:
    """Raise `ValueError` unless ``byte_range`` is None or ``[start, end)`` with at least one byte in it."""
    if byte_range is not None and not 0 <= byte_range[0] < byte_range[1]:
        raise ValueError(f"not a byte range: {byte_range}")
