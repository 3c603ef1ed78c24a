"""What stands in a log, records, operations and entries, which are batches of these, and what became of it.

A record is sealed, and whole, so that nothing needs to be added to old memories later. Of an operation, whoever holds the
metadata key sees kinds, ids, keyed hashes, times and sizes; contents are sealed under the namespace key before it is made. An
entry is one immutable object, linked to the entry before it. What becomes of an operation is decided once, in
`NamespaceState.apply`, and then only looked up.

Encoded as MessagePack arrays by position, operations with a tag; outcomes and states are rows of a snapshot. Fields are only
ever appended, with defaults, so that every version reads what an older one wrote. Times are in ms since the epoch; ids are
16-byte ULIDs.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from relayer.errors import CorruptNamespace, UpgradeRequired
from relayer.wire.fields import audience_filters

DIALOGUE = "dialogue"
"""The ``source.transcript`` of a kept turn. A memory may have it too, but a memory has a text."""


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
    """Among whom it was said; a direct message never surfaces in a group. `Source.place` says in which one."""

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
    """Where it comes from. ``span`` is the evidence's start and end in characters of the text.

    ``place`` is the group in which it was said, or the person to whom; ``sender`` the person who said it in a group, or to whom the
    assistant said it there. Both are a platform and an id, or "".
    """

    host: str = ""
    agent: str = ""
    session: str = ""
    speaker: str = ""
    role: Role = Role.USER
    message_ids: tuple[str, ...] = ()
    span: tuple[int, int] | None = None
    transcript: str = ""
    reference: str = ""
    place: str = ""
    sender: str = ""


class Model(msgspec.Struct, frozen=True, array_like=True):
    """What made something: an extractor (name, model, prompt version) or an embedding (name, sha256, dimension)."""

    name: str = ""
    detail: str = ""
    version: str = ""


class Line(msgspec.Struct, frozen=True, array_like=True):
    """One line of a kept turn: a message, or the call of a tool."""

    role: Role
    text: str
    occurred_at: int | None = None
    message_id: str = ""
    call: bool = False


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One memory, or the lines of one captured turn.

    The state of the namespace holds what changes over the life of a record: status, successors, reinforcement.

    A kept turn has ``lines`` and no text. It is never searched or listed, and it is destroyed together with any memory of
    that turn. Code that mistakes it for a memory recalls it to no user, because it is suspect and of a tool.

    Append a new field as the last one and give it a default. There are no subclasses, whose fields it would move.
    """

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
    lines: tuple[Line, ...] = ()

    @property
    def is_dialogue(self) -> bool:
        """Return whether this is a kept turn and not a memory."""
        return not self.text and self.source.transcript == DIALOGUE

    @property
    def audiences(self) -> tuple[str, ...]:
        """Return every `relayer.wire.fields.AudienceFilter` that this record passes."""
        return audience_filters(self.audience, self.source.place, self.source.sender, self.source.speaker)

    @property
    def said_at(self) -> int:
        """When it was said, or else stored, in ms."""
        return self.created_at if self.occurred_at is None else self.occurred_at

    @property
    def holds_from(self) -> int:
        """From when on it holds, in ms: as stated, or since it was said, or since it is known."""
        return self.said_at if self.valid_from is None else self.valid_from


_RECORD_ENCODER = msgspec.msgpack.Encoder()
_RECORD_DECODER = msgspec.msgpack.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Encode a record."""
    return _RECORD_ENCODER.encode(record)


def decode_record(data: bytes) -> Record:
    """Decode a record; raises `msgspec.MsgspecError` if the bytes are not a record."""
    return _RECORD_DECODER.decode(data)


OperationId = tuple[bytes, bytes, int]


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """Whose request made the operation (I7, I8).

    ``author`` is the signing key, or empty for a job; ``nonce`` the request's nonce, or the job's id; ``expires`` the
    signature's end in ms, 0 for a job. ``idempotency`` and ``body`` are MACs under the namespace key, empty without
    an idempotency key.
    """

    author: bytes
    nonce: bytes
    index: int = 0
    expires: int = 0
    idempotency: bytes = b""
    body: bytes = b""

    @property
    def id(self) -> OperationId:
        """What makes two operations the same one."""
        return (self.author, self.nonce, self.index)


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """A sealed memory and what the log may know of it.

    ``content`` is the MAC of the normal text, ``likeness`` that of the text with audience, trust and doubt;
    without the latter, equal texts are alike.

    ``vector`` and ``context_vector`` are sealed apart from the text and from each other: the second one also depends
    on the neighbour ``context_of`` and is dropped with it.

    ``left_out`` is the size of the bodies that a segment no longer holds, because nothing needs them.
    """

    record: bytes
    content: bytes
    sealed: bytes
    vector: bytes = b""
    context_vector: bytes = b""
    context_of: bytes = b""
    created_at: int = 0
    expires_at: int | None = None
    sources: tuple[bytes, ...] = ()
    captured: bool = False
    key_epoch: int = 1
    likeness: bytes = b""
    left_out: int = 0

    @property
    def dedupe_key(self) -> bytes:
        """What another record must share to be its duplicate."""
        return self.likeness or self.content

    @property
    def size(self) -> int:
        """Stored bytes, those included that were left out since."""
        return len(self.sealed) + len(self.vector) + len(self.context_vector) + self.left_out


class VectorSet(msgspec.Struct, frozen=True, array_like=True):
    """Vectors for a record that was stored without them, or with those of another model.

    ``context_vector`` depends on the neighbour ``context_of``. ``model`` is the SHA-256 of the embedding model, in hex; empty
    means the one that the record names.
    """

    record: bytes
    vector: bytes
    context_vector: bytes = b""
    context_of: bytes = b""
    model: str = ""


class Put(msgspec.Struct, frozen=True, array_like=True, tag="put"):
    """Store a new memory.

    ``twin`` is a record that says the same in other words, as its writer judged: if it is still live, it is reinforced and
    nothing is stored. ``replaces`` is one whose place the new memory takes, if it is still live; if it is not, the new one
    is stored beside its successor.
    """

    origin: Origin
    stored: Stored
    twin: bytes = b""
    replaces: bytes = b""


class Supersede(msgspec.Struct, frozen=True, array_like=True, tag="supersede"):
    """Store a new version of ``head``, which must still be live."""

    origin: Origin
    head: bytes
    stored: Stored


class Forget(msgspec.Struct, frozen=True, array_like=True, tag="forget"):
    """Hide ``head`` from recall; undone by `Restore`. An empty one hides nothing, and only keeps its request's nonce."""

    origin: Origin
    head: bytes


class Restore(msgspec.Struct, frozen=True, array_like=True, tag="restore"):
    """Bring back a forgotten or superseded memory."""

    origin: Origin
    record: bytes
    head: bytes = b""


class Erase(msgspec.Struct, frozen=True, array_like=True, tag="erase"):
    """Destroy records; results of jobs that saw them are refused from here on."""

    origin: Origin
    records: tuple[bytes, ...]


EMBED, EXTRACT, SUMMARISE = "embed", "extract", "summarise"
"""What a job may be about: vectors that are missing, facts of what was said, the notes of a session."""


class JobAccepted(msgspec.Struct, frozen=True, array_like=True, tag="job_accepted"):
    """Promise work on ``records``; ``sealed`` holds its input under the namespace key, or is empty."""

    origin: Origin
    job: bytes
    work: str
    records: tuple[bytes, ...] = ()
    sealed: bytes = b""


class JobFinished(msgspec.Struct, frozen=True, array_like=True, tag="job_finished"):
    """A job's end together with its results, so that neither exists without the other.

    ``supersedes`` pairs ids of ``stored`` with the memories that they replace, as far as those are still live.
    """

    job: bytes
    failed: bool = False
    vectors: tuple[VectorSet, ...] = ()
    stored: tuple[Stored, ...] = ()
    reason: str = ""
    supersedes: tuple[tuple[bytes, bytes], ...] = ()


class Close(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    """End the log: nothing is accepted after it."""

    origin: Origin


class Malformed(msgspec.Struct, frozen=True, array_like=True, tag="malformed"):
    """Stands for bytes of a known kind that do not decode; recorded as refused, never written (I12)."""


Operation = Put | Supersede | Forget | Restore | Erase | JobAccepted | JobFinished | Close

_KINDS = frozenset(
    {"put", "supersede", "forget", "restore", "erase", "job_accepted", "job_finished", "close"}
)
# What msgspec raises on bytes that are not what they should be: bad text and bad nesting have errors of Python's own.
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Operation] = msgspec.msgpack.Decoder(Operation)


def encode_operation(operation: Operation) -> bytes:
    """Encode an operation."""
    return _ENCODER.encode(operation)


def decode_operation(raw: bytes) -> Operation | Malformed:
    """Decode an operation.

    Raises:
        UpgradeRequired: the kind is one this version does not know (I12).
    """
    try:
        return _DECODER.decode(raw)
    except UNDECODABLE:
        if _kind(raw) in _KINDS:
            return Malformed()
        raise UpgradeRequired("the log holds an operation of a newer version") from None


class _Tag(msgspec.Struct, frozen=True, array_like=True):
    """The one field that is read of an operation that does not decode; the rest is skipped, whatever it is."""

    tag: str


_TAG = msgspec.msgpack.Decoder(_Tag)


def _kind(raw: bytes) -> str:
    """Return the tag; bytes that are no array at all count as a known kind gone wrong."""
    try:
        return _TAG.decode(raw).tag
    except UNDECODABLE:
        return "put"


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


_ENTRY_ENCODER = msgspec.msgpack.Encoder()
_ENTRY_DECODER = msgspec.msgpack.Decoder(Entry)
_VERSION = msgspec.msgpack.Decoder(_Version)


def encode_entry(entry: Entry) -> bytes:
    """Encode an entry."""
    return _ENTRY_ENCODER.encode(entry)


def decode_entry(data: bytes) -> Entry:
    """Decode an entry.

    Raises:
        UpgradeRequired: a version this one does not know (I12).
        CorruptNamespace: no entry at all.
    """
    try:
        version = _VERSION.decode(data).version
        if version == ENTRY_VERSION:
            return _ENTRY_DECODER.decode(data)
    except UNDECODABLE as error:
        raise CorruptNamespace("a log object holds no entry") from error
    raise UpgradeRequired(f"an entry has version {version}; this relayer knows {ENTRY_VERSION}")


class Result(StrEnum):
    """How an operation ended."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    SUPERSEDED = "superseded"
    FORGOTTEN = "forgotten"
    RESTORED = "restored"
    ERASED = "erased"
    ACCEPTED = "accepted"
    FINISHED = "finished"
    CLOSED = "closed"
    REFUSED = "refused"


class Refusal(StrEnum):
    """Why the state refused an operation; the values are stable codes of the API."""

    CLOSED = "namespace_closed"
    EXPIRED = "expired"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    UNKNOWN_RECORD = "not_found"
    STALE_HEAD = "stale_head"
    RECORD_EXISTS = "record_exists"
    TOMBSTONED = "forgotten_before"
    JOB_OVER = "job_over"
    SOURCE_ERASED = "source_erased"
    MALFORMED = "malformed_operation"


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The result, the record (or job) it is about, the slot that decided it, and why if refused."""

    result: Result
    subject: bytes = b""
    seq: int = 0
    refusal: Refusal | None = None


class Status(StrEnum):
    """Where a record is in its life."""

    LIVE = "live"
    SUPERSEDED = "superseded"
    FORGOTTEN = "forgotten"


class RecordState(msgspec.Struct, array_like=True, gc=False):
    """What the log knows of a record without opening it."""

    record: bytes
    content: bytes
    likeness: bytes
    seq: int
    created_at: int
    expires_at: int | None
    size: int
    sources: tuple[bytes, ...]
    author: bytes
    status: Status = Status.LIVE
    supersedes: bytes = b""
    superseded_by: bytes = b""
    changed_at: int = 0
    reinforced: int = 0
    reinforced_at: int = 0
    context_of: bytes = b""
    # What it would have replaced, had nobody been first.
    conflicts_with: bytes = b""

    def live_at(self, now: int) -> bool:
        """Whether recall may return it at a time in ms."""
        return self.status is Status.LIVE and (self.expires_at is None or self.expires_at > now)

    def lasts_as_long_as(self, stored: Stored) -> bool:
        """Whether it can stand for an equal memory: what ends earlier would take the later one's text with it."""
        if self.expires_at is None:
            return True
        return stored.expires_at is not None and stored.expires_at <= self.expires_at


class JobState(msgspec.Struct, array_like=True, gc=False):
    """A promised piece of work."""

    job: bytes
    work: str
    records: tuple[bytes, ...]
    sealed: bytes
    accepted_at: int
    state: str = "pending"
    reason: str = ""
    finished_at: int = 0
    results: tuple[bytes, ...] = ()
    outcome: Outcome | None = None
    seq: int = 0
