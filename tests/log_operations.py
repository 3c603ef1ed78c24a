"""Operations of a log as tests draw and write them: of every kind, and of few ids, texts and keys, so that they meet."""

from __future__ import annotations

from hypothesis import strategies as st

from relayer.domain.namespace import LogPosition, genesis
from relayer.domain.operations import (
    ENTRY_VERSION,
    Close,
    Entry,
    Erase,
    Forget,
    JobAccepted,
    JobFinished,
    Operation,
    Origin,
    Outcome,
    Put,
    Restore,
    Stored,
    Supersede,
    VectorSet,
    encode_stored,
)
from relayer.domain.state import NamespaceState

__all__ = [
    "CONTENTS",
    "LIKENESSES",
    "START",
    "Log",
    "SmallLog",
    "entry_of",
    "logs",
    "maybe_closing",
    "operations",
]

START = LogPosition(0, genesis(b"i" * 16))

CONTENTS = (b"c1", b"c2", b"c3")
LIKENESSES = (b"l1", b"l2", b"l3")

Log = list[tuple[int, tuple[Operation, ...]]]
"""Entries: how much later than the one before, in ms, and what they hold."""

_records = st.sampled_from([b"r1", b"r2", b"r3", b"r4", b"r5"])
_perhaps_a_record = st.one_of(st.just(b""), st.just(b""), _records)
_jobs = st.sampled_from([b"j1", b"j2"])
# Many, so that one that is in the place of another is seen.
_bodies = st.integers(0, 2**16).map(lambda number: b"body%d" % number)
_perhaps_a_body = st.one_of(st.just(b""), _bodies)
_origins = st.builds(
    Origin,
    author=st.sampled_from([b"a", b"b"]),
    nonce=st.integers(0, 60).map(lambda number: b"%d" % number),
    index=st.integers(0, 1),
    expires=st.sampled_from([0, 0, 0, 1, 10**9]),
    idempotency=st.sampled_from([b"", b"", b"k1", b"k2"]),
    body=st.sampled_from([b"x", b"y"]),
)
_stored = st.builds(
    Stored,
    record=_records,
    content=st.sampled_from(CONTENTS),
    sealed=_bodies,
    vector=_perhaps_a_body,
    context_vector=_perhaps_a_body,
    context_of=_perhaps_a_record,
    expires_at=st.sampled_from([None, None, 5, 10**9]),
    sources=st.lists(_records, max_size=2).map(tuple),
    captured=st.booleans(),
    likeness=st.sampled_from([b"", *LIKENESSES]),
)
_vectors = st.builds(VectorSet, _records, _bodies, _perhaps_a_body, _perhaps_a_record)
_puts = st.builds(Put, _origins, _stored, twin=_perhaps_a_record, replaces=_perhaps_a_record)
_finishes = st.builds(
    JobFinished,
    job=_jobs,
    failed=st.booleans(),
    vectors=st.lists(_vectors, max_size=2).map(tuple),
    # A job gives each of its results an id of its own.
    stored=st.lists(_stored, max_size=2, unique_by=lambda stored: stored.record).map(tuple),
    supersedes=st.lists(st.tuples(_records, _records), max_size=2).map(tuple),
)
_promises = st.builds(
    JobAccepted,
    _origins,
    _jobs,
    st.sampled_from(["extract", "embed"]),
    st.lists(_records, max_size=2).map(tuple),
    _perhaps_a_body,
)

operations: st.SearchStrategy[Operation] = st.one_of(
    _puts,
    _puts,
    _puts,
    st.builds(Supersede, _origins, _records, _stored),
    st.builds(Forget, _origins, _records),
    st.builds(Restore, _origins, _records, _perhaps_a_record),
    st.builds(Erase, _origins, st.lists(_records, min_size=1, max_size=3).map(tuple)),
    _promises,
    _finishes,
)
maybe_closing: st.SearchStrategy[Operation] = st.one_of(*[operations] * 20, st.builds(Close, _origins))
logs: st.SearchStrategy[Log] = st.lists(
    st.tuples(st.integers(0, 400_000), st.lists(maybe_closing, max_size=4).map(tuple)), max_size=15
)


def entry_of(seq: int, *contents: Operation, previous: bytes = b"", time: int = 0) -> Entry:
    """Return the entry of a slot."""
    return Entry(ENTRY_VERSION, seq, previous, b"b", b"w", time, tuple(map(encode_stored, contents)))


class SmallLog:
    """A state and the entries that were appended to it."""

    def __init__(self) -> None:
        self.state = NamespaceState(START)
        self.entries: list[Entry] = []
        self._nonces = 0

    def append(self, *contents: Operation, time: int = 0) -> list[Outcome]:
        """Append an entry; its time is that of the one before unless it is given."""
        self.entries.append(self.entry(*contents, time=time))
        return [applied.outcome for applied in self.state.apply(self.entries[-1], b"d" * 32)]

    def entry(self, *contents: Operation, time: int = 0) -> Entry:
        """Return the entry that would come next."""
        previous, time = self.state.position.digest, time or self.state.last_time
        return entry_of(self.state.position.seq + 1, *contents, previous=previous, time=time)

    def origin(self, **changes: object) -> Origin:
        """Return that of a request of its own."""
        self._nonces += 1
        return Origin(b"author", self._nonces.to_bytes(16, "big"), **changes)

    def put(self, record: bytes, content: bytes = b"", **changes: object) -> Put:
        """Return a put; nothing is appended."""
        return Put(self.origin(), Stored(record, content or b"content of " + record, b"sealed", **changes))
