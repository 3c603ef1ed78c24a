"""Places are shared: an account has at most its share, and one that has less gets a place of one that has more."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from relayer.errors import QueueFull
from relayer.lib.work import FairSemaphore


def test_an_account_has_at_most_its_share() -> None:
    shares = FairSemaphore("polls", most=10, per_account=2)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(shares.place("A"))
        with pytest.raises(QueueFull, match="too many polls"), shares.place("A"):
            pass
    assert len(shares) == 0


def test_a_newcomer_takes_the_oldest_place_of_the_account_with_most() -> None:
    shares = FairSemaphore("polls", most=4, per_account=4)
    with ExitStack() as stack:
        poor = stack.enter_context(shares.place("B"))
        rich = [stack.enter_context(shares.place("A")) for _ in range(3)]
        stack.enter_context(shares.place("C"))
        assert [poor.lost, *(place.lost for place in rich)] == [False, True, False, False]
        assert len(shares) == 4
    assert len(shares) == 0


def test_nobody_takes_a_place_of_an_account_that_has_hardly_more() -> None:
    shares = FairSemaphore("polls", most=3, per_account=3)
    with ExitStack() as stack:
        places = [stack.enter_context(shares.place(account)) for account in "AAB"]
        with pytest.raises(QueueFull), shares.place("B"):
            pass
        assert not any(place.lost for place in places)
