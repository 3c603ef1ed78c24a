"""The small objects that say what a namespace is: pointer, keyring, manifest.

All are MessagePack arrays by position, sealed under the metadata key; fields are only ever appended, with defaults.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import TypeVar

import msgspec

from relayer.domain.operations import UNDECODABLE
from relayer.errors import CorruptNamespace, UpgradeRequired
from relayer.wire.codec import lp

MANIFEST_FORMAT = 1


T = TypeVar("T", bound=msgspec.Struct)


class Custody(StrEnum):
    """Who holds the namespace secret; fixed when the namespace is made."""

    AGENT = "agent"
    RELAYER = "relayer"


class PointerState(StrEnum):
    """Where a namespace is in its life."""

    LIVE = "live"
    ERASING = "erasing"
    ERASED = "erased"


class Pointer(msgspec.Struct, frozen=True, array_like=True):
    """A name's current incarnation."""

    incarnation: bytes
    custody: Custody
    state: PointerState
    name: str
    generation: int
    created_at: int


class Keyring(msgspec.Struct, frozen=True, array_like=True):
    """What turns a namespace secret into the key of an epoch; destroying it destroys every content of the epoch."""

    epoch: int
    salt: bytes
    key_id: bytes
    check: bytes


class SegmentRow(msgspec.Struct, frozen=True, array_like=True):
    """One segment of a manifest: ``digest`` is the SHA-256 of its bytes, ``live`` counts operations with a body.

    What was erased up to entry ``reduced_at`` has no body in it.
    """

    first_seq: int
    last_seq: int
    key: str
    digest: bytes
    size: int
    live: int
    reduced_at: int = 0


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """The only mutable object of a log. Times are the store's, in ms.

    Segments are in the order of the log and without gaps: the first begins with entry 1, the last ends with
    ``snap_seq``, whose digest is ``chain_digest``. Slots up to ``gc_watermark`` may be gone; ``gc_moved_at`` is a time
    at which the store showed that watermark, 0 until somebody saw it; ``gc_epoch`` counts its moves, and ``gc_swept`` is
    the last one whose leftovers were deleted.
    """

    format: int
    segments: tuple[SegmentRow, ...] = ()
    index_key: str = ""
    index_seq: int = 0
    index_model: str = ""
    snap_seq: int = 0
    chain_digest: bytes = b""
    gc_watermark: int = 0
    gc_moved_at: int = 0
    gc_epoch: int = 0
    key_epoch: int = 1
    live_count: int = 0
    live_bytes: int = 0
    last_time: int = 0
    gc_swept: int = 0

    @property
    def named(self) -> set[str]:
        """Keys of the objects that it names: what else lies below segments and indexes is collected."""
        return {row.key for row in self.segments} | {self.index_key}


class Position(msgspec.Struct, frozen=True, array_like=True):
    """A point in a log: how many entries, and the digest of the last one's stored bytes."""

    seq: int
    digest: bytes


def genesis(incarnation: bytes) -> bytes:
    """Return the digest that the first entry links to."""
    return hashlib.sha256(lp("memrelay/v1/genesis", incarnation)).digest()


def encode(value: Pointer | Keyring | Manifest) -> bytes:
    """Encode one of the small objects."""
    return msgspec.msgpack.encode(value)


def decode(data: bytes, kind: type[T]) -> T:
    """Decode a pointer or a keyring.

    Raises:
        CorruptNamespace: it is none.
    """
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except UNDECODABLE as error:
        raise CorruptNamespace(f"an object holds no {kind.__name__.lower()}") from error


def decode_manifest(data: bytes) -> Manifest:
    """Decode a manifest.

    Raises:
        UpgradeRequired: a format this version does not know (I12).
        CorruptNamespace: no manifest at all.
    """
    head = decode(data, _Format)
    if not 1 <= head.format <= MANIFEST_FORMAT:
        raise UpgradeRequired(f"a manifest has format {head.format}; this relayer knows {MANIFEST_FORMAT}")
    return decode(data, Manifest)


class _Format(msgspec.Struct, frozen=True, array_like=True):
    format: int
