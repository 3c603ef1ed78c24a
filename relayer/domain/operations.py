"""The operations of a log entry: what the outer layer shows, and nothing else.

Whoever holds the metadata key sees kinds, ids, keyed hashes, times and sizes; contents are sealed under the namespace
key before an operation is made. Encoded as tagged MessagePack arrays; fields are only ever appended, with defaults.
"""

from __future__ import annotations

import msgspec

from relayer.errors import UpgradeRequired

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
