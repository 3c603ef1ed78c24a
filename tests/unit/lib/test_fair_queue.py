"""Who is next in a fair queue: interactive before background, then the account that has used least."""

from __future__ import annotations

import pytest

from relayer.lib.work import FairQueue, Requester


def _taken(queue: FairQueue[str], cost: float = 1) -> list[str]:
    found = []
    while (taken := queue.take()) is not None:
        queue.charge(taken[0].account, cost)
        found.append(taken[1])
    return found


def _queue(*items: str, interactive: bool = False) -> FairQueue[str]:
    queue: FairQueue[str] = FairQueue()
    for item in items:
        queue.put(Requester(item[0], interactive), item)
    return queue


def test_accounts_take_turns_and_each_keeps_its_own_order() -> None:
    queue = _queue("a1", "a2", "a3", "b1", "b2", "c1")
    assert (len(queue), queue.waiting("a"), queue.waiting("d")) == (6, 3, 0)
    assert _taken(queue) == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert len(queue) == 0


def test_an_account_that_used_more_comes_later() -> None:
    queue = _queue("a1", "b1", "b2", "b3")
    queue.charge("a", 2.5)
    assert _taken(queue) == ["b1", "b2", "b3", "a1"]


def test_an_idle_account_saves_nothing_up() -> None:
    queue = _queue("a1", "a2", "a3")
    assert _taken(queue) == ["a1", "a2", "a3"]
    for item in ("b1", "b2", "b3", "a4", "a5"):
        queue.put(Requester(item[0]), item)
    assert _taken(queue) == ["b1", "b2", "a4", "b3", "a5"]


def test_interactive_items_go_first_but_not_more_than_eight_in_a_row() -> None:
    queue = _queue(*(f"a{number}" for number in range(10)), interactive=True)
    queue.put(Requester("b"), "background")
    assert _taken(queue).index("background") == 8


@pytest.mark.parametrize("left_out", ["a", "b"])
def test_what_may_not_run_is_passed_over_and_keeps_its_place(left_out: str) -> None:
    queue = _queue("a1", "b1")
    taken = queue.take(lambda requester, _: requester.account != left_out)
    assert taken is not None
    assert taken[1] != f"{left_out}1"
    assert queue.take(lambda requester, _: requester.account != left_out) is None
    assert _taken(queue) == [f"{left_out}1"]


def test_what_is_discarded_is_not_taken() -> None:
    queue = _queue("a1", "a2")
    queue.discard(Requester("a"), "a1")
    queue.discard(Requester("b"), "b1")
    assert _taken(queue) == ["a2"]
