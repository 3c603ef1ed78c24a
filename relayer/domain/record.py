"""A memory as it is sealed: the full record, so that nothing needs to be added to old memories later.

Encoded as a MessagePack array by position. Fields are only ever appended, with defaults, so that every version reads
what an older one wrote. Times are in ms since the epoch; ids are 16-byte ULIDs.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

DIALOGUE = "dialogue"
"""The ``source.transcript`` of a `Dialogue`: of no memory, because a memory has a text."""


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
    # Position 23 is a dialogue's lines: whoever appends a field moves `Dialogue.lines` here first.

    @property
    def said_at(self) -> int:
        """When it was said, or else stored, in ms."""
        return self.created_at if self.occurred_at is None else self.occurred_at

    @property
    def holds_from(self) -> int:
        """From when on it holds, in ms: as stated, or since it was said, or since it is known."""
        return self.said_at if self.valid_from is None else self.valid_from


class Line(msgspec.Struct, frozen=True, array_like=True):
    """One line of a dialogue: what somebody said, or that a tool was called."""

    role: Role
    text: str
    occurred_at: int | None = None
    message_id: str = ""
    call: bool = False


class Dialogue(Record, frozen=True, array_like=True):
    """The lines of a captured turn: no memory, never searched nor listed; destroyed with any memory of that turn.

    It has no text, counts as doubted and as a tool's, so that a version that takes it for a memory recalls it to nobody.
    """

    lines: tuple[Line, ...] = ()


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Record)
_DIALOGUES = msgspec.msgpack.Decoder(Dialogue)


def encode_record(record: Record) -> bytes:
    """Encode a record."""
    return _ENCODER.encode(record)


def decode_record(data: bytes) -> Record:
    """Decode a record, a `Dialogue` as one; raises `msgspec.MsgspecError` when it is none."""
    record = _DECODER.decode(data)
    return record if record.text or record.source.transcript != DIALOGUE else _DIALOGUES.decode(data)
