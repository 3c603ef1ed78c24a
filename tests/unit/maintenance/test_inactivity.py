"""The inactivity policy forgets what lay idle, once, undoably, and spares what somebody cares for."""

from __future__ import annotations

import asyncio

import pytest

from relayer.lib.scheduler import Scheduler
from relayer.maintenance.open_namespaces import EXPIRY_SECONDS, forget_inactive, forgetting_inactive
from relayer.settings.config import RelayerSettings
from relayer.use_cases.lifecycle import restore
from relayer.use_cases.memories import list_memories
from relayer.use_cases.remember import remember
from relayer.wire.schemas import RememberRequest

DAY = 86_400


async def put(house, *texts, **fields):
    request = RememberRequest(items=[{"text": text, **fields} for text in texts])
    return [one.id for one in (await remember(house.ctx, house.access(), request, house.deadline())).memories]


async def listed(house, state):
    answer = await list_memories(
        house.ctx, house.access(), limit=50, cursor=None, kinds=(), states=[state], deadline=house.deadline()
    )
    return {memory.text for memory in answer.memories}


async def applied(house, days):
    async with house.ctx.namespaces.use(house.access(), house.deadline(), create=False) as opened:
        return await forget_inactive(house.ctx, opened, days)


async def test_what_lay_idle_is_forgotten_and_what_is_pinned_new_or_said_again_is_not(house):
    await put(house, "idle", "said again")
    await put(house, "pinned", pinned=True)
    await house.clock.advance(31 * DAY)
    await put(house, "said again", "new")
    assert await applied(house, 30) == 1
    assert await listed(house, "forgotten") == {"idle"}
    assert await listed(house, "live") == {"said again", "pinned", "new"}


async def test_what_a_person_brings_back_is_active_again_and_may_fall_idle_anew(house):
    (memory,) = await put(house, "idle")
    await house.clock.advance(31 * DAY)
    assert await applied(house, 30) == 1
    await restore(house.ctx, house.access(), memory, house.deadline())
    assert await applied(house, 30) == 0
    await house.clock.advance(31 * DAY)
    assert await applied(house, 30) == 1


async def test_two_relayers_that_apply_it_at_once_forget_once(house):
    await put(house, "idle")
    other = await house.another()
    await listed(other, "live")
    await house.clock.advance(31 * DAY)
    await asyncio.gather(applied(house, 30), applied(other, 30))
    assert await listed(house, "forgotten") == await listed(other, "forgotten") == {"idle"}
    await other.ctx.namespaces.close(1.0)


async def test_it_is_applied_to_what_is_open_now_and_then(house):
    await put(house, "idle")
    await house.clock.advance(31 * DAY)
    async with Scheduler(house.clock, house.ctx.randomness, lambda name, _: pytest.fail(name)) as scheduler:
        scheduler.start(forgetting_inactive(house.ctx, 30))
        for _ in range(3):
            await house.clock.advance(EXPIRY_SECONDS)
    assert not scheduler.failures
    assert await listed(house, "forgotten") == {"idle"}


def test_it_is_off_unless_somebody_sets_it():
    assert RelayerSettings.model_fields["forget_inactive_days"].default == 0
