import pytest

from relayer.search.index import MOST_FOLLOWERS, Links


def chain(count: int) -> Links:
    links = Links()
    for key in range(1, count):
        links.put(key, key - 1)
    return links


def near(links: Links, key: int, hidden: frozenset[int] = frozenset()) -> list[tuple[int, int]]:
    return links.near(key, frozenset(range(100)) - hidden)


def test_three_turns_in_either_direction_are_near():
    assert near(chain(10), 5) == [(4, 1), (3, 2), (2, 3), (6, 1), (7, 2), (8, 3)]


def test_the_ends_of_a_conversation_have_fewer_neighbours():
    assert near(chain(3), 0) == [(1, 1), (2, 2)]
    assert near(chain(3), 2) == [(1, 1), (0, 2)]


def test_what_was_never_linked_has_no_neighbours():
    assert near(chain(3), 77) == []
    assert near(Links(), 0) == []


def test_what_may_not_be_passed_hides_what_lies_behind_it():
    assert near(chain(10), 5, frozenset({4, 7})) == [(6, 1)]


def test_several_memories_may_follow_one_but_only_so_many_are_looked_at():
    links = Links()
    for key in range(1, 10):
        links.put(key, 0)
    assert near(links, 0) == [(key, 1) for key in range(9, 9 - MOST_FOLLOWERS, -1)]
    assert near(links, 1) == [(0, 1)]


def test_putting_a_memory_again_keeps_its_place():
    links = chain(3)
    links.put(2, 1)
    assert near(links, 1) == [(0, 1), (2, 1)]


def test_a_memory_is_not_its_own_neighbour():
    links = Links()
    links.put(1, 1)
    assert near(links, 1) == []


def test_links_come_back_from_their_flat_form():
    links = chain(6)
    links.put(7, 2)
    again = Links.of_flat(links.flat())
    assert [near(again, key) for key in range(8)] == [near(links, key) for key in range(8)]


@pytest.mark.parametrize("flat", [b"abc", (9).to_bytes(4, "little"), (-2).to_bytes(4, "little", signed=True)])
def test_a_flat_form_that_is_none_is_refused(flat):
    with pytest.raises(ValueError, match=r"link|buffer"):
        Links.of_flat(flat)
