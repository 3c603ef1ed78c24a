"""Which bodies a segment may leave out, and that leaving them out changes no outcome."""

from collections.abc import Sequence
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from log_operations import START, Log, SmallLog, logs

from relayer.domain.bodies import Section, put_back, reduce, take_out
from relayer.domain.namespace import LogPosition
from relayer.domain.operations import (
    Close,
    Entry,
    Erase,
    Forget,
    JobAccepted,
    JobFinished,
    MalformedBody,
    Operation,
    Origin,
    Put,
    Restore,
    Stored,
    Supersede,
    VectorSet,
    decode_operation,
    encode_stored,
)
from relayer.domain.state import NamespaceState

ORIGIN = Origin(b"a" * 32, b"n" * 16, 0, 5, b"i" * 32, b"b" * 32)
STORED = Stored(b"r" * 16, b"c" * 32, b"sealed", b"vector", b"context", sources=(b"s" * 16,), likeness=b"l")
OPERATIONS = [
    Put(ORIGIN, STORED),
    Supersede(ORIGIN, b"h" * 16, STORED),
    Forget(ORIGIN, b"h" * 16),
    JobAccepted(ORIGIN, b"j" * 16, "extract", (b"r" * 16,), b"input"),
    JobFinished(b"j" * 16, vectors=(VectorSet(b"r" * 16, b"v", b"w"),), stored=(STORED, STORED)),
]


class BodiesLog(SmallLog):
    """A log with one operation in each entry."""

    def add(self, operation: Operation) -> int:
        """Append an operation and return its slot."""
        self.append(operation)
        return self.state.position.seq

    def keep(self, record: bytes, content: bytes = b"", **changes: object) -> int:
        stored = Stored(record, content or b"c" + record, b"text", b"vec", b"ctx", **changes)
        return self.add(Put(self.origin(), stored))

    def raw(self, seq: int) -> bytes:
        [raw] = self.entries[seq - 1].operations
        return raw

    def reduced(self, seq: int) -> Operation | MalformedBody:
        return decode_operation(reduce(self.raw(seq), seq, self.state))

    def replayed(self) -> NamespaceState:
        """Return what the reduced entries say."""
        return reduced_replay(self.entries, self.state)


def reduced_replay(entries: Sequence[Entry], whole: NamespaceState) -> NamespaceState:
    state = NamespaceState(START)
    for entry in entries:
        operations = tuple(reduce(raw, entry.seq, whole) for raw in entry.operations)
        state.apply(msgspec.structs.replace(entry, operations=operations), b"d" * 32)
    return state


@pytest.fixture
def log() -> BodiesLog:
    return BodiesLog()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: type(operation).__name__)
def test_what_was_taken_out_can_be_put_back(operation: Operation) -> None:
    raw = encode_stored(operation)
    outer, bodies = take_out(raw)
    rest = iter(body for _, body in bodies)
    order: list[Section] = []

    def take(section: Section) -> bytes:
        order.append(section)
        return next(rest)

    assert put_back(outer, take) == raw
    assert order == [section for section, _ in bodies]


def test_an_outer_form_holds_no_body_and_texts_are_parted_from_vectors() -> None:
    outer, bodies = take_out(encode_stored(Put(ORIGIN, STORED)))
    assert bodies == [(Section.TEXTS, b"sealed"), (Section.VECTORS, b"vector"), (Section.VECTORS, b"context")]
    assert decode_operation(outer) == Put(
        ORIGIN, msgspec.structs.replace(STORED, sealed=b"", vector=b"", context_vector=b"")
    )


def left_out(operation: Operation | MalformedBody) -> bool:
    assert isinstance(operation, Put | Supersede)
    stored = operation.stored
    return (stored.sealed, stored.vector, stored.context_vector, stored.left_out) == (b"", b"", b"", 10)


def test_what_is_live_superseded_or_forgotten_is_kept_to_the_byte(log: BodiesLog) -> None:
    live, superseded, forgotten = log.keep(b"1"), log.keep(b"2"), log.keep(b"3")
    newer = log.add(Supersede(log.origin(), b"2", Stored(b"4", b"c4", b"text")))
    log.add(Forget(log.origin(), b"3"))
    for seq in (live, superseded, forgotten, newer):
        assert reduce(log.raw(seq), seq, log.state) == log.raw(seq)


def test_the_bodies_of_erased_duplicate_and_refused_memories_are_left_out(log: BodiesLog) -> None:
    erased, kept = log.keep(b"1"), log.keep(b"2")
    duplicate, refused = log.keep(b"3", b"c2"), log.keep(b"2", b"other")
    log.add(Erase(log.origin(), (b"1",)))
    assert [left_out(log.reduced(seq)) for seq in (erased, kept, duplicate, refused)] == [
        True,
        False,
        True,
        True,
    ]


def test_a_memory_that_was_erased_and_made_anew_elsewhere_keeps_only_what_is_live(log: BodiesLog) -> None:
    first = log.keep(b"1", b"tea")
    log.add(Erase(log.origin(), (b"1",)))
    second = log.keep(b"2", b"tea")
    assert left_out(log.reduced(first))
    assert not left_out(log.reduced(second))


def test_a_jobs_input_is_kept_as_long_as_the_state_keeps_it(log: BodiesLog) -> None:
    done, failed = (log.add(JobAccepted(log.origin(), job, "extract", (), b"input")) for job in (b"j", b"k"))
    repeated = log.add(JobAccepted(log.origin(), b"j", "extract", (), b"other"))
    assert [log.reduced(seq).sealed for seq in (done, failed, repeated)] == [b"input", b"input", b""]
    log.add(JobFinished(b"j"))
    log.add(JobFinished(b"k", failed=True))
    assert [log.reduced(seq).sealed for seq in (done, failed)] == [b"", b""]


def test_of_a_jobs_results_only_those_that_count_are_kept(log: BodiesLog) -> None:
    log.keep(b"1")
    log.add(JobAccepted(log.origin(), b"j", "embed", (b"1",)))
    first = log.add(
        JobFinished(b"j", vectors=(VectorSet(b"1", b"v"), VectorSet(b"?", b"v")), stored=(STORED,))
    )
    second = log.add(JobFinished(b"j", vectors=(VectorSet(b"1", b"v"),), stored=(STORED,)))
    counted, repeated = log.reduced(first), log.reduced(second)
    assert isinstance(counted, JobFinished)
    assert isinstance(repeated, JobFinished)
    assert [item.vector for item in counted.vectors] == [b"v", b""]
    assert counted.stored == (STORED,)
    assert [item.vector for item in repeated.vectors] == [b""]
    assert repeated.stored[0].left_out == STORED.size


def test_a_malformed_operation_stays_malformed_and_takes_no_room() -> None:
    raw = msgspec.msgpack.encode(["put", "x" * 1000])
    assert decode_operation(raw) == MalformedBody()
    reduced = reduce(raw, 1, NamespaceState(LogPosition(0, b"")))
    assert reduced == b""
    assert take_out(reduced) == (b"", [])
    assert decode_operation(reduced) == MalformedBody()


def test_a_field_that_a_newer_version_appended_survives(log: BodiesLog) -> None:
    log.keep(b"1")
    items = msgspec.msgpack.decode(log.raw(1))
    items[2].append("newer")
    items.append({"newest": 1})
    raw = msgspec.msgpack.encode(items)
    log.add(Erase(log.origin(), (b"1",)))

    outer, bodies = take_out(reduce(raw, 1, log.state))
    rest = iter(body for _, body in bodies)
    kept = msgspec.msgpack.decode(put_back(outer, lambda _: next(rest)))
    assert kept[2][12] == "newer"
    assert kept[5] == {"newest": 1}
    assert kept[2][11] == 10


def test_what_an_older_version_wrote_without_later_fields_can_be_reduced(log: BodiesLog) -> None:
    log.keep(b"1")
    items = msgspec.msgpack.decode(log.raw(1))
    del items[2][4:]
    log.add(Erase(log.origin(), (b"1",)))
    reduced = decode_operation(reduce(msgspec.msgpack.encode(items), 1, log.state))
    assert isinstance(reduced, Put)
    assert reduced.stored == Stored(b"1", b"c1", b"", left_out=7)


def test_a_vector_that_was_made_beside_an_erased_memory_is_left_out_and_the_own_one_kept(
    log: BodiesLog,
) -> None:
    log.keep(b"r")
    beside = log.keep(b"n", context_of=b"r")
    log.add(JobAccepted(log.origin(), b"j", "embed", (b"n",)))
    later = log.add(JobFinished(b"j", vectors=(VectorSet(b"n", b"own", b"mixed", b"r"),)))
    log.add(Erase(log.origin(), (b"r",)))
    stored = log.reduced(beside).stored
    assert (stored.sealed, stored.vector, stored.context_vector, stored.left_out) == (b"text", b"vec", b"", 3)
    assert stored.size == log.state.records[b"n"].size
    assert log.reduced(later).vectors == (VectorSet(b"n", b"own", b"", b"r"),)
    assert log.replayed() == log.state


def test_a_job_that_was_given_an_erased_text_is_cancelled_whether_its_input_is_there_or_not(
    log: BodiesLog,
) -> None:
    log.keep(b"1")
    log.keep(b"2")
    log.add(JobAccepted(log.origin(), b"j", "extract", (b"1", b"2"), b"input"))
    log.add(Erase(log.origin(), (b"1",)))
    log.add(JobFinished(b"j", stored=(STORED,)))
    assert log.replayed() == log.state
    assert log.reduced(3).sealed == b""
    assert log.reduced(5).stored[0].sealed == b""


def test_reducing_twice_is_reducing_once(log: BodiesLog) -> None:
    log.keep(b"1")
    log.add(Erase(log.origin(), (b"1",)))
    once = reduce(log.raw(1), 1, log.state)
    assert reduce(once, 1, log.state) == once


@given(logs)
def test_whatever_a_log_holds_it_says_the_same_when_it_is_reduced(contents: Log) -> None:
    log, time = SmallLog(), 0
    for step, operations in contents:
        time += step
        log.append(*operations, time=time)
    assert reduced_replay(log.entries, log.state) == log.state


def test_of_every_kind_of_operation_it_is_known_where_its_bodies_are() -> None:
    """A new kind belongs here on purpose: what `take_out` does not find stays in the directory, and is never left out."""
    with_bodies = {type(operation) for operation in OPERATIONS if take_out(encode_stored(operation))[1]}
    without = {Forget, Restore, Erase, Close}
    assert with_bodies | without == set(get_args(Operation))
