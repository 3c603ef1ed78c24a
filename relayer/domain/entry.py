"""A log entry: one immutable object, a batch of operations, linked to the entry before it."""

from __future__ import annotations

import msgspec

from relayer.errors import CorruptNamespace, UpgradeRequired

__all__ = ["ENTRY_VERSION", "MAX_ENTRY", "MAX_RECORD", "Entry", "decode_entry", "encode_entry"]

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


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """The one field that is read before the version is known."""

    version: int


_UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Entry)
_HEAD = msgspec.msgpack.Decoder(_Head)


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
        version = _HEAD.decode(data).version
        if version == ENTRY_VERSION:
            return _DECODER.decode(data)
    except _UNDECODABLE as error:
        raise CorruptNamespace("a log object holds no entry") from error
    raise UpgradeRequired(f"an entry has version {version}; this relayer knows {ENTRY_VERSION}")
