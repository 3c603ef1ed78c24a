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
    assert again == state
    for entry in entries[middle:]:
        assert again.apply(entry, b"digest") == state.apply(entry, b"digest")
    assert again == state


def test_many_records_and_requests_take_several_pages_and_keep_their_order():
    state = NamespaceState(Position(0, b"genesis"))
    puts = [
        Put(Origin(b"a", b"%d" % at, idempotency=b"k%d" % at), Stored(b"r%d" % at, b"t%d" % at, b"s"))
        for at in range(1200)
    ]
    for seq, operation in enumerate(puts, 1):
        state.apply(_entry(seq, [operation]), b"digest")
    pages = write_state(state)
    again = _read(pages)
    assert len(pages) == 1 + 3 + 3
    assert again == state
    assert list(again.records) == list(state.records)


@pytest.mark.parametrize("damage", ["missing", "twice", "foreign", "head"])
def test_pages_that_are_not_all_there_are_refused(damage):
    state = NamespaceState(Position(0, b"genesis"))
    for seq in range(1, 600):
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
