"""A relayer does not open what it has just sealed, and what it then knows is what everybody else reads."""

from __future__ import annotations

import base64

import msgspec
import numpy as np
import pytest
from index_world import opened_of, replica

from relayer.domain.operations import Stored
from relayer.domain.record import Record
from relayer.errors import StoreUnavailable
from relayer.namespaces.records import PlaintextCache, Unsealed
from relayer.use_cases.remember import remember
from relayer.wire.schemas import RememberRequest

STORED = Stored(record=bytes(16), content=bytes(32), sealed=b"sealed", vector=b"vector")
CONTENTS = Unsealed(STORED, Record(bytes(16), "researcher", "tea"), 40, b"own", b"")


async def _remember(house, **item):
    request = RememberRequest(items=[{"text": "I moved to Oslo in May", **item}])
    return await remember(house.ctx, house.access(), request, house.deadline())


def _seen(opened) -> list:
    view = opened.view
    return [(view.get(record), view.index.row(view.number_of(record)).tobytes()) for record in view.ids()]


async def test_the_writer_knows_what_a_reader_of_the_log_opens(house):
    dimension = house.embedder.model.dimension
    given = np.random.default_rng(1).standard_normal(dimension).astype("<f4").tobytes()
    first = await _remember(house, source={"speaker": "Ada", "message_ids": ["m1", "m2"]}, importance=1)
    await _remember(house, text="and I like it there", context_of=first.memories[0].id, lang="en")
    await _remember(house, text="my flat is small", vector=base64.b64encode(given).decode())
    reader = await replica(house)
    assert _seen(await opened_of(house)) == _seen(await opened_of(reader))
    await reader.ctx.namespaces.close(1.0)


async def test_nothing_stays_in_clear_after_the_answer(house):
    await _remember(house)
    assert len((await opened_of(house)).view.unsealed) == 0


async def test_nothing_stays_in_clear_after_a_failure(house):
    opened = await opened_of(house)
    await opened.log.close()
    with pytest.raises(StoreUnavailable):
        await _remember(house)
    assert len(opened.view.unsealed) == 0


@pytest.mark.parametrize("changed", [{"vector": b"other"}, {"record": b"x" * 16}, {"context_of": b"y" * 16}])
def test_contents_count_only_for_what_they_were_sealed_as(changed):
    table = PlaintextCache()
    with table.holding([CONTENTS]):
        assert table.of(msgspec.structs.replace(STORED)) is CONTENTS
        assert table.of(msgspec.structs.replace(STORED, **changed)) is None
    assert table.of(STORED) is None


async def test_a_text_larger_than_the_cache_is_read_each_time(house):
    text = "the ferry to the islands leaves at nine " * 1200
    found = await _remember(house, text=text)
    await _remember(house)
    view = (await opened_of(house)).view
    ids = list(view.ids())
    assert [view.get(record).text.strip() for record in (ids[0], ids[1], ids[0])] == [
        text.strip(),
        "I moved to Oslo in May",
        text.strip(),
    ]
    assert len(found.memories) == 1
