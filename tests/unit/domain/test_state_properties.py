"""What holds of `apply` for every log (I7)."""

from __future__ import annotations

import contextlib
import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from relayer.domain.entry import ENTRY_VERSION, Entry
from relayer.domain.namespace import Position, genesis
from relayer.domain.operations import (
    Close,
    Erase,
    Forget,
    JobAccepted,
    JobFinished,
    Malformed,
    Operation,
    Origin,
    Put,
    Restore,
    Stored,
    Supersede,
    decode_operation,
    encode_operation,
)
from relayer.domain.outcomes import Result
from relayer.domain.standing import Standing
from relayer.domain.state import Applied, NamespaceState
from relayer.errors import CorruptNamespace, UpgradeRequired

START = Position(0, genesis(b"i" * 16))

# Small alphabets, so that operations meet.
_ids = st.sampled_from([b"r1", b"r2", b"r3", b"r4"])
_origins = st.builds(
    Origin,
    author=st.sampled_from([b"a", b"b"]),
    nonce=st.integers(0, 30).map(lambda number: b"%d" % number),
    index=st.integers(0, 1),
    expires=st.sampled_from([0, 0, 0, 1, 10**9]),
    idempotency=st.sampled_from([b"", b"", b"k1", b"k2"]),
    body=st.sampled_from([b"x", b"y"]),
)
_stored = st.builds(
    Stored,
    record=_ids,
    content=st.sampled_from([b"c1", b"c2", b"c3"]),
    sealed=st.just(b"sealed"),
    expires_at=st.sampled_from([None, None, 5, 10**9]),
    sources=st.lists(_ids, max_size=2).map(tuple),
    captured=st.booleans(),
)
_jobs = st.sampled_from([b"j1", b"j2"])
_operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Put, _origins, _stored),
    st.builds(Put, _origins, _stored),
    st.builds(Supersede, _origins, _ids, _stored),
    st.builds(Forget, _origins, _ids),
    st.builds(Restore, _origins, _ids, st.one_of(st.just(b""), _ids)),
    st.builds(Erase, _origins, st.lists(_ids, min_size=1, max_size=3).map(tuple)),
    st.builds(JobAccepted, _origins, _jobs, st.just("extract"), st.lists(_ids, max_size=2).map(tuple)),
    st.builds(JobFinished, job=_jobs, failed=st.booleans(), stored=st.lists(_stored, max_size=2).map(tuple)),
)
_maybe_closing = st.one_of(*[_operations] * 20, st.builds(Close, _origins))
_logs = st.lists(
    st.tuples(st.integers(0, 400_000), st.lists(_maybe_closing, max_size=4).map(tuple)), max_size=15
)
Log = list[tuple[int, tuple[Operation, ...]]]


def replay(log: Log) -> tuple[NamespaceState, list[list[Applied]]]:
    state, told, time = NamespaceState(START), [], 0
    for step, operations in log:
        time += step
        raw = tuple(map(encode_operation, operations))
        entry = Entry(ENTRY_VERSION, state.next_seq, state.position.digest, b"b", b"w", time, raw)
        told.append(state.apply(entry, b"%032d" % entry.seq))
    return state, told


@given(_logs)
def test_the_same_log_gives_the_same_state_and_the_same_outcomes(log: Log) -> None:
    assert replay(log) == replay(log)


@given(_logs, _logs)
def test_a_state_goes_on_as_if_it_had_read_everything_at_once(first: Log, second: Log) -> None:
    state, _ = replay(first)
    whole, told = replay(first + second)
    state = copy.deepcopy(state)
    time = sum(step for step, _ in first)
    for number, (step, operations) in enumerate(second):
        time += step
        raw = tuple(map(encode_operation, operations))
        entry = Entry(ENTRY_VERSION, state.next_seq, state.position.digest, b"b", b"w", time, raw)
        assert state.apply(entry, b"%032d" % entry.seq) == told[len(first) + number]
    assert state == whole


@given(_logs)
def test_every_operation_has_the_outcome_that_it_got_first(log: Log) -> None:
    state, told = replay(log)
    first: dict[object, object] = {}
    for applied in (one for entry in told for one in entry):
        assert not isinstance(applied.operation, Malformed)
        if isinstance(applied.operation, JobFinished):
            continue
        assert first.setdefault(applied.operation.origin.id, applied.outcome) == applied.outcome
        assert state.outcome_of(applied.operation) == applied.outcome


@given(_logs)
def test_sending_a_whole_log_again_changes_no_memory(log: Log) -> None:
    once, _ = replay(log)
    again, told = replay(log + [(0, operations) for _, operations in log])
    assert again.records == once.records
    assert again.erased == once.erased
    assert all(one.repeated for entry in told[len(log) :] for one in entry)


@given(_logs)
def test_the_state_contradicts_itself_nowhere(log: Log) -> None:
    state, told = replay(log)
    assert state.erased.isdisjoint(state.records)
    for record in state.records.values():
        if record.standing is Standing.SUPERSEDED:
            assert record.superseded_by in state.records or record.superseded_by in state.erased
    stored = [
        one.outcome.subject
        for entry in told
        for one in entry
        if not one.repeated and one.outcome.result in {Result.STORED, Result.SUPERSEDED}
    ]
    assert len(stored) == len(set(stored))


@given(st.binary(max_size=200))
@settings(max_examples=500)
def test_any_bytes_are_an_operation_or_malformed_or_newer(raw: bytes) -> None:
    with contextlib.suppress(UpgradeRequired):
        decode_operation(raw)


@given(_maybe_closing, st.data())
def test_a_changed_byte_never_stops_the_log_with_an_error_of_its_own(
    operation: Operation, data: st.DataObject
) -> None:
    raw = bytearray(encode_operation(operation))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    state = NamespaceState(START)
    try:
        state.apply(Entry(ENTRY_VERSION, 1, START.digest, b"b", b"w", 1, (bytes(raw),)), b"d")
    except (UpgradeRequired, CorruptNamespace):
        assert state == NamespaceState(START)
