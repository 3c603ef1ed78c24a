"""Filters of a recall: which records pass, whatever was stored, erased or read back, and what computing that costs."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from relayer.domain.operations import Record
from relayer.namespaces.records import Facet, RecordTable
from relayer.search.baseline import PRIORS, Calibration
from relayer.search.index import MemoryIndex
from relayer.search.rows import KeyMask
from relayer.wire.fields import Audience, Kind, Trust

NOW = 1_000_000
FILTERS = [
    {},
    {"trusts": ("user", "imported", "assistant")},
    {"trusts": ("user",), "audiences": ("agent", "group"), "kinds": ("fact", "statement")},
    {"audiences": ("direct",), "suspect": True},
    {"trusts": ("tool",), "kinds": ("event",)},
]


def _record(chosen: random.Random) -> Record:
    return Record(
        id=chosen.randbytes(16),
        namespace="a",
        text="",
        kind=chosen.choice(list(Kind)),
        audience=chosen.choice(list(Audience)),
        trust=chosen.choice(list(Trust)),
        suspect=chosen.random() < 0.2,
        expires_at=chosen.choice([None, None, NOW - 1, NOW, NOW + 1]),
        occurred_at=chosen.choice([None, *range(5)]),
    )


def _table(seed: int, count: int) -> tuple[RecordTable, dict[int, Record]]:
    """Return a table and its records by number; some records were unreadable, and some were dropped."""
    chosen = random.Random(seed)
    table, records = RecordTable(), {}
    for _ in range(count):
        if chosen.random() < 0.1:
            table.skip(chosen.randbytes(16))
        else:
            record = _record(chosen)
            records[table.add(record)] = record
    for number in chosen.sample(sorted(records), count // 10):
        assert table.drop(records.pop(number).id) == number
    return table, records


def _passes(
    record: Record,
    kinds: Sequence[str] = (),
    audiences: Sequence[str] = (),
    trusts: Sequence[str] = (),
    *,
    suspect: bool = False,
) -> bool:
    return (
        (not kinds or record.kind in kinds)
        and (not audiences or record.audience in audiences)
        and (not trusts or record.trust in trusts)
        and (suspect or not record.suspect)
        and (record.expires_at is None or record.expires_at > NOW)
    )


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("restored", [False, True])
def test_what_passes_is_what_each_record_says(filters, restored):
    for seed in range(5):
        table, records = _table(seed, 200)
        if restored:
            table, _ = RecordTable.of_parts(table.parts(()))
        passing = table.allowed(**filters, now=NOW)
        expected = {number for number, record in records.items() if _passes(record, **filters)}
        assert {number for number in records if number in passing} == expected
        inside = table.between(1, 4)
        assert set(inside.keys().tolist()) == {
            number for number, record in records.items() if record.occurred_at in range(1, 4)
        }


def test_records_that_all_pass_need_no_filter():
    table = RecordTable()
    table.add(Record(id=b"a" * 16, namespace="a", text=""))
    assert table.allowed(suspect=True, now=NOW) is None


def test_a_stored_table_says_the_same_when_it_is_stored_again():
    table, _ = _table(1, 200)
    parts = table.parts(())
    assert RecordTable.of_parts(parts)[0].parts(()) == parts


@pytest.mark.parametrize("wanted", [1, 3, 50])
def test_a_facet_may_have_as_many_values_as_there_are_records(wanted):
    facet = Facet()
    for number in range(1000):
        facet.append(f"place-{number % 400}" if number % 7 else None)
    places = [f"place-{number}" for number in range(wanted)] + ["nowhere"]
    assert np.flatnonzero(facet.among(places)).tolist() == [
        number for number in range(1000) if number % 7 and number % 400 < wanted
    ]
    assert facet.has(1, ["place-1"])
    facet.clear(1)
    assert not facet.has(1, ["place-1"])
    again = Facet()
    again.restore(1000, facet.stored())
    assert (again.among(places) == facet.among(places)).all()


def test_the_filters_of_a_recall_take_a_few_bytes_a_memory():
    """Sets of numbers take a hundred bytes a memory, and the time to build them on the event loop."""
    count = 20_000
    chosen = random.Random(3)
    table, index = RecordTable(), MemoryIndex(8, Calibration(next(iter(PRIORS.values()))))
    rows = np.random.default_rng(3).standard_normal((count, 8)).astype(np.float32)
    for row in rows / np.linalg.norm(rows, axis=1, keepdims=True):
        index.put(table.add(_record(chosen)), row, "the tide is out")

    def peak(*, filtered: bool) -> int:
        tracemalloc.start()
        allowed = table.allowed(trusts=("user", "imported", "assistant"), now=NOW) if filtered else None
        index.search(rows[0] / np.linalg.norm(rows[0]), "the tide", 5, allowed=allowed)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(filtered=True) - peak(filtered=False) < 16 * count


def test_a_mask_of_some_keys_has_those_and_no_others():
    mask = KeyMask.from_keys([5, 2], 10)
    assert (len(mask), mask.keys().tolist()) == (2, [2, 5])
    assert [key in mask for key in (-1, 2, 5, 9, 10, 99)] == [False, True, True, False, False, False]
    assert mask.contains(np.array([-1, 5, 9])).tolist() == [False, True, False]
    both = KeyMask.from_keys([2, 3]).within(mask.flags)
    assert both.keys().tolist() == [2]
    assert both.contains(np.array([2, 9])).tolist() == [True, False]
    assert mask.followed_by(4).contains(np.array([5 << 4 | 7, 4 << 4, -1])).tolist() == [True, False, False]


def test_a_facet_takes_more_values_than_two_bytes_count():
    facet = Facet()
    for number in range(40_000):
        facet.append(str(number))
    again = Facet()
    again.restore(40_000, facet.stored())
    for filled in (facet, again):
        assert np.flatnonzero(filled.among(["0", "32767", "32768", "39999"])).tolist() == [
            0,
            32767,
            32768,
            39999,
        ]
