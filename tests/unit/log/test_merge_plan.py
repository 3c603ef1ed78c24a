import itertools

from hypothesis import given
from hypothesis import strategies as st

from relayer.log.compactor import plan_merge

SIZES = st.lists(st.integers(1, 120), max_size=40)


def test_what_is_few_is_left_alone() -> None:
    assert plan_merge([1] * 17, most_small=16, full=100) is None
    assert plan_merge([], most_small=0, full=100) is None


def test_full_segments_are_left_alone_however_many_there_are() -> None:
    assert plan_merge([60] * 200, most_small=16, full=100) is None


def test_the_run_that_costs_least_for_what_it_saves_is_merged() -> None:
    assert plan_merge([50, 1, 1, 1, 50, 20, 20], most_small=3, full=100) == (1, 4)


@given(SIZES, st.integers(0, 8))
def test_a_plan_is_a_run_of_neighbours_that_fits(sizes: list[int], most_small: int) -> None:
    plan = plan_merge(sizes, most_small=most_small, full=100)
    if plan is not None:
        start, end = plan
        assert 0 <= start < end - 1 < len(sizes)
        assert sum(sizes[start:end]) <= 100


@given(SIZES, st.integers(0, 8))
def test_following_the_plan_ends_with_few_neighbours_that_would_fit(
    sizes: list[int], most_small: int
) -> None:
    while (plan := plan_merge(sizes, most_small=most_small, full=100)) is not None:
        start, end = plan
        sizes[start:end] = [sum(sizes[start:end])]
    assert sum(left + right <= 100 for left, right in itertools.pairwise(sizes)) <= most_small


def test_each_byte_is_written_few_times() -> None:
    written = 0
    sizes: list[int] = []
    for _ in range(1600):  # a hundred thousand memories, 64 to a segment
        sizes.append(166_000)
        written += 166_000
        while (plan := plan_merge(sizes, most_small=16, full=16 * 2**20)) is not None:
            start, end = plan
            sizes[start:end] = [sum(sizes[start:end])]
            written += sizes[start]
    assert written / sum(sizes) < 3.2
    assert len(sizes) <= 16 + 2 * sum(sizes) / (16 * 2**20)
