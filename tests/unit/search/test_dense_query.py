import numpy as np
import pytest

from relayer.search.dense import DenseIndex

DIMENSION = 32


def rows(count: int, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((count, DIMENSION))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float16).astype(np.float32)


@pytest.fixture(params=["exact", "graph and tail"])
async def index(request):
    """Fifty memories; with a graph over thirty of them, or without one."""
    filled = DenseIndex(DIMENSION, crossover=10 if request.param != "exact" else 1_000)
    for key, row in enumerate(rows(30)):
        filled.add(key, row)
    await filled.maintain()
    for key, row in enumerate(rows(20, seed=1), 30):
        filled.add(key, row)
    return filled


def test_what_was_found_scores_afterwards_what_it_scored_then(index):
    asked = index.ask(rows(1, seed=2)[0])
    keys, scores = asked.best(15)
    assert asked.scores(keys.tolist()).tolist() == pytest.approx(scores.tolist(), abs=1e-6)


def test_scores_are_the_same_before_and_after_the_best_were_looked_for(index):
    query = rows(1, seed=2)[0]
    before, asked = index.ask(query), index.ask(query)
    asked.best(5)
    everything = list(range(50))
    assert asked.scores(everything) == pytest.approx(before.scores(everything), abs=1e-6)


def test_a_key_without_a_row_has_no_number(index):
    index.remove(3)
    for asked in (index.ask(rows(1)[0]), index.ask(rows(1)[0])):
        assert np.isnan(asked.scores([3, 99, 4])).tolist() == [True, True, False]
        asked.best(1)


def test_a_removed_row_is_not_among_the_best_even_where_all_score_below_zero(index):
    worst = -rows(30)[7]
    for key in range(50):
        if key not in {7, 8}:
            index.remove(key)
    keys, _ = index.ask(worst).best(5)
    assert sorted(keys.tolist()) == [7, 8]


def test_no_best_of_fewer_than_one(index):
    with pytest.raises(ValueError, match="at least 1"):
        index.ask(rows(1)[0]).best(0)
