"""The change feed as server-sent events: everything once, bounded, and over when the right to listen is."""

from __future__ import annotations

import asyncio
import json

import pytest

from relayer.errors import QueueFull, Refused
from relayer.use_cases.memories import ChangeStreams, StreamLimits

QUICK = StreamLimits(per_account=2, heartbeat=15.0, poll=0.01, seconds=300.0)
RETRY = b"retry: 2000\n\n"


async def begin(house, after="0", streams=None):
    streams = ChangeStreams(house.ctx, QUICK) if streams is None else streams
    stream = await streams.open(house.access(), after, house.deadline())
    assert await anext(stream) == RETRY
    return stream


def events(chunk: bytes) -> list[dict[str, str]]:
    blocks = [block for block in chunk.decode().split("\n\n") if block]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


async def heard(stream) -> list[dict[str, str]]:
    async with asyncio.timeout(5):
        return events(await anext(stream))


async def test_what_another_relayer_writes_is_told_too(house):
    await house.put("I drink tea")
    stream = await begin(house)
    await heard(stream)
    other = await house.another()
    await other.put("I drink coffee")
    (told,) = await heard(stream)
    assert json.loads(told["data"])["memory"]["text"] == "I drink coffee"
    await stream.aclose()


async def test_after_the_id_of_an_event_come_those_behind_it(house):
    await house.put(*(f"the {number}th cup" for number in range(70)))
    stream = await begin(house)
    page = [*await heard(stream), *await heard(stream)]
    assert len({one["id"] for one in page}) == len(page) == 70
    await stream.aclose()
    resumed = await begin(house, page[64]["id"])
    assert [one["id"] for one in await heard(resumed)] == [one["id"] for one in page[65:]]
    await resumed.aclose()


async def test_while_nothing_happens_a_comment_says_that_the_stream_lives(house):
    await house.put("I drink tea")
    stream = await begin(house)
    await heard(stream)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    await house.clock.advance(16)
    assert (await waiting).startswith(b":")
    await stream.aclose()


async def _ends(stream) -> bool:
    async with asyncio.timeout(5):
        return await anext(stream, None) is None


async def test_a_stream_ends_with_the_key_that_opened_it(house):
    await house.put("I drink tea")
    stream = await begin(house)
    await heard(stream)
    await house.clock.advance(10 * 60 + 1)
    assert await _ends(stream)


async def test_a_stream_ends_after_its_longest_time_although_much_happens(house):
    await house.put("I drink tea")
    stream = await begin(house)
    await heard(stream)
    await house.clock.advance(301)
    await house.put("I drink coffee")
    assert await _ends(stream)


async def test_a_revocation_ends_the_streams_of_its_account(house):
    await house.put("I drink tea")
    stream = await begin(house)
    await heard(stream)
    access = house.access()
    waiting = asyncio.ensure_future(_ends(stream))
    await asyncio.sleep(0)
    await house.ctx.namespaces.drop_agent(access.account, [access.namespace])
    assert await waiting
    assert house.ctx.namespaces.peek(access.account, access.namespace) is None


async def test_a_cursor_from_beyond_the_log_is_refused_before_anything_is_sent(house):
    streams = ChangeStreams(house.ctx, QUICK)
    await house.put("I drink tea")
    with pytest.raises(Refused, match="shorter"):
        await streams.open(house.access(), "99", house.deadline())
    with pytest.raises(Refused, match="no longer exists"):
        await streams.open(house.access("nobody"), "1", house.deadline())
    assert len(streams) == 0


async def test_a_namespace_that_does_not_exist_ends_the_stream_and_is_not_made(house):
    stream = await begin(house)
    assert await _ends(stream)
    assert [info.key async for info in house.store.list("ns/")] == []


async def test_streams_are_bounded_and_count_no_longer_when_they_end_read_or_not(house):
    await house.put("I drink tea")
    streams = ChangeStreams(house.ctx, QUICK)
    read, unread = (
        await begin(house, streams=streams),
        await streams.open(house.access(), "0", house.deadline()),
    )
    with pytest.raises(QueueFull):
        await streams.open(house.access(), "0", house.deadline())
    await read.aclose()
    await unread.aclose()
    assert len(streams) == 0
    opened = house.ctx.namespaces.peek(house.access().account, "researcher")
    assert opened.users == 0
