"""The inactivity policy forgets what lay idle, once, undoably, and spares what somebody cares for."""

from __future__ import annotations

import asyncio

import pytest

from relayer.lib.scheduler import Scheduler
from relayer.maintenance.open_namespaces import EXPIRY_SECONDS, forget_inactive, forgetting_inactive
from relayer.settings.config import RelayerSettings
from relayer.use_cases.lifecycle import restore

DAY = 86_400


async def listed(house, state):
    return {memory.text for memory in await house.listed(state)}


async def applied(house, days):
    async with house.ctx.namespaces.use(house.access(), house.deadline(), create=False) as opened:
        return await forget_inactive(house.ctx, opened, days)


async def test_what_lay_idle_is_forgotten_and_what_is_pinned_new_or_said_again_is_not(house):
    await house.put("idle", "said again")
    await house.put("pinned", pinned=True)
    await house.clock.advance(31 * DAY)
    await house.put("said again", "new")
    assert await applied(house, 30) == 1
    assert await listed(house, "forgotten") == {"idle"}
    assert await listed(house, "live") == {"said again", "pinned", "new"}


async def test_what_a_person_brings_back_is_active_again_and_may_fall_idle_anew(house):
    (memory,) = await house.put("idle")
    await house.clock.advance(31 * DAY)
    assert await applied(house, 30) == 1
    await house.call(restore, memory)
    assert await applied(house, 30) == 0
    await house.clock.advance(31 * DAY)
    assert await applied(house, 30) == 1


async def test_two_relayers_that_apply_it_at_once_forget_once(house):
    await house.put("idle")
    other = await house.another()
    await listed(other, "live")
    await house.clock.advance(31 * DAY)
    await asyncio.gather(applied(house, 30), applied(other, 30))
    assert await listed(house, "forgotten") == await listed(other, "forgotten") == {"idle"}


async def test_it_is_applied_to_what_is_open_now_and_then(house):
    await house.put("idle")
    await house.clock.advance(31 * DAY)
    async with Scheduler(house.clock, house.ctx.randomness, lambda name, _: pytest.fail(name)) as scheduler:
        scheduler.start(forgetting_inactive(house.ctx, 30))
        for _ in range(3):
            await house.clock.advance(EXPIRY_SECONDS)
    assert not scheduler.failures
    assert await listed(house, "forgotten") == {"idle"}


def test_it_is_off_unless_somebody_sets_it():
    assert RelayerSettings.model_fields["forget_inactive_days"].default == 0
