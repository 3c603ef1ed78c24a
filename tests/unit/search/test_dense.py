import asyncio
import subprocess
import sys

import numpy as np
import pytest

from relayer.search.dense import DEAD_SHARE, DenseIndex
from relayer.search.graph import rows_of
from relayer.search.rows import KeyMask

DIMENSION = 32


def vectors(count: int, seed: int = 0):
    rows = np.random.default_rng(seed).standard_normal((count, DIMENSION)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def filled(rows, *, crossover: int = 10**9) -> DenseIndex:
    index = DenseIndex(DIMENSION, crossover=crossover)
    for key, row in enumerate(rows):
        index.add(key, row)
    return index


async def graphed(rows, *, crossover: int = 1000) -> DenseIndex:
    """Return an index with a graph over these rows."""
    index = filled(rows, crossover=crossover)
    await index.maintain()
    return index


def keys(index: DenseIndex, query, k: int, allowed=None) -> list[int]:
    only = None if allowed is None else KeyMask.from_keys(allowed, 10**5)
    return [match.key for match in index.search(query, k, only)]


def exact(rows, query, k: int) -> list[int]:
    return np.argsort(-(rows @ query), kind="stable")[:k].tolist()


def test_an_empty_index_finds_nothing():
    assert DenseIndex(DIMENSION).search(vectors(1)[0], 5) == []


def test_search_returns_the_best_keys_and_their_inner_products():
    rows, query = vectors(200), vectors(1, seed=9)[0]
    matches = filled(rows).search(query, 10)
    assert [match.key for match in matches] == exact(rows, query, 10)
    np.testing.assert_allclose([match.score for match in matches], sorted(rows @ query)[:-11:-1], atol=1e-5)


def test_more_results_than_memories_are_all_memories():
    rows = vectors(3)
    assert sorted(keys(filled(rows), rows[0], 10)) == [0, 1, 2]


def test_equal_vectors_are_ordered_by_key_wherever_they_are_and_whatever_k():
    rows = vectors(50)
    index = filled(rows)
    for key in (90, 70, 80, 60):
        index.add(key, rows[3])
    assert keys(index, rows[3], 3) == [3, 60, 70]
    assert keys(index, rows[3], 5) == [3, 60, 70, 80, 90]


def test_adding_a_key_again_replaces_its_vector():
    rows = vectors(10)
    index = filled(rows)
    index.add(4, vectors(1, seed=5)[0])
    assert len(index) == 10
    assert index.search(rows[4], 1)[0].score < 0.99


def test_a_removed_key_is_not_found_and_the_others_still_are():
    rows = vectors(20)
    index = filled(rows)
    assert index.remove(7)
    assert not index.remove(7)
    assert 7 not in keys(index, rows[7], 20)
    for key in set(range(20)) - {7}:
        assert keys(index, rows[key], 1) == [key]


def test_a_filter_searches_the_allowed_keys_only():
    rows, query = vectors(300), vectors(1, seed=3)[0]
    index = filled(rows)
    allowed = {key for key in range(300) if key % 7 == 0} | {12345}
    expected = [key for key in exact(rows, query, 300) if key in allowed][:10]
    assert keys(index, query, 10, allowed) == expected
    assert keys(index, query, 10, set()) == []


@pytest.mark.parametrize(
    "bad", [np.zeros(DIMENSION), np.full(DIMENSION, np.nan), np.ones(DIMENSION), np.ones(3)]
)
def test_a_bad_vector_is_refused_and_changes_nothing(bad):
    index = filled(vectors(5))
    for call in (lambda: index.add(2, bad), lambda: index.search(bad, 1)):
        with pytest.raises(ValueError, match="vector"):
            call()
    assert len(index) == 5
    assert 2 in index


def test_negative_keys_and_no_results_are_refused():
    index = filled(vectors(2))
    with pytest.raises(ValueError, match="negative"):
        index.add(-1, vectors(1)[0])
    with pytest.raises(ValueError, match="at least 1"):
        index.search(vectors(1)[0], 0)


async def test_below_the_crossover_no_graph_is_built():
    index = await graphed(vectors(100), crossover=100)
    assert index._block.graph is None


async def test_the_graph_finds_what_the_exact_search_finds():
    rows, queries = vectors(1500), vectors(40, seed=2)
    index = await graphed(rows)
    assert index._block.covered == 1500
    shared = sum(len(set(keys(index, query, 10)) & set(exact(rows, query, 10))) for query in queries)
    assert shared >= 0.97 * 400


async def test_a_graph_in_shards_finds_what_the_exact_search_finds():
    rows, queries = vectors(1500), vectors(40, seed=2)
    index = DenseIndex(DIMENSION, crossover=1000, shard_rows=400)
    for key, row in enumerate(rows):
        index.add(key, row)
    await index.maintain()
    parts = await index.pin().parts()
    assert [len(rows_of(graph, DIMENSION)) for graph in parts.graphs] == [400, 400, 400, 300]
    shared = sum(len(set(keys(index, query, 10)) & set(exact(rows, query, 10))) for query in queries)
    assert shared >= 0.97 * 400
    for query in queries:
        found = keys(index, query, 700)
        assert len(set(found)) == 700


async def test_a_memory_is_found_at_once_beside_the_graph():
    rows = vectors(1200)
    index = await graphed(rows[:1100])
    for key in range(1100, 1200):
        index.add(key, rows[key])
        assert keys(index, rows[key], 1) == [key]
    assert index._block.covered == 1100


async def test_what_the_graph_still_holds_of_a_removed_or_replaced_memory_is_not_found():
    rows = vectors(1100)
    index = await graphed(rows)
    replacement = vectors(1, seed=8)[0]
    index.add(5, replacement)
    for key in range(10, 60):
        index.remove(key)
    assert keys(index, replacement, 1) == [5]
    assert keys(index, rows[5], 1)[0] != 5
    for key in range(10, 60):
        found = keys(index, rows[key], 20)
        assert len(found) == 20
        assert not set(found) & set(range(10, 60))


async def test_a_filter_on_a_graph_returns_exactly_the_best_allowed():
    rows, query = vectors(1200), vectors(1, seed=4)[0]
    index = await graphed(rows)
    few = set(range(0, 1200, 10))
    assert keys(index, query, 10, few) == [key for key in exact(rows, query, 1200) if key in few][:10]
    most = set(range(1200)) - set(exact(rows, query, 50))
    expected = [key for key in exact(rows, query, 1200) if key in most][:10]
    assert keys(index, query, 10, most) == expected


async def test_too_many_dead_rows_lead_to_a_new_graph_with_the_same_answers():
    rows = vectors(2000)
    index = await graphed(rows)
    old = index._block.graph
    for key in range(int(2000 * DEAD_SHARE) + 2):
        index.remove(key)
    await index.maintain()
    assert index._block.graph is not old
    assert index._block.dead == 0
    assert len(index) == len(index._block.keys)
    for key in range(1000, 1100):
        assert keys(index, rows[key], 1) == [key]


async def test_purging_leaves_no_removed_vector_in_the_graph():
    rows = vectors(1101)
    index = await graphed(rows)
    index.remove(0)
    await index.maintain()
    assert index._block.dead == 1
    await index.maintain(purge=True)
    assert index._block.dead == 0
    nearest = index._block.graph.search(rows[0], 1)[0]
    assert index._block.rows.view(nearest, nearest + 1)[0] @ rows[0] < 0.99


async def test_a_namespace_that_shrank_gives_its_graph_back():
    index = await graphed(vectors(1200))
    for key in range(600):
        index.remove(key)
    await index.maintain()
    assert index._block.graph is None
    assert len(index) == 600


async def test_changes_during_a_rebuild_are_kept():
    rows = vectors(1600)
    index = await graphed(rows, crossover=500)
    for key in range(600):
        index.remove(key)
    rebuild = asyncio.create_task(index.maintain())
    block = index._block
    while index._block is block:
        if 1000 in index:
            index.remove(1000)
            index.add(1001, rows[0])
            index.add(5000, rows[1])
        await asyncio.sleep(0)
    await rebuild
    assert 1000 not in keys(index, rows[1000], 50)
    assert keys(index, rows[0], 1) == [1001]
    assert keys(index, rows[1], 1) == [5000]
    assert len(index) == 1000


async def test_removals_while_the_graph_grows_do_not_move_rows_under_it():
    rows = vectors(900)
    index = filled(rows, crossover=100)
    growing = asyncio.create_task(index.maintain())
    removed: set[int] = set()
    while not growing.done():
        if len(removed) < 200:
            # Alternately from the front, which is being covered, and from the tail, which is not yet.
            key = len(removed) // 2 if len(removed) % 2 else 899 - len(removed) // 2
            index.remove(key)
            removed.add(key)
        await asyncio.sleep(0)
    assert removed
    for key in set(range(900)) - removed:
        assert keys(index, rows[key], 1) == [key]


async def test_a_cancelled_maintenance_is_taken_up_where_it_stopped():
    rows = vectors(1500)
    index = filled(rows, crossover=1000)
    first = asyncio.create_task(index.maintain())
    for _ in range(200):
        await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert 0 < index._block.frozen < 1500
    index.remove(1499)
    await index.maintain()
    assert index._block.covered == len(index._block.keys)
    for key in range(0, 1499, 50):
        assert keys(index, rows[key], 1) == [key]


async def test_searches_are_right_while_the_graph_is_built():
    rows = vectors(1500)
    index = filled(rows, crossover=1000)
    building = asyncio.create_task(index.maintain())
    searched = 0
    while not building.done():
        key = searched * 37 % 1500
        assert keys(index, rows[key], 1) == [key]
        searched += 1
        await asyncio.sleep(0)
    assert searched > 5


@pytest.mark.parametrize("first", ["graph", "runtime"])
def test_the_graph_and_the_model_runtime_live_in_one_process_in_either_order(first):
    graph = "from relayer.search.graph import Graph; Graph(8)"
    runtime = "import onnxruntime"
    script = "; ".join([graph, runtime] if first == "graph" else [runtime, graph])
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


async def test_rows_on_their_way_into_the_graph_are_found_once():
    rows = vectors(1150)
    index = await graphed(rows[:1100])
    for key in range(1100, 1150):
        index.add(key, rows[key])
    start, entering = index._block.freeze(16)
    index._block.graph.add(start, entering)
    found = keys(index, rows[1105], 30)
    assert len(found) == len(set(found)) == 30


async def test_rows_that_die_on_their_way_into_the_graph_take_no_place_in_the_results():
    query = vectors(1)[0]
    rows = -(vectors(40, seed=6) * 0.1 + query)
    index = filled(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    index._block.freeze(16)
    for key in range(10):
        index.remove(key)
    found = index.search(query, 5)
    assert len(found) == 5
    assert all(match.score < 0 for match in found)


async def test_a_removed_row_is_blanked_at_once():
    rows = vectors(1001)
    index = await graphed(rows)
    index.remove(3)
    assert not index._block.rows.view(3, 4).any()


async def test_a_memory_replaced_during_a_rebuild_is_there_once():
    rows = vectors(1600)
    index = await graphed(rows, crossover=500)
    for key in range(600):
        index.remove(key)
    rebuild = asyncio.create_task(index.maintain())
    for _ in range(20):
        await asyncio.sleep(0)
    index.add(1002, rows[0])
    await rebuild
    assert keys(index, rows[0], 1) == [1002]
    assert 1002 not in keys(index, rows[1002], 20)
    assert sum(key == 1002 for key in index._block.keys) == 1


async def test_of_thousands_what_lies_apart_from_the_others_is_found():
    """A graph of as many, whose links are among the many, missed a tenth of these."""
    random = np.random.default_rng(3)
    apart = 1.2 * random.standard_normal((20, 384))
    common = random.standard_normal((12, 384)) / 3
    many = random.standard_normal((3500, 12)) @ common + 0.5 * random.standard_normal((3500, 384))
    asked = 0.5 * apart + random.standard_normal((20, 12)) @ common + 0.5 * random.standard_normal((20, 384))
    rows, queries = (
        (each / np.linalg.norm(each, axis=1, keepdims=True)).astype(np.float32)
        for each in (np.concatenate((many, apart)), asked)
    )
    index = DenseIndex(384)
    for key, row in enumerate(rows):
        index.add(key, row)
    await index.maintain()
    assert [keys(index, query, 112) for query in queries] == [exact(rows, query, 112) for query in queries]


async def test_what_was_pinned_is_stored_as_it_was_whatever_comes_goes_and_takes_its_place():
    rows = vectors(60)
    index = filled(rows[:40])
    pinned = index.pin()
    index.remove(3)
    index.remove(39)
    index.add(7, rows[50])
    for key in range(40, 60):
        index.add(key, rows[key])
    stored = DenseIndex.of_parts(DIMENSION, await pinned.parts())
    assert sorted(stored.keys()) == list(range(40))
    for key in range(40):
        np.testing.assert_allclose(stored.row(key), rows[key], atol=1e-3)
