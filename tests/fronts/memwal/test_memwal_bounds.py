"""What the front for MemWal's clients bounds: points, sizes, pages, times; and what a failure inside says."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from typing import Any

import pytest
from memwal_calls import MemWalCaller
from nacl.signing import SigningKey

from relayer.fronts.memwal.contract import MAX_RESULTS
from relayer.telemetry import configure
from relayer.testing.fake_clock import FakeClock
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.testing.local_relayer import local_relayer

STATS = "/api/stats"


@pytest.mark.row("MW-41", level="e2e")
@pytest.mark.parametrize(("route", "points"), [
    ("/api/remember", 5), ("/api/analyze", 5), ("/api/remember/bulk", 10), ("/api/remember/manual", 3),
    ("/api/restore", 3), ("/api/ask", 2), ("/api/recall", 1), ("/api/embed", 1), (STATS, 1),
])  # fmt: skip
async def test_every_route_costs_its_points_and_not_one_more(route: str, points: int) -> None:
    async with local_relayer(clock=FakeClock(), compat_limits="60/600/6000") as relayer:
        caller, passed = MemWalCaller(relayer), 0
        # A body of the wrong shape is charged for as well, and nothing is done for it.
        while (await caller.post(route, [])).status_code == 422:
            passed += 1
    assert passed == 60 // points


@pytest.mark.row("MW-41", level="e2e")
async def test_an_analyze_costs_a_point_more_for_each_fact() -> None:
    async with local_relayer(compat_limits="7/600/6000") as relayer:
        caller = MemWalCaller(relayer)
        text = "1. I moved to Porto for the new job.\n\n2. My daughter Lena is allergic to nuts."
        assert (await caller.post("/api/analyze", {"text": text})).json()["fact_count"] == 2
        assert (await caller.post(STATS)).status_code == 429


@pytest.mark.row("MW-41", level="e2e")
async def test_a_refused_request_costs_nothing_in_any_layer() -> None:
    clock = FakeClock()
    async with local_relayer(clock=clock, compat_limits="5/12/6000") as relayer:
        account = MemWalCaller(relayer)
        assert (await account.post("/api/remember", [])).status_code == 422
        for _ in range(5):
            refused = await account.post("/api/remember", [])
            assert (refused.status_code, refused.json()["layer"]) == (429, "delegate_key")
        # Were those charged to the account, its bucket would be empty now, and this had to wait for more than the key's.
        assert int(refused.headers["retry-after"]) == 60


@pytest.mark.row("MW-37", level="e2e")
async def test_a_nonce_is_remembered_as_long_as_its_stamp_could_count() -> None:
    clock = FakeClock()
    async with local_relayer(clock=clock) as relayer:
        caller = MemWalCaller(relayer)
        headers = caller.headers("POST", STATS, b"{}", ahead=299)
        assert (await caller.send("POST", STATS, b"{}", headers)).status_code == 200
        await clock.advance(590)
        # Somebody else's request of now, with which what is over is forgotten.
        assert (await MemWalCaller(relayer).post(STATS)).status_code == 200
        again = asyncio.create_task(caller.send("POST", STATS, b"{}", headers))
        while not again.done():
            # A refusal waits as long as every other.
            await clock.advance(0.1)
            await asyncio.sleep(0.01)
        assert again.result().status_code == 401


@pytest.mark.row("MW-37", level="e2e")
@pytest.mark.parametrize("name", ["x-account-id", "x-nonce", "x-timestamp", "x-signature", "x-public-key"])
async def test_a_header_that_comes_twice_is_refused(caller: MemWalCaller, name: str) -> None:
    headers = caller.headers("POST", STATS, b"{}")
    twice = [*headers.items(), (name, headers[name])]
    answer = await caller.relayer.http.post(caller.relayer.url + STATS, content=b"{}", headers=twice)
    assert answer.status_code == 401


@pytest.mark.row("MW-38", level="e2e")
async def test_null_is_as_good_as_absent_and_unknown_fields_are_let_be(caller: MemWalCaller) -> None:
    body = {"text": "Said.", "namespace": None, "idempotency_key": None, "colour": "red"}
    assert (await caller.post("/api/remember", body)).status_code == 202
    assert (await caller.post(STATS)).json()["memory_count"] == 1
    weights = {"semantic": None, "recency": None}
    assert await caller.recalled("said", limit=None, sort=None, scoring_weights=weights) == ["Said."]


@pytest.mark.row("MW-38", level="e2e")
@pytest.mark.parametrize("key", ["", "k" * 257])
async def test_a_key_of_idempotency_has_its_bounds(caller: MemWalCaller, key: str) -> None:
    answer = await caller.post("/api/remember", {"text": "a", "idempotency_key": key})
    assert answer.status_code == 400
    assert "idempotency_key" in answer.json()["error"]


@pytest.mark.row("MW-38", level="e2e")
async def test_pages_are_of_one_to_five_hundred_and_the_rest_is_cut_to_that(caller: MemWalCaller) -> None:
    for number in range(2):
        await caller.remember("One.", namespace=f"space-{number}")
    target = f"/v1/owners/{caller.account}/namespaces?limit="
    for asked, told in (("0", 1), ("1", 1), ("100000", 2)):
        page = (await caller.get(target + asked)).json()
        assert (len(page["namespaces"]), page["snapshot_version"]) == (told, 2)
    bad = {"updated_at": "seven", "namespace": "a", "snapshot_at": None}
    for cursor in ("!", "bm9uZQ", base64.urlsafe_b64encode(json.dumps(bad).encode()).decode().rstrip("=")):
        answer = await caller.get(f"{target}2&updated_after={cursor}")
        assert (answer.status_code, answer.json()) == (400, {"error": "invalid cursor"})


@pytest.mark.row("MW-38", level="e2e")
async def test_recent_orders_the_nearest_fifty_by_their_time(caller: MemWalCaller) -> None:
    for number in range(4):
        # Each is a little later than the one before.
        await caller.remember(f"The green boat, day {number}.")
        await asyncio.sleep(0.002)
    await caller.remember("Nothing of the kind: an invoice.", namespace="other")
    recent = await caller.recalled("green boat", sort="recent", limit=2)
    assert recent == ["The green boat, day 3.", "The green boat, day 2."]


@pytest.mark.row("MW-38", level="e2e")
async def test_ask_takes_five_memories_unless_more_are_wanted(caller: MemWalCaller) -> None:
    items = [{"text": f"The spare key is under the blue pot {number}."} for number in range(8)]
    await caller.post("/api/remember/bulk", {"items": items})
    asked = {"question": "Where is the spare key under the blue pot?"}
    assert (await caller.post("/api/ask", asked)).json()["memories_used"] == 5
    more = (await caller.post("/api/ask", asked | {"limit": MAX_RESULTS + 1})).json()
    assert more["memories_used"] == len(more["memories"]) == 8


@pytest.mark.row("MW-38", level="e2e")
async def test_restore_counts_what_is_searchable_already(caller: MemWalCaller) -> None:
    for number in range(3):
        await caller.remember(f"Note {number}.", namespace="notes")
    told = (await caller.post("/api/restore", {"namespace": "notes"})).json()
    assert told == {
        "restored": 0, "skipped": 3, "total": 3, "failed": 0, "truncated": False,
        "namespace": "notes", "owner": caller.account,
    }  # fmt: skip


@pytest.mark.row("MW-38", level="e2e")
async def test_an_event_is_dated_by_when_it_occurred(caller: MemWalCaller) -> None:
    body = {"text": "Yesterday I signed the lease for the flat.", "occurred_at": "2026-05-08T13:56:00+02:00"}
    assert (await caller.post("/api/analyze", body)).json()["fact_count"] == 1
    plain = (await caller.post("/api/recall", {"query": "when did I sign the lease"})).json()["results"]
    assert "lease" in plain[0]["text"]
    kept = caller.relayer.relayer.context.namespaces.all()
    occurred = [
        one.memory(state.record).record.occurred_at
        for one in kept
        for state in one.states()
        if one.memory(state.record)
    ]
    assert 1778241360000 in occurred


class _Broken(HashingEmbedder):
    broken = False

    async def embed(self, *given: Any, **more: Any) -> Any:
        if self.broken:
            raise RuntimeError("the canary died inside")
        return await super().embed(*given, **more)


@pytest.mark.row("MW-43", level="e2e")
async def test_what_fails_inside_is_a_500_with_the_requests_id_and_no_detail() -> None:
    embedder = _Broken()
    async with local_relayer(embedder=embedder) as relayer:
        embedder.broken, caller = True, MemWalCaller(relayer)
        raw = b'{"text":"a text"}'
        headers = caller.headers("POST", "/api/embed", raw) | {"x-request-id": "my-request"}
        answer = await caller.send("POST", "/api/embed", raw, headers)
    assert answer.status_code == 500
    assert answer.json() == {"error": "Internal server error (traceId: my-request)"}


@pytest.mark.row("MW-43", level="e2e")
async def test_no_header_of_a_refused_request_reaches_a_log() -> None:
    written = io.StringIO()
    configure("json", "debug", written)
    async with local_relayer() as relayer:
        caller, other = MemWalCaller(relayer), SigningKey.generate()
        headers = caller.headers("POST", STATS, b"{}")
        secrets = {
            "x-signature": other.sign(b"canary").signature.hex(),
            "x-seal-session": "canary-session",
            "x-delegate-key": bytes(other).hex(),
            "authorization": "Bearer canary-bearer",
        }
        answer = await caller.send("POST", STATS, b"{}", headers | secrets)
    assert answer.status_code == 401
    for secret in secrets.values():
        assert secret.removeprefix("Bearer ") not in written.getvalue()
