"""An account that keeps all it can: it is stopped at its quota, told why, and can go on once it erased something.

Quotas hold across all relayers of a store, and no write waits until the account is counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from border import Border, border
from doubles.set_clocks import AheadClock
from signed_calls import Gateway

from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.ports import T, WrappedStore
from relayer.wire.signing import Right


def _items(first: int, count: int, words: int = 1) -> dict[str, object]:
    return {
        "items": [
            {"text": f"Cargo {number} is stored in hall {number}. " * words}
            for number in range(first, first + count)
        ]
    }


async def _remember(at: Border, body: dict[str, object], gateway: Gateway | None = None):
    gateway = gateway or at.gateway
    return await at.call("POST", "/v1/memories", body, gateway=gateway, key=gateway.memory_key(at.fleet_key))


async def _account(at: Border) -> dict[str, dict[str, int | None]]:
    answer = await at.call("GET", "/v1/account", key=False)
    assert answer.status_code == 200
    return answer.json()


@pytest.mark.parametrize("what", ["memories", "bytes"])
async def test_a_write_beyond_the_quota_is_refused_whole_and_names_the_limit(what: str) -> None:
    limit = {"memories": 25, "bytes": 60_000}[what]
    async with border(**{f"quota_{what}": limit}) as at:
        answers = [await _remember(at, _items(10 * number, 10, 40)) for number in range(5)]
        codes = [answer.status_code for answer in answers]
        assert codes[0] == 200
        assert codes[-1] == 409
        refused = answers[-1].json()
        assert refused["code"] == "quota_exceeded"
        assert f"{limit:,} {what}" in refused["detail"]
        assert f"--quota-{what}" in refused["detail"]
        account = await _account(at)
        assert account[what]["limit"] == limit
        assert account["memories"]["used"] <= 10 * codes.count(200)
        assert (await at.call("POST", "/v1/recall", {"query": "Where is cargo 3?"})).status_code == 200
        # Others are not concerned.
        assert (await _remember(at, _items(0, 10), Gateway())).status_code == 200


async def test_requests_that_come_at_once_do_not_find_the_same_room() -> None:
    async with border(quota_memories=50, quota_namespaces=3) as at:
        assert (await _remember(at, _items(0, 1))).status_code == 200
        bodies = [_items(10 * number, 10) for number in range(1, 21)]
        answers = await asyncio.gather(*(_remember(at, body) for body in bodies))
        assert Counter(answer.status_code for answer in answers)[200] == 4
        named = [
            at.call("POST", "/v1/memories", {**_items(0, 1), "namespace": f"researcher/{number}"}, key=False)
            for number in range(12)
        ]
        answers = await asyncio.gather(*named)
        assert Counter(answer.status_code for answer in answers)[200] <= 2
        refused = next(answer for answer in answers if answer.status_code == 409)
        assert "3 namespaces" in refused.json()["detail"]
        assert (await _account(at))["namespaces"]["used"] <= 3


async def test_what_is_there_counts_for_a_relayer_that_starts_later() -> None:
    store = MemoryStore(SystemClock())
    async with border(store) as first:
        gateway = first.gateway
        for number in range(4):
            assert (await _remember(first, _items(10 * number, 10, 20))).status_code == 200
        kept = (await _account(first))["bytes"]["used"]
    async with border(store, quota_bytes=kept // 2) as later:
        later.gateway = gateway
        assert (await _remember(later, _items(1000, 1))).json()["code"] == "quota_exceeded"
        # Forgetting and erasing are never refused: they are the way out.
        listed = (await later.call("GET", "/v1/memories")).json()["memories"]
        forgotten = await later.call("DELETE", f"/v1/memories/{listed[0]['id']}")
        assert forgotten.status_code == 200


async def test_an_erased_namespace_makes_room() -> None:
    clock = AheadClock()
    async with border(clock=clock, quota_namespaces=1) as at:
        assert (await _remember(at, _items(0, 1))).status_code == 200
        body = {**_items(0, 1), "namespace": "researcher/other"}
        assert (await at.call("POST", "/v1/memories", body, key=False)).json()["code"] == "quota_exceeded"
        person = Gateway(root=at.gateway.root, rights=tuple(Right))
        key = person.memory_key(at.fleet_key)
        dry = await at.call("POST", "/v1/namespaces/erase", {"dry_run": True}, gateway=person, key=key)
        erase = {"dry_run": False, "confirm": dry.json()["confirm"]}
        erased = await at.call("POST", "/v1/namespaces/erase", erase, gateway=person, key=key)
        assert erased.json()["erasure"]["state"] == "destroyed"
        # A refusal has the account compared with its store in the background, every quarter of a minute at most.
        clock.ahead = 16.0
        async with asyncio.timeout(90):
            while (await at.call("POST", "/v1/memories", body, key=False)).status_code != 200:
                pass


async def test_an_account_s_own_quota_counts_instead_of_the_usual_one(tmp_path: Path) -> None:
    large, small = Gateway(), Gateway()
    file = tmp_path / "quotas.toml"
    file.write_text(f'["{large.root.account}"]\nmemories = 0\n')
    async with border(quota_memories=5, quotas=file) as at:
        assert (await _remember(at, _items(0, 10), large)).status_code == 200
        assert (await _remember(at, _items(0, 10), small)).status_code == 409


class _StuckListing(WrappedStore):
    """A store that answers no listing while ``answers`` is not set."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.answers = asyncio.Event()
        self.answers.set()

    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:
        if operation == "list":
            await self.answers.wait()
        return await ask()


async def test_no_write_waits_until_its_account_is_counted() -> None:
    clock = AheadClock()
    store = _StuckListing(MemoryStore(clock))
    async with border(store, clock=clock) as first:
        gateway = first.gateway
        for number in range(12):
            body = {**_items(number, 1), "namespace": f"researcher/{number}"}
            assert (await first.call("POST", "/v1/memories", body, key=False)).status_code == 200
    async with border(store, clock=clock) as at:
        at.gateway = gateway
        body = {**_items(100, 1), "namespace": "researcher/0"}
        assert (await at.call("POST", "/v1/memories", body, key=False)).status_code == 200
        store.answers.clear()
        # Ten quiet minutes, and a day: the object by which the account is counted is old by then.
        for seconds in (601.0, 86_400.0):
            clock.ahead += seconds
            at.store.clear()
            body = {**_items(int(seconds), 1), "namespace": "researcher/0"}
            # The client gives up after half a minute.
            assert (await at.call("POST", "/v1/memories", body, key=False)).status_code == 200
            assert at.store.count("get", "acct/") <= 2
        store.answers.set()


async def test_another_relayer_of_the_store_adds_nothing_to_a_quota() -> None:
    store = MemoryStore(SystemClock())
    async with border(store, quota_memories=200) as one, border(store, quota_memories=200) as two:
        two.gateway = one.gateway
        codes: Counter[int] = Counter()
        for number in range(25):
            for at, namespace in ((one, "researcher/one"), (two, "researcher/two")):
                body = {**_items(10 * number, 10), "namespace": namespace}
                codes[(await at.call("POST", "/v1/memories", body, key=False)).status_code] += 1
        assert codes == {200: 20, 409: 30}
        assert {(await _account(at))["memories"]["used"] for at in (one, two)} == {200}


async def test_another_relayer_of_the_store_adds_no_namespaces_to_a_quota() -> None:
    store = MemoryStore(SystemClock())
    async with border(store, quota_namespaces=4) as one, border(store, quota_namespaces=4) as two:
        two.gateway = one.gateway
        made = [
            await at.call(
                "POST",
                "/v1/memories",
                {**_items(0, 1), "namespace": f"researcher/{name}-{number}"},
                key=False,
            )
            for number in range(4)
            for name, at in (("one", one), ("two", two))
        ]
        assert Counter(answer.status_code for answer in made) == {200: 4, 409: 4}
        again = await two.call(
            "POST", "/v1/memories", {**_items(1, 1), "namespace": "researcher/one-0"}, key=False
        )
        assert again.status_code == 200
