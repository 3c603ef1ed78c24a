import pytest
from test_links import chain

from relayer.search.ranking import abstention_score, coverage, evidence, with_neighbours


def raised(found: dict[int, float], lenders: list[int]) -> dict[int, float]:
    links = chain(10)
    return with_neighbours(found, lenders, lambda key: links.near(key, found))


def test_a_query_without_terms_covers_nothing():
    assert coverage(0.0, 0.0) == 0.0


def test_words_count_for_more_in_the_order_than_in_the_judgement():
    assert evidence(0.2, 0.5) > abstention_score(0.2, 0.5) > 0.2


def test_a_turn_beside_a_good_hit_closes_a_share_of_the_gap_which_falls_with_the_distance():
    found = raised({0: 0.0, 1: 0.0, 2: 0.0, 3: 1.0, 4: 0.0}, [3])
    assert found == {
        0: pytest.approx(0.1),
        1: pytest.approx(0.2),
        2: pytest.approx(0.3),
        3: 1.0,
        4: pytest.approx(0.3),
    }


def test_a_worse_neighbour_takes_nothing_away():
    assert raised({3: 1.0, 4: 0.2}, [4]) == {3: 1.0, 4: 0.2}


def test_nothing_is_lent_beyond_what_was_found():
    assert raised({3: 1.0, 5: 0.5}, [3]) == {3: 1.0, 5: 0.5}
