"""A relayer whose clock is set forwards and back, by minutes and by hours, while clients work: what is refused, and what is not repeated."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from memwal_calls import MemWalCaller
from plugin_site import PATIENCE, PluginSite, recall
from signed_calls import encode

from relayer.adapters.system import SystemClock
from relayer.testing.local_relayer import LocalRelayer, local_relayer, threaded_relayer
from relayer.wire import codec as base64url

Request = tuple[str, bytes, dict[str, str]]
TEXT = "The spare key hangs behind the clock."
MINUTES, HOURS = 10 * 60, 3 * 3600
JUMPS = {
    "minutes forwards": MINUTES,
    "minutes back": -MINUTES,
    "hours forwards": HOURS,
    "hours back": -HOURS,
}


class JumpingClock(SystemClock):
    """The machine's clock, its time of day off by what a test says."""

    ahead = 0.0
    jumps_after: int | None = None
    """The number of readings after which the clock is put right; None if that does not happen by itself."""

    def now_ms(self) -> int:
        if self.jumps_after is not None:
            self.jumps_after -= 1
            if self.jumps_after < 0:
                self.ahead, self.jumps_after = 0.0, None
        return super().now_ms() + int(self.ahead * 1000)


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
async def relayer(clock: JumpingClock) -> AsyncIterator[LocalRelayer]:
    async with local_relayer(clock=clock) as running:
        yield running


async def native(relayer: LocalRelayer, target: str, body: dict[str, object], *, at: float) -> Request:
    """A request as a gateway signs it whose clock is ``at`` seconds ahead of the machine's."""
    raw, gateway = encode(body), relayer.gateway
    now = SystemClock().now_ms() // 1000 + int(at)
    keys = (await relayer.http.get(f"{relayer.url}/v1/keys")).json()["keys"]
    key = gateway.memory_key(base64url.decode(keys[0]["public_key"]), not_after=now + 600)
    certificate = gateway.certificate(not_before=now - 3600, not_after=now + 3600)
    headers = gateway.headers(
        "POST", relayer.authority, target, raw, memory_key=key, certificate=certificate, created=now
    )
    return target, raw, headers


async def memwal(caller: MemWalCaller, body: dict[str, object], *, at: float) -> Request:
    """A recall as a client of MemWal signs it whose clock is ``at`` seconds ahead of the machine's."""
    raw = json.dumps(body).encode()
    ahead = at - (caller.relayer.relayer.context.clock.now_ms() - SystemClock().now_ms()) / 1000
    return "/api/recall", raw, caller.headers("POST", "/api/recall", raw, ahead=round(ahead))


async def sent(relayer: LocalRelayer, request: Request) -> httpx.Response:
    target, raw, headers = request
    return await relayer.http.post(relayer.url + target, content=raw, headers=headers)


@pytest.mark.parametrize("jump", JUMPS.values(), ids=JUMPS)
@pytest.mark.parametrize("first", ["right", "wrong"])
async def test_a_read_is_answered_once_whatever_its_clock_does(
    relayer: LocalRelayer, clock: JumpingClock, jump: float, first: str
) -> None:
    """The clock is set, others read meanwhile, and it is set again to the time at which the read was answered."""
    at, other = (0.0, jump) if first == "right" else (jump, 0.0)
    caller = MemWalCaller(relayer)
    clock.ahead = at
    reads = [
        await native(relayer, "/v1/recall", {"query": "key"}, at=at),
        await memwal(caller, {"query": "key"}, at=at),
    ]
    assert [(await sent(relayer, one)).status_code for one in reads] == [200, 200]
    for ahead in (other, at):
        clock.ahead = ahead
        for late in range(0, 900, 90):
            # Minutes pass, so that what is over is forgotten; both kinds of clients go on.
            clock.ahead = ahead + late
            await sent(relayer, await native(relayer, "/v1/recall", {"query": "other"}, at=clock.ahead))
            await sent(relayer, await memwal(caller, {"query": "other"}, at=clock.ahead))
        clock.ahead = ahead
        assert 200 not in [(await sent(relayer, one)).status_code for one in reads]


@pytest.mark.parametrize("jump", JUMPS.values(), ids=JUMPS)
async def test_a_write_is_stored_once_whatever_its_clock_does(
    relayer: LocalRelayer, clock: JumpingClock, jump: float
) -> None:
    write = await native(relayer, "/v1/memories", {"items": [{"text": TEXT}]}, at=0)
    assert (await sent(relayer, write)).status_code == 200
    for ahead in (jump, 0.0):
        clock.ahead = ahead
        more = await native(relayer, "/v1/memories", {"items": [{"text": f"At {ahead}."}]}, at=ahead)
        await sent(relayer, more)
        await sent(relayer, write)
    recall = await native(relayer, "/v1/recall", {"query": TEXT, "floor": 0, "limit": 50}, at=0)
    answer = await sent(relayer, recall)
    assert answer.text.count(TEXT) == 1


async def test_a_capture_during_which_the_clock_is_put_right_is_stored_or_refused_as_a_whole(
    relayer: LocalRelayer, clock: JumpingClock
) -> None:
    """The clock is hours behind and is put right at each of its readings in turn; what failed is then sent again."""
    refused = 0
    for reading in range(40):
        turns = [{"role": "user", "text": f"I keep the key of box {reading} in drawer {reading + 100}."}]
        body: dict[str, object] = {"turns": turns, "idempotency_key": f"turn-{reading}"}
        clock.ahead = -HOURS
        capture = await native(relayer, "/v1/analyze", body, at=-HOURS)
        clock.jumps_after = reading
        answer = await sent(relayer, capture)
        clock.ahead, clock.jumps_after = 0.0, None
        if not answer.is_success:
            refused += 1
            answer = await sent(relayer, await native(relayer, "/v1/analyze", body, at=0))
        assert [one["status"] for one in answer.json()["memories"]] == ["stored"], answer.text
    assert refused


@pytest.mark.parametrize("back", [0, 60, 180])
async def test_a_clock_that_is_put_right_by_minutes_refuses_nothing(
    relayer: LocalRelayer, clock: JumpingClock, back: int
) -> None:
    for late in range(0, 900, 30):
        clock.ahead = late
        assert (
            await sent(relayer, await native(relayer, "/v1/recall", {"query": "key"}, at=late))
        ).is_success
    clock.ahead -= back
    read = await native(relayer, "/v1/recall", {"query": "key"}, at=clock.ahead)
    assert (await sent(relayer, read)).status_code == 200


async def test_a_clock_that_is_set_back_by_hours_says_how_long_reads_are_refused(
    relayer: LocalRelayer, clock: JumpingClock
) -> None:
    for late in range(0, 900, 30):
        clock.ahead = HOURS + late
        await sent(relayer, await native(relayer, "/v1/recall", {"query": "key"}, at=clock.ahead))
    clock.ahead = 0
    refused = await sent(relayer, await native(relayer, "/v1/recall", {"query": "key"}, at=0))
    assert (refused.status_code, refused.json()["code"]) == (503, "queue_full")
    wait = int(refused.headers["retry-after"])
    assert HOURS < wait < HOURS + 900
    clock.ahead = wait
    later = await native(relayer, "/v1/recall", {"query": "key"}, at=wait)
    assert (await sent(relayer, later)).status_code == 200


@pytest.mark.parametrize("jump", JUMPS.values(), ids=JUMPS)
async def test_memwals_clients_are_told_of_the_clock_and_served_when_it_is_right_again(
    relayer: LocalRelayer, clock: JumpingClock, jump: float
) -> None:
    caller = MemWalCaller(relayer)
    assert (await sent(relayer, await memwal(caller, {"query": "key"}, at=0))).status_code == 200
    clock.ahead = jump
    refused = await sent(relayer, await memwal(caller, {"query": "key"}, at=0))
    assert refused.headers["x-auth-error"] == "ERR_TIMESTAMP_OUT_OF_BOUNDS"
    clock.ahead = 0
    assert (await sent(relayer, await memwal(caller, {"query": "key"}, at=0))).status_code == 200


@pytest.mark.parametrize("jump", [HOURS, -HOURS])
def test_the_plugin_recalls_and_stores_through_a_jump_and_back(
    tmp_path: Path, clock: JumpingClock, jump: float
) -> None:
    with (
        threaded_relayer(lambda: local_relayer(clock=clock, real_model=True)) as relayer,
        PluginSite(tmp_path, relayer.url, os.urandom(32).hex()) as gateway,
    ):
        plugin = gateway.plugin()
        gateway.command("remember", "The key of box one hangs behind the clock.")
        clock.ahead = jump
        answer = recall(plugin, "where does the key of box one hang?")
        assert "box one" in answer.text, (answer.status, answer.detail)
        # A store whose clock says something else takes no writes; what was said waits at the gateway.
        said = [{"role": "user", "content": "I keep the key of box two under the mat."}]
        plugin.after_turn([*said, {"role": "assistant", "content": "Noted."}])
        assert not plugin.flush(2)
        clock.ahead = 0.0
        assert plugin.flush(PATIENCE)
        answer = recall(plugin, "where do I keep the key of box two?")
        assert "under the mat" in answer.text, (answer.status, answer.detail)
