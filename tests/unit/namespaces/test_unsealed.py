"""A relayer does not open what it has just sealed, and what it then knows is what everybody else reads."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from index_world import opened_of

from relayer.errors import StoreUnavailable
from relayer.use_cases.remember import remember
from relayer.wire.codec import UnsealError
from relayer.wire.schemas import RememberRequest


async def _remember(house, **item):
    request = RememberRequest(items=[{"text": "I moved to Oslo in May", **item}])
    return await house.call(remember, request)


def _seen(opened) -> list:
    return [(one, opened.index().row(opened.key_of(one.id)).tobytes()) for one in opened.memories()]


async def test_the_writer_knows_what_a_reader_of_the_log_opens(house):
    dimension = house.embedder.model.dimension
    given = np.random.default_rng(1).standard_normal(dimension).astype("<f4").tobytes()
    first = await _remember(house, source={"speaker": "Ada", "message_ids": ["m1", "m2"]}, importance=1)
    await _remember(house, text="and I like it there", context_of=first.memories[0].id, lang="en")
    await _remember(house, text="my flat is small", vector=base64.b64encode(given).decode())
    reader = await house.another()
    assert _seen(await opened_of(house)) == _seen(await opened_of(reader))


async def test_nothing_stays_in_clear_after_the_answer(house):
    await _remember(house)
    assert (await opened_of(house)).view.plaintexts == {}


async def test_a_large_request_is_not_opened_again_either_and_nothing_of_it_stays(house, monkeypatch):
    opened = await opened_of(house)
    unsealed: list[bytes] = []
    monkeypatch.setattr(type(opened.keys), "unseal_record", lambda _, record, __: unsealed.append(record))
    monkeypatch.setattr(type(opened.keys), "unseal_vector", lambda _, record, *__: unsealed.append(record))
    items = [{"text": f"I moved to house {number} in May"} for number in range(100)]
    await house.call(remember, RememberRequest(items=items))
    await opened.wait_indexed()
    assert (len(opened.view), unsealed, opened.view.plaintexts) == (100, [], {})


async def test_nothing_stays_in_clear_after_a_failure(house):
    opened = await opened_of(house)
    await opened.log.close()
    with pytest.raises(StoreUnavailable):
        await _remember(house)
    assert opened.view.plaintexts == {}


@pytest.mark.parametrize("place", [0, 1, 2], ids=["record", "part", "seal"])
async def test_a_plaintext_counts_only_for_what_was_sealed(house, place):
    await _remember(house)
    opened = await opened_of(house)
    (known,) = opened.memories()
    true = (known.id, "record", b"a seal")
    false = tuple(b"other" if at == place else one for at, one in enumerate(true))
    opened.view.plaintexts[false] = b"in clear"
    with pytest.raises(UnsealError):
        opened.view._open(*true)
    opened.view.plaintexts[true] = b"in clear"
    assert opened.view._open(*true) == b"in clear"


async def test_a_text_larger_than_the_cache_is_read_each_time(house):
    text = "the ferry to the islands leaves at nine " * 1200
    await _remember(house, text=text)
    await _remember(house)
    opened = await opened_of(house)
    ids = list(opened.ids())
    assert [opened.memory(one).record.text.strip() for one in (ids[0], ids[1], ids[0])] == [
        text.strip(),
        "I moved to Oslo in May",
        text.strip(),
    ]
