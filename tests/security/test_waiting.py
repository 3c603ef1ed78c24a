"""Requests that wait: what was taken back meanwhile counts for them, and no account waits in every place."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import httpx
import pytest
from border import Border, border, revocations_of, revoke
from signed_calls import Gateway, encode

from relayer.domain.operations import JobAccepted, Origin
from relayer.wire import codec as ulid
from relayer.wire.sealing import RootKeys

SECRET = "The spare key of the boathouse hangs behind the third oar."
MEMORIES = {"items": [{"text": SECRET}]}
EVENTS = {"accept": "text/event-stream"}


@pytest.fixture
async def at() -> AsyncIterator[Border]:
    async with border(rate_limits="off") as running:
        yield running


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 - nobody tells when a request has begun to wait
            await asyncio.sleep(0)


async def a_change(at: Border, thief: Gateway, key: str) -> httpx.Response:
    after = (await at.call("GET", "/v1/changes", key=key)).json()["next"]
    return await at.call("GET", f"/v1/changes?after={after}&wait_ms=20000", gateway=thief, key=key)


async def a_first_change(at: Border, thief: Gateway, key: str) -> httpx.Response:
    return await at.call("GET", "/v1/changes?wait_ms=20000", gateway=thief, key=key)


async def a_job(at: Border, thief: Gateway, key: str) -> httpx.Response:
    [opened] = at.relayer.context.namespaces.all()
    job = ulid.make(at.relayer.context.clock.now_ms(), secrets.token_bytes(10))
    origin = Origin(bytes(thief.identity.verify_key), secrets.token_bytes(16), 0, 2**53)
    await opened.log.append([JobAccepted(origin, job, "extract", ())])
    return await at.call("GET", f"/v1/jobs/{ulid.render(job)}?wait_ms=20000", gateway=thief, key=key)


@pytest.mark.parametrize("poll", [a_change, a_first_change, a_job])
async def test_a_poll_that_waits_is_refused_when_its_keys_are_taken_back_and_tells_nothing_written_since(
    at: Border, poll: Callable[[Border, Gateway, str], Awaitable[httpx.Response]]
) -> None:
    thief, key = at.gateway, at.memory_key()
    if poll is not a_first_change:
        assert (
            await at.call("POST", "/v1/memories", {"items": [{"text": "I row on Sundays"}]})
        ).status_code == 200
    waiting = asyncio.create_task(poll(at, thief, key))
    await until(lambda: len(at.relayer.context.polls) == 1)
    await revoke(at, thief)
    # The owner goes on with a key of its own: the same namespace and secret, another agent key.
    owner = replace(thief, agent="owner", namespaces=(thief.agent,))
    secret = thief.root.agent(thief.agent).namespace_secret(thief.agent, 1)
    own = owner.memory_key(at.fleet_key, namespace=thief.agent, secret=secret)
    stored = await at.call("POST", "/v1/memories", MEMORIES, gateway=owner, key=own)
    assert stored.status_code == 200, stored.text
    async with asyncio.timeout(10):
        answer = await waiting
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert SECRET not in answer.text


async def test_a_stream_on_another_relayer_ends_when_it_hears_of_the_revocation(at: Border) -> None:
    assert (
        await at.call("POST", "/v1/memories", {"items": [{"text": "I row on Sundays"}]})
    ).status_code == 200
    target = "/v1/changes"
    headers = at.gateway.headers("GET", at.authority, target, encode(None), memory_key=at.memory_key())
    async with at.http.stream("GET", at.url + target, headers=headers | EVENTS) as answer:
        lines = answer.aiter_lines()
        while "Sundays" not in await anext(lines):
            pass
        # What the other relayer wrote is read here within 15 s; nobody dropped the namespace for it.
        await at.relayer.accounts.revoke(revocations_of(at.gateway), account=at.gateway.root.account)
        owner = replace(at.gateway, agent="owner", namespaces=(at.gateway.agent,))
        secret = at.gateway.root.agent(at.gateway.agent).namespace_secret(at.gateway.agent, 1)
        own = owner.memory_key(at.fleet_key, namespace=at.gateway.agent, secret=secret)
        assert (await at.call("POST", "/v1/memories", MEMORIES, gateway=owner, key=own)).status_code == 200
        async with asyncio.timeout(10):
            rest = [line async for line in lines]
    assert SECRET not in "".join(rest)


async def test_a_newcomer_gets_a_stream_while_others_hold_all_of_them(at: Border) -> None:
    async def listen(gateway: Gateway, http: httpx.AsyncClient) -> httpx.Response:
        key = gateway.memory_key(at.fleet_key)
        headers = gateway.headers("GET", at.authority, "/v1/changes", encode(None), memory_key=key)
        opened = http.stream("GET", f"{at.url}/v1/changes", headers=headers | EVENTS)
        return await stack.enter_async_context(opened)

    async with AsyncExitStack() as stack:
        limits = httpx.Limits(max_connections=None)
        client = httpx.AsyncClient(trust_env=False, timeout=20, verify=False, limits=limits)
        http = await stack.enter_async_context(client)
        hoarders = [Gateway(root=RootKeys(secrets.token_bytes(32))) for _ in range(16)]
        for gateway in hoarders:
            assert (await at.call("POST", "/v1/memories", MEMORIES, gateway=gateway, key=gateway.memory_key(at.fleet_key))).status_code == 200  # fmt: skip
            for _ in range(16):
                assert (await listen(gateway, http)).status_code == 200
        newcomer = Gateway(root=RootKeys(secrets.token_bytes(32)))
        key = newcomer.memory_key(at.fleet_key)
        assert (await at.call("POST", "/v1/memories", MEMORIES, gateway=newcomer, key=key)).status_code == 200
        answer = await listen(newcomer, http)
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if SECRET in line:
                break
