"""A state that was written and read again decides everything as the one that was never put down."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relayer.domain.entry import ENTRY_VERSION, Entry
from relayer.domain.namespace import Position
from relayer.domain.operations import (
    Close,
    Erase,
    Forget,
    JobAccepted,
    JobFinished,
    Operation,
    Origin,
    Put,
    Restore,
    Stored,
    Supersede,
    encode_operation,
)
from relayer.domain.snapshot import StateReader, write_state
from relayer.domain.state import NamespaceState
from relayer.errors import CorruptNamespace

RECORDS = [b"r%d" % number for number in range(5)]
JOBS = [b"j1", b"j2"]


def _operation(rng: random.Random, nonce: int) -> Operation:
    key = rng.choice([b"", b"k%d" % rng.randrange(4)])
    origin = Origin(b"author", b"%d" % nonce, idempotency=key, body=b"b%d" % rng.randrange(2))
    stored = Stored(
        rng.choice(RECORDS),
        b"text%d" % rng.randrange(3),
        b"sealed",
        sources=tuple(rng.sample(RECORDS, rng.choice([0, 0, 1]))),
        captured=rng.random() < 0.5,
        expires_at=rng.choice([None, None, nonce + 5]),
        likeness=b"like%d" % rng.randrange(3),
    )
    job, record = rng.choice(JOBS), rng.choice(RECORDS)
    return rng.choice(
        [
            *[Put(origin, stored)] * 5,
            Supersede(origin, record, stored),
            Forget(origin, record),
            Restore(origin, record, rng.choice([b"", rng.choice(RECORDS)])),
            Erase(origin, (record,)),
            JobAccepted(origin, job, "extract", (record,), b"input"),
            JobFinished(job, failed=rng.random() < 0.3, stored=(stored,)),
            *([Close(origin)] if rng.random() < 0.05 else []),
        ]
    )


def _entry(seq: int, operations: list[Operation]) -> Entry:
    encoded = tuple(encode_operation(operation) for operation in operations)
    return Entry(ENTRY_VERSION, seq, b"", b"", b"", seq, encoded)


def _read(pages: list[bytes]) -> NamespaceState:
    reader = StateReader(pages[0])
    for page in pages[1:]:
        reader.add(page)
    return reader.finish()


def _said(state: NamespaceState) -> dict[str, object]:
    """All that a state knows, whatever of it has been read."""
    known, twins = state.known, state.twins
    return {
        "state": (state.position, state.last_time, state.closed, state.jobs, state.erased, state.erasures),
        "records": list(state.records.items()),
        "outcomes": list(known.rows()),
        "requests": list(known.requests.items()),
        "repeats": (state.repeats_texts, twins.older, twins.erased_texts),
        "twins": [twins.saying(b"text%d" % number) for number in range(3)],
        "alike": [twins.like(b"like%d" % number) for number in range(3)],
    }


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_a_state_that_was_read_again_says_and_decides_the_same(seed, length):
    rng = random.Random(seed)
    entries = [
        _entry(seq, [_operation(rng, seq * 4 + part) for part in range(rng.randrange(1, 4))])
        for seq in range(1, length + 1)
    ]
    middle = rng.randrange(length)
    state = NamespaceState(Position(0, b"genesis"))
    for entry in entries[:middle]:
        state.apply(entry, b"digest")
    again = _read(write_state(state))
    if rng.random() < 0.5:  # whether or not anything is looked at before it goes on
        assert _said(again) == _said(state)
    for entry in entries[middle:]:
        assert again.apply(entry, b"digest") == state.apply(entry, b"digest")
    assert _said(_read(write_state(again))) == _said(state)
    assert _said(again) == _said(state)


def _large(count: int) -> NamespaceState:
    state = NamespaceState(Position(0, b"genesis"))
    for at in range(count):
        stored = Stored(b"r%d" % at, b"t%d" % at, b"s", likeness=b"l%d" % at)
        put = Put(Origin(b"a", b"%d" % at, idempotency=b"k%d" % at), stored)
        state.apply(_entry(at + 1, [put]), b"digest")
    return state


def test_many_records_and_requests_take_several_blocks_and_keep_their_order():
    state = _large(4500)
    blocks = write_state(state)
    again = _read(blocks)
    assert len(blocks) == 1 + 2 + 2
    assert list(again.records) == list(state.records)
    assert list(again.records.values()) == list(state.records.values())
    assert list(reversed(again.records.values())) == list(reversed(state.records.values()))


def test_what_nobody_asked_for_is_written_again_as_it_was_and_what_changed_is_not():
    blocks = write_state(_large(300))
    again = _read(blocks)
    assert write_state(again) == blocks
    again.apply(_entry(301, [Forget(Origin(b"a", b"f"), b"r70")]), b"d")
    assert again.records.unread == 300 - 64
    again.apply(_entry(302, [Erase(Origin(b"a", b"e"), (b"r200",))]), b"d")
    last = _read(write_state(again))
    assert list(last.records) == [b"r%d" % at for at in range(300) if at != 200]
    assert [record.record for record in last.records.values() if record.standing != "live"] == [b"r70"]


def test_a_read_state_takes_less_memory_until_it_is_asked():
    state = _large(300)
    again = _read(write_state(state))
    before = again.nbytes
    assert before < state.nbytes / 2
    again.apply(_entry(301, [Forget(Origin(b"a", b"f"), b"r70")]), b"d")
    assert list(again.records.values())
    assert again.nbytes > before


def test_macs_that_begin_alike_are_not_taken_for_each_other():
    state = NamespaceState(Position(0, b"genesis"))
    first, second = b"beginning" + b"1" * 23, b"beginning" + b"2" * 23
    for seq, mac in enumerate((first, second), 1):
        stored = Stored(b"r%d" % seq, mac, b"s", likeness=mac[::-1][:8] + mac)
        state.apply(_entry(seq, [Put(Origin(b"a", b"%d" % seq), stored)]), b"digest")
    twins = _read(write_state(state)).twins
    assert (twins.saying(first), twins.saying(second)) == ((b"r1",), (b"r2",))
    assert twins.saying(b"beginning" + b"3" * 23) == ()
    assert twins.like(b"2" * 8 + second) == b"r2"
    assert twins.like(b"2" * 8 + first) == b""


def test_a_page_that_cannot_be_read_says_that_the_namespace_is_damaged():
    state = _large(1)
    head, records, requests = write_state(state)
    damaged = records.replace(b"live", b"dead")
    assert damaged != records
    with pytest.raises(CorruptNamespace):
        _read([head, damaged, requests]).records[b"r0"]


@pytest.mark.parametrize("damage", ["missing", "twice", "foreign", "head"])
def test_pages_that_are_not_all_there_are_refused(damage):
    state = NamespaceState(Position(0, b"genesis"))
    for seq in range(1, 4200):
        put = Put(Origin(b"a", b"%d" % seq), Stored(b"r%d" % seq, b"t%d" % seq, b"s"))
        state.apply(_entry(seq, [put]), b"digest")
    head, first, second = write_state(state)
    pages = {
        "missing": [head, first],
        "twice": [head, first, first],
        "foreign": [head, first, head],
        "head": [first, first, second],
    }[damage]
    with pytest.raises(CorruptNamespace):
        _read(pages)
