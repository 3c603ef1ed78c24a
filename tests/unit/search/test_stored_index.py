"""An index that was stored answers as the one that was built, whatever happens to it afterwards."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.search.baseline import LEXICAL_PRIOR, Calibration, Probe
from relayer.search.dense import LONGEST_TAIL, DenseIndex
from relayer.search.index import MemoryIndex
from relayer.search.lexical import LexicalIndex
from relayer.search.rows import KeyMask, search_row

DIMENSION = 16
WORDS = ("tea", "coffee", "oslo", "lisbon", "bicycle", "garden", "piano", "winter", "tokyo", "\u732b\u304c")


def _vector(rng: random.Random) -> np.ndarray:
    row = np.array([rng.gauss(0, 1) for _ in range(DIMENSION)], dtype=np.float32)
    return row / np.linalg.norm(row)


def _text(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 6)))


def _calibration() -> Calibration:
    rng = random.Random(0)
    return Calibration(LEXICAL_PRIOR, tuple(Probe(_text(rng), _vector(rng)) for _ in range(4)))


def _change(rng: random.Random, *indexes: MemoryIndex) -> None:
    key = rng.randrange(30)
    if rng.random() < 0.25:
        for index in indexes:
            index.remove(key)
        return
    row = None if rng.random() < 0.2 else search_row(_vector(rng), _vector(rng))
    text, context, speaker = _text(rng), rng.choice([None, _text(rng)]), rng.choice([None, "Tea Oslo"])
    before = rng.choice([None, key - 1 if key else None])
    for index in indexes:
        index.put(key, row, text, context, speaker=speaker, before=before)


def _answers(rng: random.Random, *indexes: MemoryIndex) -> list:
    vector, text = _vector(rng), _text(rng)
    allowed = rng.choice([None, KeyMask.from_keys(rng.sample(range(30), 12))])
    return [
        [index.search(vector, text, 5, allowed=allowed, floor=0), index.search(None, text, 5, floor=0)]
        for index in indexes
    ]


@given(st.integers(0, 2**32))
async def test_it_answers_alike_at_once_and_after_more_changes(seed):
    rng = random.Random(seed)
    calibration = _calibration()
    built = MemoryIndex(DIMENSION, calibration)
    for _ in range(rng.randrange(60)):
        _change(rng, built)
    stored = MemoryIndex.of_parts(DIMENSION, calibration, await built.pin().parts())
    for _ in range(20):
        one, other = _answers(rng, built, stored)
        assert one == other
        _change(rng, built, stored)


async def test_an_index_stored_twice_is_stored_alike():
    rng = random.Random(3)
    built = MemoryIndex(DIMENSION, _calibration())
    for _ in range(50):
        _change(rng, built)
    parts = await built.pin().parts()
    stored = MemoryIndex.of_parts(DIMENSION, built.calibration, parts)
    assert await stored.pin().parts() == parts


async def test_a_graph_comes_back_with_its_rows_and_goes_on_growing():
    rng = random.Random(5)
    built = DenseIndex(DIMENSION, crossover=20)
    for key in range(60):
        built.add(key, search_row(_vector(rng), None))
    await built.maintain()
    for key in range(60, 70):
        built.add(key, search_row(_vector(rng), None))
    parts = await built.pin().parts()
    stored = DenseIndex.of_parts(DIMENSION, parts, crossover=20)
    assert [len(rows) for rows in parts.rows] == [10 * DIMENSION * 2]
    for index in (built, stored):
        index.add(70, search_row(np.eye(DIMENSION, dtype=np.float32)[3], None))
        index.remove(5)
    for _ in range(10):
        query = _vector(rng)
        assert stored.search(query, 9) == built.search(query, 9)


def _of_shards(count: int, rng: random.Random) -> tuple[DenseIndex, list[np.ndarray]]:
    """Return an index whose graph has shards of 20 rows, and its rows by key."""
    rows = [search_row(_vector(rng), None) for _ in range(count)]
    index = DenseIndex(DIMENSION, crossover=20, shard_rows=20)
    for key, row in enumerate(rows):
        index.add(key, row)
    return index, rows


async def test_shards_come_back_as_they_were_stored_and_the_last_one_grows():
    rng = random.Random(5)
    built, _ = _of_shards(50, rng)
    await built.maintain()
    parts = await built.pin().parts()
    stored = DenseIndex.of_parts(DIMENSION, parts, crossover=20, shard_rows=20)
    again = await stored.pin().parts()
    assert again == parts
    assert [one is other for one, other in zip(again.graphs, parts.graphs, strict=True)] == [
        True,
        True,
        False,
    ]
    for key in range(50, 50 + LONGEST_TAIL + 1):
        row = search_row(_vector(rng), None)
        for index in (built, stored):
            index.add(key, row)
    for index in (built, stored):
        await index.maintain()
    assert stored._block.covered == built._block.covered == 51 + LONGEST_TAIL
    for _ in range(10):
        query = _vector(rng)
        assert stored.search(query, 9) == built.search(query, 9)


async def test_shards_of_which_one_is_missing_or_out_of_place_are_refused():
    built, _ = _of_shards(70, random.Random(5))
    await built.maintain()
    parts = await built.pin().parts()
    first, *others = parts.graphs
    for graphs in (others, [*others, first], [parts.graphs[1], first, *others[1:]]):
        with pytest.raises(ValueError, match=r"keys|shard|order"):
            DenseIndex.of_parts(DIMENSION, parts._replace(graphs=graphs), crossover=20, shard_rows=20)


async def test_a_graph_is_stored_although_rows_in_it_were_superseded():
    rng = random.Random(6)
    built, rows = _of_shards(50, rng)
    await built.maintain()
    built.remove(7)
    built.remove(45)
    built.add(45, rows[7])
    parts = await built.pin(removed=True).parts()
    assert len(parts.graphs) == 3
    stored = DenseIndex.of_parts(DIMENSION, parts, crossover=20, shard_rows=20)
    assert 7 not in stored
    assert not stored._block.rows.view(7, 8).any()
    assert (stored._block.dead, len(stored)) == (2, 49)
    for _ in range(10):
        query = _vector(rng)
        assert stored.search(query, 9) == built.search(query, 9)
    await stored.maintain(purge=True)
    assert stored._block.dead == 0
    assert sorted(stored.keys()) == sorted(built.keys())


async def test_a_graph_that_a_cancelled_maintenance_left_half_known_is_stored_whole():
    built, rows = _of_shards(60, random.Random(6))
    await built.maintain()
    for key, row in enumerate(rows):
        built.add(100 + key, row)
    start, entering = built._block.freeze(16)
    assert built._block.graph is not None
    built._block.graph.add(start, entering)
    stored = DenseIndex.of_parts(DIMENSION, await built.pin().parts(), crossover=20, shard_rows=20)
    assert sorted(stored.keys()) == sorted(built.keys())
    assert stored._block.covered == 76


async def test_a_stored_graph_of_few_memories_gives_back_its_rows_and_is_searched_exactly():
    rng = random.Random(5)
    built = DenseIndex(DIMENSION, crossover=20)
    rows = [search_row(_vector(rng), None) for _ in range(70)]
    for key, row in enumerate(rows[:60]):
        built.add(key, row)
    await built.maintain()
    for key, row in enumerate(rows[60:], 60):
        built.add(key, row)
    parts = await built.pin().parts()
    assert parts.graphs
    exact = DenseIndex(DIMENSION, crossover=100)
    for key, row in enumerate(rows):
        exact.add(key, row)
    stored = DenseIndex.of_parts(DIMENSION, parts, crossover=100)
    for index in (exact, stored):
        index.remove(5)
    for _ in range(10):
        query = _vector(rng)
        assert stored.search(query, 9) == exact.search(query, 9)
    assert not (await stored.pin().parts()).graphs


async def test_what_was_removed_is_not_stored_not_even_in_a_graph():
    rng = random.Random(6)
    built = DenseIndex(DIMENSION, crossover=20)
    rows = [search_row(_vector(rng), None) for _ in range(40)]
    for key, row in enumerate(rows):
        built.add(key, row)
    await built.maintain()
    built.remove(7)
    parts = await built.pin().parts()
    erased = rows[7].astype("<f2").tobytes()
    [kept] = map(bytes, parts.rows)
    assert erased not in bytes(parts.keys) + b"".join(parts.graphs) + kept
    assert rows[8].astype("<f2").tobytes() in kept
    stored = DenseIndex.of_parts(DIMENSION, parts, crossover=20)
    assert stored.search(rows[8], 1)[0].key == 8
    assert 7 not in stored


async def test_a_null_that_was_measured_is_not_measured_again_until_its_sample_changes():
    rng = random.Random(7)
    built = MemoryIndex(DIMENSION, _calibration())
    for key in range(260):
        built.put(key, search_row(_vector(rng), None), _text(rng))
    await built.measure_null()
    stored = MemoryIndex.of_parts(DIMENSION, _calibration(), await built.pin().parts())
    assert not stored.null_is_due
    assert stored.search(_vector(random.Random(1)), "tea", 3) == built.search(
        _vector(random.Random(1)), "tea", 3
    )
    stored.put(3, None, "another text")
    assert stored.null_is_due


async def test_a_null_that_was_not_measured_is_due():
    rng = random.Random(8)
    built = MemoryIndex(DIMENSION, _calibration())
    for key in range(260):
        built.put(key, search_row(_vector(rng), None), _text(rng))
    assert MemoryIndex.of_parts(DIMENSION, _calibration(), await built.pin().parts()).null_is_due


@pytest.mark.parametrize("part", ["counts", "slots", "weights", "document_terms", "keys", "lengths", "terms"])
async def test_terms_that_do_not_fit_each_other_are_refused(part):
    built = LexicalIndex()
    built.put(1, "tea in oslo")
    built.put(2, "coffee in lisbon")
    parts = await built.pin().parts()
    cut = bytes(getattr(parts, part))[:-8]
    with pytest.raises(ValueError):
        LexicalIndex.of_parts(parts._replace(**{part: cut}))


async def test_vectors_of_another_dimension_or_number_are_refused():
    built = DenseIndex(DIMENSION)
    built.add(1, search_row(np.eye(DIMENSION, dtype=np.float32)[0], None))
    parts = await built.pin().parts()
    for dimension, wrong in ((DIMENSION + 1, parts), (DIMENSION, parts._replace(keys=b""))):
        with pytest.raises(ValueError):
            DenseIndex.of_parts(dimension, wrong)
    with pytest.raises(ValueError):
        DenseIndex.of_parts(DIMENSION, parts._replace(graph=b"no graph"))
