"""The small objects that define a namespace in the store: pointer, keyring and manifest.

The pointer maps a namespace's name to its current incarnation, the keyring has the salt of its key, and the manifest
lists the segments and the index of the log. All are encoded as MessagePack arrays by position and sealed under the metadata
key. New fields are only ever appended, with defaults, so that every version reads what an older one wrote.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import TypeVar

import msgspec

from relayer.domain.operations import UNDECODABLE, decode_versioned
from relayer.errors import CorruptNamespace
from relayer.wire.codec import lp

MANIFEST_FORMAT = 1


T = TypeVar("T", bound=msgspec.Struct)


class Custody(StrEnum):
    """The party that holds the namespace secret; fixed when the namespace is created."""

    AGENT = "agent"
    RELAYER = "relayer"


class PointerState(StrEnum):
    """The state of a namespace: in use, being erased, or erased."""

    LIVE = "live"
    ERASING = "erasing"
    ERASED = "erased"


class Pointer(msgspec.Struct, frozen=True, array_like=True):
    """The pointer from a namespace's name to its current incarnation.

    ``generation`` is that of the namespace secret; ``created_at`` is the store's time in ms. While the keys are rotated,
    ``next`` and ``next_generation`` are the incarnation and the generation that follow; ``next`` is empty otherwise.
    """

    incarnation: bytes
    custody: Custody
    state: PointerState
    name: str
    generation: int
    created_at: int
    next: bytes = b""
    next_generation: int = 0


class Keyring(msgspec.Struct, frozen=True, array_like=True):
    """The salt with which a namespace secret gives the key of an incarnation, and a check value of that key.

    When it is deleted permanently, no content of the incarnation can be read any more. ``earlier`` has the MAC keys of the
    incarnations before it, sealed under this namespace key; it is empty if the keys were never rotated.
    """

    salt: bytes
    key_id: bytes
    check: bytes
    earlier: bytes = b""


class SegmentRow(msgspec.Struct, frozen=True, array_like=True):
    """A segment in a manifest.

    ``digest`` is the SHA-256 of its bytes, ``size`` their number, and ``live`` the number of operations that have a body.
    The segment has no body of anything that was erased up to entry ``reduced_at``.
    """

    first_seq: int
    last_seq: int
    key: str
    digest: bytes
    size: int
    live: int
    reduced_at: int = 0


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """The manifest, the only mutable object of a log. Times are the store's, in ms.

    Segments are in the order of the log and without gaps: the first begins with entry 1, the last ends with
    ``snap_seq``, whose digest is ``chain_digest``. Slots up to ``gc_watermark`` may have been deleted. ``gc_moved_at`` is a
    time at which the store showed that watermark, 0 until a collector has read it. ``gc_epoch`` counts the moves of the
    watermark, and ``gc_swept`` is the last epoch whose unneeded objects were deleted.
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
    live_count: int = 0
    live_bytes: int = 0
    last_time: int = 0
    gc_swept: int = 0

    @property
    def named(self) -> set[str]:
        """Return the keys of the objects that the manifest names; all other segments and indexes are collected."""
        return {row.key for row in self.segments} | {self.index_key}


_MANIFEST = msgspec.msgpack.Decoder(Manifest)


class LogPosition(msgspec.Struct, frozen=True, array_like=True):
    """A position in a log: the number of entries up to it, and the SHA-256 of the stored bytes of the last of them."""

    seq: int
    digest: bytes


def genesis(incarnation: bytes) -> bytes:
    """Return the digest that the first entry links to.

    Example:
        >>> genesis(bytes(16)).hex()[:16]
        'da569f9f4b06fbcf'
    """
    return hashlib.sha256(lp("memrelay/v1/genesis", incarnation)).digest()


def decode(data: bytes, kind: type[T]) -> T:
    """Decode a pointer or a keyring; raises `CorruptNamespace`: the bytes are not an object of this kind."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except UNDECODABLE as error:
        raise CorruptNamespace(f"an object holds no {kind.__name__.lower()}") from error


def decode_manifest(data: bytes) -> Manifest:
    """Decode a manifest; raises as `relayer.domain.operations.decode_versioned`."""
    corrupt = "an object holds no manifest"
    return decode_versioned(data, _MANIFEST, MANIFEST_FORMAT, having="a manifest has format", corrupt=corrupt)
