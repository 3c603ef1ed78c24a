"""An account that asks for as much as it can: others hardly notice, and it is told to come back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import numpy as np
from border import border
from doubles.set_clocks import StoppedClock
from signed_calls import Gateway

from relayer.http.routes import table
from relayer.testing.hashing_embedder import HashingEmbedder

MEMORY = {"items": [{"text": "The ferry to Kuessnacht leaves at a quarter past nine."}]}
QUESTION = {"query": "When does the ferry leave?"}
FLOOD = 90


class _OneByOne(HashingEmbedder):
    """An embedder that runs two calls at a time, as long as the test has it wait; ``done`` are the texts it began with."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self.longest = 0
        self.most = 0
        self.called = asyncio.Event()
        self.going = asyncio.Event()
        self.going.set()
        self._runs = asyncio.Semaphore(2)

    async def embed(self, texts: Sequence[str], *, query: bool = False, prompt: bool = False) -> np.ndarray:
        async with self._runs:
            self.called.set()
            self.most = max(self.most, len(texts))
            await self.going.wait()
            self.done.append(texts[0])
            self.longest = max(self.longest, *map(len, texts), 0)
            return await super().embed(texts, query=query, prompt=prompt)


async def test_a_flood_of_long_queries_of_one_account_does_not_hold_up_another_one_s_recall() -> None:
    embedder = _OneByOne()
    async with border(embedder=embedder, rate_limits="off") as at:
        flooding = Gateway()
        for gateway in (at.gateway, flooding):
            key = gateway.memory_key(at.fleet_key)
            assert (
                await at.call("POST", "/v1/memories", MEMORY, gateway=gateway, key=key)
            ).status_code == 200
        embedder.going.clear()
        embedder.done.clear()
        key = flooding.memory_key(at.fleet_key)
        flood = [
            asyncio.create_task(
                at.call("POST", "/v1/recall", {"query": f"flood {n} " * 4000}, gateway=flooding, key=key)
            )
            for n in range(FLOOD)
        ]
        # The answers that come at once are those to what exceeds the account's share.
        await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
        mine = asyncio.create_task(at.call("POST", "/v1/recall", QUESTION))
        for _ in range(3000):
            await asyncio.sleep(0)  # whatever may begin begins
        embedder.going.set()
        assert (await mine).status_code == 200
        assert embedder.done.index(QUESTION["query"]) <= 2
        answers = await asyncio.gather(*flood)
        codes = Counter(answer.status_code for answer in answers)
        assert codes[200] + codes[503] == FLOOD
        assert codes[503] >= 1
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers if answer.status_code == 503)
        assert embedder.longest <= 2048


async def test_a_recall_waits_for_one_text_of_its_own_account_s_capture_of_a_hundred_turns() -> None:
    embedder = _OneByOne()
    async with border(embedder=embedder, rate_limits="off") as at:
        assert (await at.call("POST", "/v1/memories", MEMORY)).status_code == 200
        turns = [
            {"role": "user", "text": f"I moved to flat number {n} in street {n} of Lisbon in May."}
            for n in range(100)
        ]
        embedder.going.clear()
        embedder.called.clear()
        embedder.done.clear()
        capture = asyncio.create_task(at.call("POST", "/v1/analyze", {"turns": turns}))
        await embedder.called.wait()
        mine = asyncio.create_task(at.call("POST", "/v1/recall", QUESTION))
        for _ in range(3000):
            await asyncio.sleep(0)  # whatever may begin begins
        embedder.going.set()
        assert (await mine).status_code == 200
        assert embedder.done.index(QUESTION["query"]) == 1
        assert (await capture).status_code == 200
        assert len(embedder.done) > 100
        assert embedder.most == 1


async def test_a_listing_of_namespaces_opens_only_what_its_page_shows() -> None:
    async with border(rate_limits="off") as at:
        names = {f"researcher/{number}" for number in range(30)}
        for name in sorted(names):
            body = {**MEMORY, "namespace": name}
            assert (await at.call("POST", "/v1/memories", body, key=False)).status_code == 200
        at.store.clear()
        first = await at.call("GET", "/v1/namespaces?limit=5", key=False)
        assert len(first.json()["namespaces"]) == 5
        assert at.store.count("get") <= 5
        found, cursor = set(), ""
        while cursor is not None:
            page = (await at.call("GET", f"/v1/namespaces?limit=7{cursor}", key=False)).json()
            found |= {item["name"] for item in page["namespaces"]}
            cursor = f"&cursor={page['next_cursor']}" if page.get("next_cursor") else None
        assert found == names


async def test_long_queries_cost_as_much_as_they_are_long() -> None:
    async with border(clock=StoppedClock()) as at:
        assert (await at.call("POST", "/v1/memories", MEMORY)).status_code == 200
        long = {"query": "ferry " * 10_000}
        answers = [await at.call("POST", "/v1/recall", long) for _ in range(40)]
        assert 15 < sum(answer.status_code == 200 for answer in answers) < 25
        assert answers[-1].json()["code"] == "rate_limited"


async def test_a_listing_costs_as_much_as_its_page_may_hold() -> None:
    async with border(clock=StoppedClock()) as at:
        assert (await at.call("POST", "/v1/memories", MEMORY)).status_code == 200
        whole = [await at.call("GET", "/v1/namespaces", key=False) for _ in range(30)]
        assert 15 < sum(answer.status_code == 200 for answer in whole) < 25
        assert whole[-1].json()["code"] == "rate_limited"


def test_nothing_that_is_signed_is_free() -> None:
    signed = [route for route in table() if route.right is not None]
    assert signed
    assert not [route.path for route in signed if route.cost < 1]
