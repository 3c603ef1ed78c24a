import pytest

from bench.programs import added_by
from bench.stats import likely_median, percentile, ratio, spread


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.5, 5), (0.9, 9), (0.91, 10), (0.99, 10), (1.0, 10)]
)
def test_a_percentile_is_the_value_at_its_nearest_rank(share, expected):
    assert percentile([7, 1, 10, 4, 2, 9, 3, 8, 5, 6], share) == expected


def test_of_a_single_value_every_percentile_is_that_value():
    assert percentile([3.5], 0.99) == 3.5


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], 1.5), ([1.0], -0.1)])
def test_a_percentile_of_nothing_or_beyond_all_is_refused(values, share):
    with pytest.raises(ValueError, match="percentile"):
        percentile(values, share)


def test_a_ratio_compares_rounds_and_not_their_sums():
    # One disturbed round (the third) would move a ratio of sums to 3.2.
    found = ratio([2.0, 4.0, 90.0, 6.0, 8.0], [1.0, 2.0, 30.0, 3.0, 4.0])
    assert (found.median, found.low, found.high) == (2.0, 2.0, 3.0)


def test_a_ratio_says_its_lowest_and_highest_round():
    assert str(ratio([2.0, 3.0, 5.0], [1.0, 1.0, 2.0])) == "2.50x (2.00..3.00)"


@pytest.mark.parametrize(
    ("above", "below"), [([], []), ([1.0], [0.0]), ([1.0, 2.0], [1.0]), ([1.0], [1.0, 2.0])]
)
def test_a_ratio_needs_pairs_of_rounds_and_something_to_divide_by(above, below):
    with pytest.raises(ValueError, match=r"ratio|argument"):
        ratio(above, below)


def test_a_spread_is_the_middle_and_both_ends():
    found = spread([4.0, 1.0, 9.0])
    assert (found.median, found.low, found.high) == (4.0, 1.0, 9.0)


def test_a_median_of_many_values_is_known_better_than_their_ends():
    found = likely_median([float(value) for value in range(101)])
    # Ranks of the binomial interval of 101 values: 40 to 60.
    assert (found.median, found.low, found.high) == (50, 40, 60)
    few = likely_median([3.0, 1.0, 2.0])
    assert (few.median, few.low, few.high) == (2, 1, 3)


def test_what_a_way_adds_is_told_per_question_whatever_a_question_costs():
    costs, noise = [0.001 * number for number in range(1, 33)], [0.0, 0.0005, -0.0005, 0.03, 0.0]
    below = [list(costs) for _ in noise]
    above = [[cost + 0.00025 + one for cost in costs] for one in noise]
    found = added_by(above, below)
    for value in (found.median, found.low, found.high):
        assert value == pytest.approx(0.25)
