"""An acknowledged memory stays as long as was promised, and a refused request leaves nothing behind."""

from __future__ import annotations

import pytest

from relayer.errors import Refused
from relayer.use_cases.remember import remember
from relayer.wire.schemas import RememberRequest

DOOR = "the code of the door changes on friday"


async def _texts(house) -> list[str]:
    return [memory.text for memory in await house.listed()]


async def _remember(house, *items: dict[str, object], key: str | None = None):
    request = RememberRequest(items=items, idempotency_key=key)
    access = house.access(body=request.model_dump_json().encode())
    return await house.call(remember, request, access=access)


async def test_a_conflict_refuses_every_item_also_those_beyond_the_first_request_s(house):
    await _remember(house, {"text": "one apple tree"}, key="k")
    with pytest.raises(Refused) as caught:
        await _remember(house, {"text": "two pear trees"}, {"text": "three plum trees"}, key="k")
    assert caught.value.code == "idempotency_conflict"
    assert await _texts(house) == ["one apple tree"]


async def test_a_conflict_is_the_same_through_a_replica_that_read_the_log(house):
    await _remember(house, {"text": "one apple tree"}, key="k")
    fresh = await house.another()
    with pytest.raises(Refused):
        await _remember(fresh, {"text": "two pear trees"}, {"text": "three plum trees"}, key="k")
    assert await _texts(fresh) == ["one apple tree"]


async def test_each_item_of_a_repeated_request_gets_its_own_first_outcome(house):
    items = ({"text": "one apple tree"}, {"text": "two pear trees"})
    first = await _remember(house, *items, key="k")
    second = await _remember(house, *items, key="k")
    assert second.memories == first.memories
    assert len({memory.id for memory in first.memories}) == 2


@pytest.mark.parametrize(
    ("first", "second", "status"), [(60, None, "stored"), (60, 600, "stored"), (None, 60, "duplicate")]
)
async def test_what_is_said_again_lasts_as_long_as_the_longest_that_was_promised(
    house, first, second, status
):
    await _remember(house, {"text": DOOR, "ttl_seconds": first})
    again = await _remember(house, {"text": DOOR, "ttl_seconds": second})
    assert again.memories[0].status == status
    await house.clock.advance(61)
    assert await _texts(house) == [DOOR]
