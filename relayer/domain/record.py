"""A memory as it is sealed: the full record, so that nothing needs to be added to old memories later.

Encoded as a MessagePack array by position. Fields are only ever appended, with defaults, so that every version reads
what an older one wrote. Times are in ms since the epoch; ids are 16-byte ULIDs.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["Audience", "Kind", "Model", "Record", "Role", "Source", "Trust", "decode_record", "encode_record"]


class Kind(StrEnum):
    """What sort of memory it is."""

    STATEMENT = "statement"
    FACT = "fact"
    PREFERENCE = "preference"
    DECISION = "decision"
    EVENT = "event"
    TASK = "task"
    SUMMARY = "summary"
    PROFILE = "profile"
    IMPORTED = "imported"


class Audience(StrEnum):
    """Among whom it was said; a direct message never surfaces in a group."""

    AGENT = "agent"
    DIRECT = "direct"
    GROUP = "group"


class Trust(StrEnum):
    """Who vouches for it, most trusted first."""

    USER = "user"
    IMPORTED = "imported"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Role(StrEnum):
    """Who said a turn."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SYSTEM = "system"


class Source(msgspec.Struct, frozen=True, array_like=True):
    """Where it comes from. ``span`` is the evidence's start and end in characters of the text."""

    host: str = ""
    agent: str = ""
    session: str = ""
    speaker: str = ""
    role: Role = Role.USER
    message_ids: tuple[str, ...] = ()
    span: tuple[int, int] | None = None
    transcript: str = ""
    reference: str = ""


class Model(msgspec.Struct, frozen=True, array_like=True):
    """What made something: an extractor (name, model, prompt version) or an embedding (name, sha256, dimension)."""

    name: str = ""
    detail: str = ""
    version: str = ""


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One memory. What changes over its life (state, successors, reinforcement) stands in the namespace's state."""

    id: bytes
    namespace: str
    text: str
    kind: Kind = Kind.STATEMENT
    audience: Audience = Audience.AGENT
    trust: Trust = Trust.USER
    suspect: bool = False
    pinned: bool = False
    importance: float = 0.5
    lang: str = ""
    created_at: int = 0
    occurred_at: int | None = None
    valid_from: int | None = None
    valid_to: int | None = None
    expires_at: int | None = None
    supersedes: tuple[bytes, ...] = ()
    context_of: bytes = b""
    source: Source = Source()
    extractor: Model = Model()
    embedding: Model = Model()
    idempotency_key: str = ""
    author: bytes = b""
    contradicts: tuple[bytes, ...] = ()


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Encode a record."""
    return _ENCODER.encode(record)


def decode_record(data: bytes) -> Record:
    """Decode a record; raises `msgspec.MsgspecError` when it is none."""
    return _DECODER.decode(data)
