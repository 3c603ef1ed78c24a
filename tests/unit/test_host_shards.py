"""The tests over real hosts are split into shards: each file is in one, and the days take turns."""

from __future__ import annotations

from datetime import date, timedelta

import host_shards as shards
import pytest

COUNT = 6
# What a shard may add to a run of CI.
MOST_SECONDS = 260


def test_each_file_is_in_one_shard_or_always_run_or_needs_older_hosts() -> None:
    dealt = [name for one in shards.shards(COUNT) for name in one]
    assert sorted([*dealt, *shards.ALWAYS, *shards.APART]) == sorted(
        path.name for path in shards.E2E.glob("test_*.py")
    )


def test_each_file_has_its_seconds_and_no_shard_takes_longer_than_ci_allows() -> None:
    assert {name for one in shards.shards(COUNT) for name in one} == {*shards.SECONDS}
    assert all(0 < shards.seconds_of(one) <= MOST_SECONDS for one in shards.shards(COUNT))


@pytest.mark.parametrize("first", [date(2026, 3, 1), date(2026, 12, 29), date(2028, 12, 29)])
def test_six_days_in_a_row_run_every_shard(first: date) -> None:
    days = [shards.chosen(f"today/{COUNT}", first + timedelta(days=day)) for day in range(COUNT)]
    assert sorted(days) == sorted(shards.shards(COUNT))
    assert days[0] == shards.chosen(f"today/{COUNT}", first)


def test_a_shard_is_named_by_number_and_a_wrong_one_is_refused() -> None:
    assert [
        shards.chosen(f"{number}/{COUNT}", date(2026, 1, 1)) for number in range(1, COUNT + 1)
    ] == shards.shards(COUNT)
    for wrong in ("0/6", "7/6"):
        with pytest.raises(ValueError, match="k from 1 to n"):
            shards.chosen(wrong, date(2026, 1, 1))
