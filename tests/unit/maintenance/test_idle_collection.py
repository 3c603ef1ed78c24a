"""Logs that nobody has open are collected in the end, slowly and one after another."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable

import pytest

from relayer.access.accounts import Accounts
from relayer.errors import CorruptNamespace, StoreUnavailable
from relayer.lib.scheduler import Scheduler
from relayer.log.collector import GRACE_MS
from relayer.log.compactor import CompactionLimits
from relayer.log.creation import find
from relayer.log.erasure import ErasureReports, ErasureStage, NamespaceEraser, namespace_report
from relayer.log.objects import Layout, LogPorts
from relayer.maintenance.logs import IdleCollection, IdleLimits, PacedStore
from relayer.use_cases.remember import remember
from relayer.wire import schemas

LIMITS = IdleLimits(every=1000.0, requests=10.0)
TAIL = CompactionLimits(entries=1, most_small=9)


async def let_go(house, agents: Iterable[str]) -> None:
    """Write to a namespace of each agent, compact it, and close it."""
    for agent in agents:
        access = house.access(agent)
        accounts = Accounts(house.ctx.ports, served=None)
        await accounts.make(access.account)
        for text in ("I drink oat milk", "I ride a red bicycle"):
            request = schemas.RememberRequest.model_validate({"items": [{"text": text}]})
            await house.call(remember, request, agent=agent)
        async with house.ctx.namespaces.use(access, house.deadline(), create=False) as opened:
            while await opened.log.compact(TAIL) is not None:
                pass
    await house.ctx.namespaces.close(1.0)


def keys(house, kind: str) -> list[str]:
    return [key for key in house.store._inner._objects if f"/{kind}/" in key]


def fail(error: BaseException) -> None:
    raise error


async def test_one_walk_collects_every_log_that_nobody_has_open(house) -> None:
    await let_go(house, ("researcher", "writer"))
    assert len(keys(house, "wal")) == 4
    idle = IdleCollection(house.ctx.ports, LIMITS)

    await house.clock.run(idle.walk(fail))

    assert keys(house, "wal") == []
    assert len(keys(house, "seg")) == 2
    assert idle.counts == {"walks": 1, "namespaces": 2, "slots": 4, "objects": 0}


async def test_what_lies_about_in_a_log_without_a_collection_due_goes_too(house) -> None:
    await let_go(house, ("researcher",))
    idle = IdleCollection(house.ctx.ports, LIMITS)
    await house.clock.run(idle.walk(fail))
    [segment] = keys(house, "seg")
    incarnation = bytes.fromhex(segment.split("/")[1])
    await house.store.create(Layout.segment(incarnation, 1, bytes(16)), b"lost a race")
    await house.clock.advance(2 * 3600)

    await house.clock.run(idle.walk(fail))

    assert keys(house, "seg") == [segment]


async def test_a_walk_asks_for_no_more_than_it_may(house) -> None:
    await let_go(house, ("researcher", "writer"))
    idle = IdleCollection(house.ctx.ports, IdleLimits(requests=2.0, collect_after_ms=0))
    before, began = house.store.count(), house.clock.monotonic()

    await house.clock.run(idle.walk(fail))

    asked, seconds = house.store.count() - before, house.clock.monotonic() - began
    assert asked > 20
    assert seconds >= (asked - 1) / 2.0


async def test_one_log_that_cannot_be_read_does_not_keep_the_others_from_their_turn(house) -> None:
    await let_go(house, ("researcher", "writer", "reviewer"))
    broken = keys(house, "seg")[0].split("/")[1]
    manifest = Layout.manifest(bytes.fromhex(broken))
    await house.store.delete(manifest)
    await house.store.create(manifest, b"not a manifest")
    errors: list[BaseException] = []
    idle = IdleCollection(house.ctx.ports, LIMITS)

    await house.clock.run(idle.walk(errors.append))

    assert [type(error) for error in errors] == [CorruptNamespace]
    assert {key.split("/")[1] for key in keys(house, "wal")} == {broken}


class Failing:
    """A store that fails with every request after so many."""

    def __init__(self, inner, left: int) -> None:
        self._inner, self._left = inner, left

    def __getattr__(self, name: str):
        self._left -= 1
        if self._left < 0 and name != "close":
            raise StoreUnavailable("the store is down")
        return getattr(self._inner, name)


async def test_a_walk_that_the_store_broke_off_goes_on_where_it_was(house) -> None:
    await let_go(house, ("researcher", "writer"))
    ports = house.ctx.ports
    store = Failing(house.store, left=12)
    idle = IdleCollection(LogPorts(store, ports.clock, ports.randomness, ports.keys), LIMITS)
    with pytest.raises(StoreUnavailable):
        await house.clock.run(idle.walk(fail))
    seen = idle.counts["namespaces"]
    assert seen == 2, "the second one was begun"

    store._left = 10_000
    listed = house.store.count()
    await house.clock.run(idle.walk(fail))

    assert keys(house, "wal") == []
    assert "acct/" not in [call.key for call in house.store.calls[listed:] if call.operation == "list"]


async def erased(house, agent: str) -> str:
    """Erase a namespace until that is confirmed; returns what the keys of its objects began with."""
    pointer = await find(house.ctx.ports, house.root.account, agent)
    report = namespace_report(house.root.account, pointer, house.clock.now_ms())
    reports, eraser = ErasureReports(house.ctx.ports), NamespaceEraser(house.ctx.ports)
    await eraser.run(await reports.begin(report))
    await house.clock.advance(GRACE_MS / 1000)
    seen = await reports.find(house.root.account, pointer.incarnation)
    assert (await eraser.run(seen)).report.stage is ErasureStage.CONFIRMED
    return Layout.incarnation(pointer.incarnation)


def below(house, prefix: str) -> list[str]:
    return [key for key in house.store._inner._objects if key.startswith(prefix)]


async def test_what_was_written_below_a_namespace_after_its_erasure_was_confirmed_goes(house) -> None:
    await let_go(house, ("researcher", "writer"))
    before = dict(house.store._inner._objects)
    gone = await erased(house, "researcher")
    assert below(house, gone) == []
    for kind in ("/wal/", "/seg/", "/keyring", "/manifest"):
        late = next(key for key in before if key.startswith(gone) and kind in f"/{key}")
        await house.store.create(late, before[late].data)
    kept = set(keys(house, "seg")) - set(below(house, gone))
    idle = IdleCollection(house.ctx.ports, LIMITS)

    await house.clock.run(idle.walk(fail))

    assert below(house, gone) == []
    assert set(keys(house, "seg")) == kept
    assert idle.counts["objects"] == 4


async def test_a_copy_of_the_store_that_somebody_brought_back_is_no_late_write(house) -> None:
    await let_go(house, ("researcher",))
    before = dict(house.store._inner._objects)
    gone = await erased(house, "researcher")
    for key, stored in before.items():
        await house.store.delete(key)
        await house.store.create(key, stored.data)
    assert below(house, gone)

    await house.clock.run(IdleCollection(house.ctx.ports, LIMITS).walk(fail))

    assert [key for key in below(house, gone) if "/seg/" in key]
    assert [key for key in below(house, gone) if "/keyring" in key]


async def test_reports_of_long_ago_are_not_read_again(house) -> None:
    await let_go(house, ("researcher",))
    gone = await erased(house, "researcher")
    await house.clock.advance(31 * 86_400)
    before = house.store.count()

    await house.clock.run(IdleCollection(house.ctx.ports, LIMITS).walk(fail))

    asked = [call.key for call in house.store.calls[before:] if call.operation == "get"]
    assert not [key for key in asked if key.startswith("erased/")]
    assert below(house, gone) == []


async def test_walks_begin_late_and_come_again_until_cancelled(house) -> None:
    await let_go(house, ("researcher",))
    idle = IdleCollection(house.ctx.ports, IdleLimits(every=1000.0, requests=1000.0, collect_after_ms=0))
    before = house.store.count()
    async with Scheduler(house.clock, house.ctx.randomness, lambda _, error: fail(error)) as scheduler:
        scheduler.start(idle.task)
        await house.clock.advance(1.0)
        assert house.store.count() == before
        await house.clock.advance(6000.0)
    assert idle.counts["walks"] >= 3
    walks = idle.counts["walks"]
    await house.clock.advance(6000.0)
    assert idle.counts["walks"] == walks


async def test_requests_of_a_paced_store_are_apart_however_many_ask_at_once(house) -> None:
    store = PacedStore(house.store, house.clock, per_second=4.0)
    began = house.clock.monotonic()
    await house.clock.run(
        _all(asyncio.gather(*(store.get(hashlib.sha256(b"x").hexdigest()) for _ in range(9))))
    )
    assert house.clock.monotonic() - began == pytest.approx(2.0)


async def _all(work) -> None:
    await work


async def test_a_claim_to_erase_is_deleted_a_day_later_and_not_before(house) -> None:
    reports, idle = ErasureReports(house.ctx.ports), IdleCollection(house.ctx.ports, LIMITS)
    account = house.access("researcher").account
    assert await reports.claim(account, "memwal/notes", b"r" * 16)
    await house.clock.advance(20 * 3600)
    await house.clock.run(idle.walk(fail))
    assert not await reports.claim(account, "memwal/notes", b"r" * 16)
    await house.clock.advance(5 * 3600)
    await house.clock.run(idle.walk(fail))
    assert await reports.claim(account, "memwal/notes", b"r" * 16)
