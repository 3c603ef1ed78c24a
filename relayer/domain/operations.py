"""The contents of a log: records, operations, entries (which are batches of operations), and their outcomes.

A record is sealed as a whole and has all fields of a memory, so that nothing needs to be added to old memories later. Of an
operation, a holder of the metadata key sees kinds, ids, keyed hashes, times and sizes; its contents are sealed under the
namespace key before it is created. An entry is one immutable object, linked to the entry before it. The outcome of an
operation is decided once, in `NamespaceState.apply`, and only looked up after that.

All are encoded as MessagePack arrays by position, operations with a tag; outcomes and states are rows of a snapshot. Fields
are only ever appended, with defaults, so that every version reads what an older one wrote. Times are in ms since the epoch;
ids are 16-byte ULIDs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import TypeVar

import msgspec

from relayer.errors import CorruptNamespace, UpgradeRequired
from relayer.wire.fields import Audience, Kind, Role, Status, Trust, audience_filters

T = TypeVar("T")

DIALOGUE = "dialogue"
"""The ``source.transcript`` of a stored turn. A memory may have it too, but a memory has a text."""


WHOLE = (0, 0)
"""In place of the start and the end of a statement in `Record.replaces`: all of the text."""


class Source(msgspec.Struct, frozen=True, array_like=True):
    """The source of a memory.

    ``span`` is the start and end, in characters of the text, of the part that supports the memory. ``place`` is the group in
    which it was said, or the person to whom it was said. ``sender`` is the person who said it in a group, or to whom the
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
    """The model that produced something: an extractor (name, model, prompt version) or an embedding (name, sha256, dimension)."""

    name: str = ""
    detail: str = ""
    version: str = ""


class Line(msgspec.Struct, frozen=True, array_like=True):
    """One line of a stored turn: a message, or a tool call if ``call`` is true."""

    role: Role
    text: str
    occurred_at: int | None = None
    message_id: str = ""
    call: bool = False


class Record(msgspec.Struct, frozen=True, array_like=True):
    """A memory, or the lines of a captured turn.

    The state of the namespace has what changes over the life of a record: status, successors, reinforcement.

    A stored turn has ``lines`` and no text. It is never searched or listed, and it is erased together with any memory of
    that turn. It is marked as suspect and as coming from a tool, so that code that mistakes it for a memory recalls it to
    no user.

    ``unmentioned`` is not empty for a wish not to be reminded: it has the words, casefolded, of what the wish is about.

    ``replaces`` has the older records of which this one replaces a statement, each with the start and the end of the statement in
    characters of its text, or `WHOLE`. ``follows`` has those that it may replace: it is shown before them. ``left_out`` has the
    statements of its own text that were replaced in an earlier version of it, each with the id of the record that did so.

    ``essential`` is which of `relayer.lib.n_grams.ESSENTIALS` a model took the text for when it was stored; empty if none read it.

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
    tags: tuple[str, ...] = ()
    # A JSON object as text; "" if there is none.
    metadata: str = ""
    replaces: tuple[tuple[bytes, int, int], ...] = ()
    follows: tuple[bytes, ...] = ()
    left_out: tuple[tuple[int, int, bytes], ...] = ()
    unmentioned: tuple[str, ...] = ()
    essential: str = ""

    @property
    def is_dialogue(self) -> bool:
        """Return whether this is a stored turn and not a memory."""
        return not self.text and self.source.transcript == DIALOGUE

    @property
    def audiences(self) -> tuple[str, ...]:
        """Return every `relayer.wire.fields.AudienceFilter` that this record passes."""
        return audience_filters(self.audience, self.source.place, self.source.sender, self.source.speaker)

    @property
    def said_at(self) -> int:
        """Return the time at which it was said, in ms; if that is not known, the time at which it was stored."""
        return self.created_at if self.occurred_at is None else self.occurred_at

    @property
    def holds_from(self) -> int:
        """Return the time from which it is valid, in ms: ``valid_from``, or else the time at which it was said or stored."""
        return self.said_at if self.valid_from is None else self.valid_from


_ENCODER = msgspec.msgpack.Encoder()
_RECORD_DECODER = msgspec.msgpack.Decoder(Record)


def encode_stored(value: msgspec.Struct) -> bytes:
    """Encode what is stored by position: a record, an operation, an entry, or another object."""
    return _ENCODER.encode(value)


def decode_record(data: bytes) -> Record:
    """Decode a record; raises `msgspec.MsgspecError` if the bytes are not a record."""
    return _RECORD_DECODER.decode(data)


OperationId = tuple[bytes, bytes, int]


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """The request that an operation comes from (I7, I8).

    ``author`` is the signing key, or empty for a job; ``nonce`` is the request's nonce, or the job's id; ``index`` is the
    operation's index in the request; ``expires`` is the time in ms at which the signature expires, 0 for a job.
    ``idempotency`` and ``body`` are MACs under the namespace key, empty without an idempotency key.
    """

    author: bytes
    nonce: bytes
    index: int = 0
    expires: int = 0
    idempotency: bytes = b""
    body: bytes = b""

    @property
    def id(self) -> OperationId:
        """Return the identity of the operation: two operations with the same id are the same one."""
        return (self.author, self.nonce, self.index)


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """A sealed memory, with the metadata that the log may know.

    ``content`` is the MAC of the normalized text, ``likeness`` the MAC that duplicates share, which includes audience,
    trust and suspicion (`NamespaceKeys.likeness_mac`). If ``likeness`` is empty, records with the same text are duplicates.

    ``vector`` and ``context_vector`` are sealed separately from the text and from each other: the second one also depends
    on the neighbour ``context_of`` and is dropped with it.

    ``left_out`` is the size in bytes of the bodies that a segment no longer holds, because they are not needed.
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
    likeness: bytes = b""
    left_out: int = 0

    @property
    def dedupe_key(self) -> bytes:
        """Return the MAC that a duplicate of this record has too."""
        return self.likeness or self.content

    @property
    def size(self) -> int:
        """Return the number of stored bytes, including those of bodies that were left out since."""
        return len(self.sealed) + len(self.vector) + len(self.context_vector) + self.left_out


class VectorSet(msgspec.Struct, frozen=True, array_like=True):
    """The vectors for a record that was stored without them, or with those of another model.

    ``context_vector`` depends on the neighbour ``context_of``. ``model`` is the SHA-256 of the embedding model, in hex; empty
    means the model that the record names.
    """

    record: bytes
    vector: bytes
    context_vector: bytes = b""
    context_of: bytes = b""
    model: str = ""


class Put(msgspec.Struct, frozen=True, array_like=True, tag="put"):
    """The operation that stores a new memory.

    ``twin`` is a record that says the same in other words, as the writer of the operation decided: if it is still live, it
    is reinforced and nothing is stored. ``replaces`` is a record that the new memory replaces, if it is still live; if it
    has been replaced already, the new memory is stored alongside its successor.
    """

    origin: Origin
    stored: Stored
    twin: bytes = b""
    replaces: bytes = b""


class Supersede(msgspec.Struct, frozen=True, array_like=True, tag="supersede"):
    """The operation that stores a new version of ``head``, which must still be live."""

    origin: Origin
    head: bytes
    stored: Stored


class Forget(msgspec.Struct, frozen=True, array_like=True, tag="forget"):
    """The operation that hides ``head`` from recall; `Restore` reverses it.

    With an empty ``head`` it hides nothing, and only records the nonce of its request.
    """

    origin: Origin
    head: bytes


class Restore(msgspec.Struct, frozen=True, array_like=True, tag="restore"):
    """The operation that makes a forgotten or superseded memory live again.

    ``head`` is the live version of a superseded one, which supersedes it in turn; it is empty for a forgotten one, and for one
    that another memory replaced, which stays live.
    """

    origin: Origin
    record: bytes
    head: bytes = b""


class Erase(msgspec.Struct, frozen=True, array_like=True, tag="erase"):
    """The operation that erases records; from then on, results of jobs that read them are refused."""

    origin: Origin
    records: tuple[bytes, ...]


EMBED, EXTRACT, SUMMARISE = "embed", "extract", "summarise"
"""The kinds of jobs: compute missing vectors, extract facts from what was said, summarise a session."""


class JobAccepted(msgspec.Struct, frozen=True, array_like=True, tag="job_accepted"):
    """The operation that accepts a job on ``records``; ``sealed`` is its input under the namespace key, or empty."""

    origin: Origin
    job: bytes
    work: str
    records: tuple[bytes, ...] = ()
    sealed: bytes = b""


class JobFinished(msgspec.Struct, frozen=True, array_like=True, tag="job_finished"):
    """The operation that ends a job and stores its results, so that neither exists without the other.

    ``supersedes`` has pairs of an id in ``stored`` and the id of the memory that it replaces, if that is still live.
    """

    job: bytes
    failed: bool = False
    vectors: tuple[VectorSet, ...] = ()
    stored: tuple[Stored, ...] = ()
    reason: str = ""
    supersedes: tuple[tuple[bytes, bytes], ...] = ()


class Close(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    """The operation that ends the log: nothing is accepted after it."""

    origin: Origin


class MalformedBody(msgspec.Struct, frozen=True, array_like=True, tag="malformed"):
    """The placeholder for bytes of a known kind that do not decode; recorded as refused, never written (I12)."""


Operation = Put | Supersede | Forget | Restore | Erase | JobAccepted | JobFinished | Close

_KINDS = frozenset(
    {"put", "supersede", "forget", "restore", "erase", "job_accepted", "job_finished", "close"}
)
# The errors that msgspec raises for invalid bytes: for bad text and bad nesting it raises Python's own exceptions.
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_DECODER: msgspec.msgpack.Decoder[Operation] = msgspec.msgpack.Decoder(Operation)


def decode_operation(raw: bytes) -> Operation | MalformedBody:
    """Decode an operation; raises `UpgradeRequired`: the kind is one that this version does not know (I12)."""
    try:
        return _DECODER.decode(raw)
    except UNDECODABLE:
        if _kind(raw) in _KINDS:
            return MalformedBody()
        raise UpgradeRequired("the log holds an operation of a newer version") from None


def stored_in(operation: Operation | MalformedBody) -> Sequence[Stored]:
    """Return the sealed records that an operation stores."""
    match operation:
        case Put(stored=stored) | Supersede(stored=stored):
            return (stored,)
        case JobFinished(stored=results):
            return results
        case _:
            return ()


class _Tag(msgspec.Struct, frozen=True, array_like=True):
    """The only field that is read from an operation that does not decode; all other fields are skipped."""

    tag: str


_TAG = msgspec.msgpack.Decoder(_Tag)


def _kind(raw: bytes) -> str:
    """Return the tag of an operation; bytes that are not an array count as a malformed operation of a known kind."""
    try:
        return _TAG.decode(raw).tag
    except UNDECODABLE:
        return "put"


ENTRY_VERSION = 1
MAX_ENTRY = 8 * 1024 * 1024
MAX_RECORD = 2 * 1024 * 1024


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """An entry, the content of one slot.

    ``previous`` is the SHA-256 of the previous entry's stored bytes, ``batch`` only identifies the attempt that wrote this
    entry (I10), and ``time`` is in ms and never goes back (I11). ``operations`` are encoded one by one and framed as bytes,
    so that a malformed one does not affect the others.
    """

    version: int
    seq: int
    previous: bytes
    batch: bytes
    writer: bytes
    time: int
    operations: tuple[bytes, ...]


class _Version(msgspec.Struct, frozen=True, array_like=True):
    """The first field of a versioned object, the only one that is read before the version is known."""

    version: int


_VERSION = msgspec.msgpack.Decoder(_Version)
_ENTRY_DECODER = msgspec.msgpack.Decoder(Entry)


def decode_versioned(
    data: bytes, decoder: msgspec.msgpack.Decoder[T], newest: int, *, having: str, corrupt: str
) -> T:
    """Decode an object whose first field is its version or format.

    The error messages are ``having``, such as "an entry has version", followed by a version above the ``newest`` that is
    known, and ``corrupt`` about bytes that are no such object.

    Raises:
        UpgradeRequired: the object has a version that this one does not know (I12).
        CorruptNamespace: the bytes are not such an object.
    """
    try:
        version = _VERSION.decode(data).version
        if 1 <= version <= newest:
            return decoder.decode(data)
    except UNDECODABLE as error:
        raise CorruptNamespace(corrupt) from error
    raise UpgradeRequired(f"{having} {version}; this relayer knows {newest}")


def decode_entry(data: bytes) -> Entry:
    """Decode an entry; raises as `decode_versioned`."""
    corrupt = "a log object holds no entry"
    return decode_versioned(
        data, _ENTRY_DECODER, ENTRY_VERSION, having="an entry has version", corrupt=corrupt
    )


class OperationResult(StrEnum):
    """The result of an operation."""

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
    """The reason why the state refused an operation; the values are stable codes of the API."""

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
    """The outcome of an operation: the result, the record or job it is about, the slot of its entry, and the refusal if any."""

    result: OperationResult
    subject: bytes = b""
    seq: int = 0
    refusal: Refusal | None = None


class RecordState(msgspec.Struct, array_like=True, gc=False):
    """The metadata of a record, which the log knows without unsealing it. Times are in ms, ``size`` is in bytes."""

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
    # The record that this one was to replace, if another record had replaced it already.
    conflicts_with: bytes = b""

    def live_at(self, now: int) -> bool:
        """Return whether recall may return the record at the time ``now``, in ms."""
        return self.status is Status.LIVE and (self.expires_at is None or self.expires_at > now)

    def lasts_as_long_as(self, stored: Stored) -> bool:
        """Return whether the record expires no earlier than an equal memory.

        Only then is that memory its duplicate: otherwise its text would be lost when this record expires.
        """
        if self.expires_at is None:
            return True
        return stored.expires_at is not None and stored.expires_at <= self.expires_at


class JobState(msgspec.Struct, array_like=True, gc=False):
    """The state of a job that was accepted. Times are in ms, 0 while there is none."""

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


# The properties by which searches can be filtered, each with the record's attribute. An index keeps them in memory, and they are
# stored with it. A string is used as it is, and a tuple of strings is joined by spaces. A record has the
# facet of a flag only if the flag is true.
FACETS = {"kind": "kind", "audience": "audiences", "trust": "trust", "suspect": "suspect"}


def facets_of(record: Record) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each facet that a record has."""
    for name, attribute in FACETS.items():
        value = attrgetter(attribute)(record)
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, tuple):
            yield name, " ".join(value)
        elif value:
            yield name, "yes"


def facet_schema() -> str:
    """Return a hash of the facet definitions, 8 hex digits: an index that was stored with other facets lacks some.

    Example:
        >>> len(facet_schema())
        8
    """
    return hashlib.sha256(repr(sorted(FACETS.items())).encode()).hexdigest()[:8]
