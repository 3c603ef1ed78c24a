"""What holds of `apply` for every log (I7)."""

from __future__ import annotations

import contextlib
import copy

from hypothesis import given, settings
from hypothesis import strategies as st
from log_operations import Log, entry_of, logs, maybe_closing

from relayer.domain.namespace import LogPosition, genesis
from relayer.domain.operations import (
    ENTRY_VERSION,
    Entry,
    JobFinished,
    MalformedBody,
    Operation,
    OperationResult,
    decode_operation,
    encode_stored,
)
from relayer.domain.state import Applied, NamespaceState
from relayer.errors import CorruptNamespace, UpgradeRequired
from relayer.wire.fields import Status

START = LogPosition(0, genesis(b"i" * 16))


def replay(log: Log) -> tuple[NamespaceState, list[list[Applied]]]:
    state, told, time = NamespaceState(START), [], 0
    for step, operations in log:
        time += step
        entry = entry_of(state.position.seq + 1, *operations, previous=state.position.digest, time=time)
        told.append(state.apply(entry, b"%032d" % entry.seq))
    return state, told


@given(logs)
def test_the_same_log_gives_the_same_state_and_the_same_outcomes(log: Log) -> None:
    assert replay(log) == replay(log)


@given(logs, logs)
def test_a_state_goes_on_as_if_it_had_read_everything_at_once(first: Log, second: Log) -> None:
    state, _ = replay(first)
    whole, told = replay(first + second)
    state = copy.deepcopy(state)
    time = sum(step for step, _ in first)
    for number, (step, operations) in enumerate(second):
        time += step
        entry = entry_of(state.position.seq + 1, *operations, previous=state.position.digest, time=time)
        assert state.apply(entry, b"%032d" % entry.seq) == told[len(first) + number]
    assert state == whole


@given(logs)
def test_every_operation_has_the_outcome_that_it_got_first(log: Log) -> None:
    state, told = replay(log)
    first: dict[object, object] = {}
    for applied in (one for entry in told for one in entry):
        assert not isinstance(applied.operation, MalformedBody)
        if isinstance(applied.operation, JobFinished):
            continue
        assert first.setdefault(applied.operation.origin.id, applied.outcome) == applied.outcome
        assert state.outcome_of(applied.operation) == applied.outcome


@given(logs)
def test_sending_a_whole_log_again_changes_no_memory(log: Log) -> None:
    once, _ = replay(log)
    again, told = replay(log + [(0, operations) for _, operations in log])
    assert again.records == once.records
    assert again.erased == once.erased
    assert all(one.repeated for entry in told[len(log) :] for one in entry)


@given(logs)
def test_the_state_contradicts_itself_nowhere(log: Log) -> None:
    state, told = replay(log)
    assert state.erased.isdisjoint(state.records)
    for record in state.records.values():
        if record.status is Status.SUPERSEDED:
            assert record.superseded_by in state.records or record.superseded_by in state.erased
    stored = [
        one.outcome.subject
        for entry in told
        for one in entry
        if not one.repeated and one.outcome.result in {OperationResult.STORED, OperationResult.SUPERSEDED}
    ]
    assert len(stored) == len(set(stored))


@given(st.binary(max_size=200))
@settings(max_examples=5 * settings.default.max_examples)
def test_any_bytes_are_an_operation_or_malformed_or_newer(raw: bytes) -> None:
    with contextlib.suppress(UpgradeRequired):
        decode_operation(raw)


@given(maybe_closing, st.data())
def test_a_changed_byte_never_stops_the_log_with_an_error_of_its_own(
    operation: Operation, data: st.DataObject
) -> None:
    raw = bytearray(encode_stored(operation))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    state = NamespaceState(START)
    try:
        state.apply(Entry(ENTRY_VERSION, 1, START.digest, b"b", b"w", 1, (bytes(raw),)), b"d")
    except (UpgradeRequired, CorruptNamespace):
        assert state == NamespaceState(START)
