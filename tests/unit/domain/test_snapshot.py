"""A state that was written and read again decides everything as the one that was never put down."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_operations import CONTENTS, LIKENESSES, Log, entry_of, logs

from relayer.domain.containers import Pinned
from relayer.domain.namespace import LogPosition
from relayer.domain.operations import (
    Erase,
    Forget,
    JobAccepted,
    JobFinished,
    Origin,
    Put,
    Restore,
    Stored,
    Supersede,
    VectorSet,
)
from relayer.domain.snapshot import StateReader, write_state
from relayer.domain.state import NamespaceState
from relayer.errors import CorruptNamespace


def _read(pages: Iterable[bytes]) -> NamespaceState:
    head, *others = pages
    reader = StateReader(head)
    for page in others:
        reader.add(page)
    return reader.finish()


def _said(state: NamespaceState) -> dict[str, object]:
    """All that a state knows, whatever of it has been read."""
    known, duplicates = state.known, state.duplicates
    return {
        "state": (state.position, state.last_time, state.closed, state.jobs, state.erased, state.erasures),
        "records": list(state.records.items()),
        "outcomes": list(known.rows()),
        "requests": list(known.requests.items()),
        "repeats": (duplicates.repeats, duplicates.older, duplicates.erased_texts),
        "twins": [duplicates.of_text(content) for content in CONTENTS],
        "alike": [duplicates.newest(likeness) for likeness in (*CONTENTS, *LIKENESSES)],
    }


@settings(max_examples=2 * settings.default.max_examples)
@given(logs, logs, st.booleans())
def test_a_state_that_was_read_again_says_and_decides_the_same(before: Log, after: Log, looks: bool):
    state, time = NamespaceState(LogPosition(0, b"genesis")), 0
    for step, operations in before:
        time += step
        state.apply(entry_of(state.position.seq + 1, *operations, time=time), b"digest")
    again = _read(write_state(state))
    if looks:  # whether or not anything is looked at before it goes on
        assert _said(again) == _said(state)
    for step, operations in after:
        time += step
        entry = entry_of(state.position.seq + 1, *operations, time=time)
        assert again.apply(entry, b"digest") == state.apply(entry, b"digest")
    assert _said(_read(write_state(again))) == _said(state)
    assert _said(again) == _said(state)


@given(logs, logs, logs, st.booleans())
def test_a_state_that_goes_on_while_it_is_written_is_written_as_it_was(
    before: Log, meanwhile: Log, after: Log, looks: bool
):
    state, time = NamespaceState(LogPosition(0, b"genesis")), 0

    def go_on(log: Log) -> None:
        nonlocal state, time
        for step, operations in log:
            time += step
            state.apply(entry_of(state.position.seq + 1, *operations, time=time), b"digest")

    go_on(before)
    if looks:  # from pages of a stored state
        state = _read(write_state(state))
        go_on(meanwhile)
    known = _said(_read(write_state(state)))
    state.pinned = Pinned()
    blocks = write_state(state, state.pinned)
    go_on(after)
    assert _said(_read(blocks)) == known


def test_a_state_is_written_as_it_was_whatever_happens_to_its_records_and_requests_meanwhile():
    state = _large(5)
    state.apply(entry_of(6, Forget(Origin(b"a", b"f"), b"r4"), time=6), b"d")
    state.apply(entry_of(7, JobAccepted(Origin(b"a", b"j"), b"j1", "embed", (b"r3",)), time=7), b"d")
    known = _said(_read(write_state(state)))
    state.pinned = Pinned()
    blocks = write_state(state, state.pinned)
    changes = [
        Forget(Origin(b"a", b"g"), b"r0"),
        Put(Origin(b"a", b"h", 1, idempotency=b"k1"), Stored(b"new", b"t1", b"s", likeness=b"l1")),
        Supersede(Origin(b"a", b"i"), b"r2", Stored(b"newer", b"other", b"s")),
        JobFinished(b"j1", vectors=(VectorSet(b"r3", b"v", context_of=b"r1"),)),
        Restore(Origin(b"a", b"k"), b"r4", b""),
    ]
    before = {one.record: copy(one) for one in state.records.values()}
    state.apply(entry_of(8, *changes, time=8), b"d")
    assert all(state.records[record] != one for record, one in before.items())
    assert len(state.known.requests[b"k1"][1]) == 2
    assert _said(_read(blocks)) == known


def _large(count: int) -> NamespaceState:
    state = NamespaceState(LogPosition(0, b"genesis"))
    for at in range(count):
        stored = Stored(b"r%d" % at, b"t%d" % at, b"s", likeness=b"l%d" % at)
        put = Put(Origin(b"a", b"%d" % at, idempotency=b"k%d" % at), stored)
        state.apply(entry_of(at + 1, put, time=at + 1), b"digest")
    return state


def test_many_records_and_requests_take_several_blocks_and_keep_their_order():
    state = _large(4500)
    blocks = list(write_state(state))
    again = _read(blocks)
    assert len(blocks) == 1 + 5 + 36 + 5
    assert list(again.records) == list(state.records)
    assert list(again.records.values()) == list(state.records.values())
    assert list(reversed(again.records.values())) == list(reversed(state.records.values()))


def test_what_nobody_asked_for_is_written_again_as_it_was_and_what_changed_is_not():
    blocks = list(write_state(_large(300)))
    again = _read(blocks)
    assert list(write_state(again)) == blocks
    again.apply(entry_of(301, Forget(Origin(b"a", b"f"), b"r70"), time=301), b"d")
    assert again.records.unread == 300 - 64
    again.apply(entry_of(302, Erase(Origin(b"a", b"e"), (b"r200",)), time=302), b"d")
    last = _read(write_state(again))
    assert list(last.records) == [b"r%d" % at for at in range(300) if at != 200]
    assert [record.record for record in last.records.values() if record.status != "live"] == [b"r70"]


def test_a_read_state_takes_less_memory_until_it_is_asked():
    state = _large(300)
    again = _read(write_state(state))
    before = again.nbytes
    assert before < state.nbytes / 2
    again.apply(entry_of(301, Forget(Origin(b"a", b"f"), b"r70"), time=301), b"d")
    assert list(again.records.values())
    assert again.nbytes > before


def test_macs_that_begin_alike_are_not_taken_for_each_other():
    state = NamespaceState(LogPosition(0, b"genesis"))
    first, second = b"beginning" + b"1" * 23, b"beginning" + b"2" * 23
    for seq, mac in enumerate((first, second), 1):
        stored = Stored(b"r%d" % seq, mac, b"s", likeness=mac[::-1][:8] + mac)
        state.apply(entry_of(seq, Put(Origin(b"a", b"%d" % seq), stored), time=seq), b"digest")
    duplicates = _read(write_state(state)).duplicates
    assert (duplicates.of_text(first), duplicates.of_text(second)) == ((b"r1",), (b"r2",))
    assert duplicates.of_text(b"beginning" + b"3" * 23) == ()
    assert duplicates.newest(b"2" * 8 + second) == b"r2"
    assert duplicates.newest(b"2" * 8 + first) == b""


def test_a_page_that_cannot_be_read_says_that_the_namespace_is_damaged():
    state = _large(1)
    head, records, requests, outcomes = write_state(state)
    damaged = records.replace(b"live", b"dead")
    assert damaged != records
    with pytest.raises(CorruptNamespace):
        _read([head, damaged, requests, outcomes]).records[b"r0"]


@pytest.mark.parametrize("damage", ["missing", "twice", "foreign", "head", "outcomes"])
def test_pages_that_are_not_all_there_are_refused(damage):
    state = NamespaceState(LogPosition(0, b"genesis"))
    for seq in range(1, 1200):
        put = Put(Origin(b"a", b"%d" % seq), Stored(b"r%d" % seq, b"t%d" % seq, b"s"))
        state.apply(entry_of(seq, put, time=seq), b"digest")
    head, first, second, *outcomes = write_state(state)
    pages = {
        "missing": [head, first],
        "twice": [head, first, first, *outcomes],
        "foreign": [head, first, head, *outcomes],
        "head": [first, first, second, *outcomes],
        "outcomes": [head, first, second, *outcomes[1:]],
    }[damage]
    with pytest.raises(CorruptNamespace):
        _read(pages)
