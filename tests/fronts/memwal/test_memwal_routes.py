"""What the front for MemWal's clients answers, route by route: shapes, statuses, orders, bounds, and deletion that deletes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from memwal_calls import MemWalCaller
from nacl.signing import SigningKey

from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.fronts.memwal import accounts, commands
from relayer.fronts.memwal.contract import Weights
from relayer.fronts.memwal.public import PACKAGE_ID
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.testing.local_relayer import LocalRelayer, local_relayer
from relayer.wire.fields import parse_time


@pytest.mark.row("MW-38", level="e2e")
async def test_what_is_open_says_what_clients_ask_before_their_first_call(relayer: LocalRelayer) -> None:
    version = (await relayer.http.get(relayer.url + "/version")).json()
    assert version["apiVersion"].startswith("1.")
    assert version["minSupportedSdk"] == {"typescript": "0.0.4", "python": "0.1.0", "mcp": "0.0.1"}
    assert all(version["featureFlags"].values())
    assert version["deprecations"] == []
    assert version["api_version"], "what gateways ask is answered as well"
    health = (await relayer.http.get(relayer.url + "/health")).json()
    assert health["status"] == "ok"
    assert health["write_ready"] is True
    assert health["relayerVersion"] == version["relayerVersion"] == health["version"]
    config = (await relayer.http.get(relayer.url + "/config")).json()
    assert config["network"] == "localnet"
    assert config["packageId"] == PACKAGE_ID
    assert len(PACKAGE_ID) == 66
    assert config["suiRpcUrl"] == relayer.url + "/sui"
    assert not {"suiGrpcUrl", "suiTransport"} & set(config)
    forwarded = await relayer.http.get(
        relayer.url + "/config", headers={"x-forwarded-proto": "https", "host": "memory.example.org"}
    )
    assert forwarded.json()["suiRpcUrl"] == "https://memory.example.org/sui"


@pytest.mark.row("MW-38", level="e2e")
async def test_the_package_is_at_its_first_version_and_no_other_is_known(relayer: LocalRelayer) -> None:
    async def ask(method: str, params: Any) -> dict[str, Any]:
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return dict((await relayer.http.post(relayer.url + "/sui", json=asked)).json())

    found = (await ask("sui_getObject", [PACKAGE_ID, {}]))["result"]["data"]
    assert (found["version"], found["owner"], found["objectId"]) == ("1", "Immutable", PACKAGE_ID)
    many = (await ask("sui_multiGetObjects", [[PACKAGE_ID, "0x2"], {}]))["result"]
    assert many[0]["data"] == found
    assert "data" not in many[1]
    assert (await ask("sui_dryRun", []))["error"]["code"] == -32601
    assert (await ask("sui_getObject", []))["error"]["code"] == -32602


@pytest.mark.row("MW-38", level="e2e")
async def test_a_request_is_known_by_its_clients_id_or_a_fresh_uuid(caller: MemWalCaller) -> None:
    raw = b"{}"
    for name in ("x-request-id", "x-correlation-id"):
        headers = caller.headers("POST", "/api/stats", raw) | {name: "my-id:7"}
        assert (await caller.send("POST", "/api/stats", raw, headers)).headers["x-request-id"] == "my-id:7"
    headers = caller.headers("POST", "/api/stats", raw) | {"x-request-id": "two words"}
    fresh = (await caller.send("POST", "/api/stats", raw, headers)).headers["x-request-id"]
    assert len(fresh) == 36


@pytest.mark.row("MW-38", level="e2e")
async def test_done_is_recallable_and_a_job_says_what_became_of_it(caller: MemWalCaller) -> None:
    answer = await caller.post("/api/remember", {"text": "The ferry leaves at nine."})
    assert (answer.status_code, answer.json()["status"]) == (202, "running")
    job = answer.json()["job_id"]
    assert set(job) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
    state = (await caller.get(f"/api/remember/{job}")).json()
    assert (state["status"], state["job_id"], state["owner"]) == ("done", job, caller.account)
    assert state["namespace"] == "default"
    found = (await caller.post("/api/recall", {"query": "when does the ferry leave?"})).json()
    assert found["total"] == len(found["results"]) == 1
    [hit] = found["results"]
    assert hit["blob_id"] == state["blob_id"] != job
    assert hit["text"] == "The ferry leaves at nine."
    assert 0 <= hit["distance"] <= 1
    assert hit["created_at"].endswith("Z")
    assert "score" not in hit


@pytest.mark.row("MW-38", level="e2e")
async def test_another_accounts_job_looks_like_none(caller: MemWalCaller) -> None:
    job = await caller.remember("Mine alone.")
    other = MemWalCaller(caller.relayer)
    await other.remember("Something.")
    for one in (job, "A" * 112, "no-such-job"):
        answer = await other.get(f"/api/remember/{one}")
        assert (answer.status_code, answer.json()) == (404, {"error": f"Job {one} not found"})
    blob = (await caller.get(f"/api/remember/{job}")).json()["blob_id"]
    assert (await caller.get(f"/api/remember/{blob}")).status_code == 404, "a blob is no job"
    assert (await other.post("/api/memories/forget", {"blob_id": blob})).json()["deleted"] == 0
    assert await caller.recalled("mine") == ["Mine alone."]


@pytest.mark.row("MW-38", level="e2e")
async def test_a_bulk_keeps_its_order_and_its_states_theirs(caller: MemWalCaller) -> None:
    items = [{"text": f"Fact number {number}.", "namespace": "ab"[number % 2]} for number in range(6)]
    answer = await caller.post("/api/remember/bulk", {"items": items})
    assert answer.status_code == 202
    jobs = answer.json()["job_ids"]
    assert answer.json()["total"] == len(set(jobs)) == 6
    asked = [jobs[4], "unknown", jobs[0], jobs[4]]
    states = (await caller.post("/api/remember/bulk/status", {"job_ids": asked})).json()["results"]
    assert [one["job_id"] for one in states] == asked
    assert [one["status"] for one in states] == ["done", "not_found", "done", "done"]
    for number, job in enumerate(jobs):
        assert (await caller.get(f"/api/remember/{job}")).json()["namespace"] == "ab"[number % 2]
    assert set(await caller.recalled("fact number", namespace="a")) == {
        f"Fact number {n}." for n in (0, 2, 4)
    }


@pytest.mark.row("MW-38", level="e2e")
async def test_one_idempotency_key_is_one_write(caller: MemWalCaller) -> None:
    first = await caller.remember("Said once.", idempotency_key="r1-abc")
    assert await caller.remember("Said once.", idempotency_key="r1-abc") == first
    assert await caller.remember("Said otherwise.", idempotency_key="r1-abc") == first
    assert await caller.remember("Said elsewhere.", namespace="b", idempotency_key="r1-abc") == first
    assert (await caller.post("/api/stats")).json()["memory_count"] == 1
    # What was deleted since is no answer: its client says it again, under the key that follows from the text.
    await caller.post("/api/forget")
    assert await caller.remember("Said once.", idempotency_key="r1-abc") != first
    blob = (await caller.post("/api/recall", {"query": "said"})).json()["results"][0]["blob_id"]
    assert (await caller.post("/api/memories/forget", {"blob_id": blob})).json()["deleted"] == 1
    await caller.remember("Said once.", idempotency_key="r1-abc")
    assert await caller.recalled("said") == ["Said once."]


@pytest.mark.row("MW-38", level="e2e")
async def test_an_idempotency_key_is_known_to_another_relayer_too() -> None:
    store, key = MemoryStore(SystemClock()), SigningKey.generate()
    jobs = []
    for text in ("Said once.", "Said otherwise."):
        async with local_relayer(store) as relayer:
            caller = MemWalCaller(relayer, key)
            jobs.append(await caller.remember(text, idempotency_key="r1-abc"))
            assert (await caller.post("/api/stats")).json()["memory_count"] == 1
    assert len(set(jobs)) == 1


@pytest.mark.row("MW-38", level="e2e")
@pytest.mark.parametrize(("target", "body", "status", "named"), [
    ("/api/remember", {"text": "  "}, 400, "text"),
    ("/api/remember", {"text": "x" * (1024 * 1024 + 1)}, 400, "text"),
    ("/api/remember", {"text": "x", "namespace": ""}, 400, "namespace"),
    ("/api/remember", {}, 422, "text"),
    ("/api/remember", {"text": 7}, 422, "text"),
    ("/api/remember/bulk", {"items": []}, 400, "items"),
    ("/api/remember/bulk", {"items": [{"text": "x"}] * 21}, 400, "items"),
    ("/api/remember/bulk", {"items": [{"text": "x"}, {"text": ""}]}, 400, "items.1.text"),
    ("/api/remember/bulk/status", {"job_ids": []}, 400, "job_ids"),
    ("/api/remember/bulk/status", {"job_ids": ["x"] * 21}, 400, "job_ids"),
    ("/api/remember/manual", {"encrypted_data": "no base64!", "vector": [1.0]}, 400, "encrypted_data"),
    ("/api/remember/manual", {"encrypted_data": "aGk=", "vector": []}, 400, "vector"),
    ("/api/remember/manual", {"encrypted_data": "aGk="}, 422, "vector"),
    ("/api/recall", {"query": ""}, 400, "query"),
    ("/api/recall", {"query": "x", "limit": -1}, 422, "limit"),
    ("/api/recall", {"query": "x", "sort": "newest"}, 422, "sort"),
    ("/api/recall", {"query": "x", "scoring_weights": {"semantic": 101}}, 400, "semantic"),
    ("/api/recall", {"query": "x", "scoring_weights": {"importance": -1}}, 400, "importance"),
    ("/api/recall", {"query": "x", "scoring_weights": {"recency": 1, "recency_half_life_days": 0}}, 400, "half_life"),
    ("/api/analyze", {"text": "x" * (64 * 1024 + 1)}, 400, "text"),
    ("/api/analyze", {"text": "I moved.", "occurred_at": "yesterday"}, 422, "occurred_at"),
    ("/api/ask", {"question": " "}, 400, "question"),
    ("/api/restore", {}, 422, "namespace"),
    ("/api/restore", {"namespace": ""}, 400, "namespace"),
])  # fmt: skip
async def test_bad_input_names_the_field(
    caller: MemWalCaller, target: str, body: dict[str, Any], status: int, named: str
) -> None:
    answer = await caller.post(target, body)
    assert answer.status_code == status, answer.text
    assert named in answer.json()["error"]


async def test_what_is_no_json_is_a_400_and_what_is_no_route_a_404(caller: MemWalCaller) -> None:
    raw = b"{not json"
    answer = await caller.send("POST", "/api/recall", raw, caller.headers("POST", "/api/recall", raw))
    assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert (await caller.post("/api/nothing")).status_code == 404
    assert (await caller.get("/api/recall")).status_code == 405


@pytest.mark.row("MW-38", level="e2e")
async def test_recall_is_best_first_clamped_and_cut_by_distance(caller: MemWalCaller) -> None:
    for number in range(3):
        await caller.post(
            "/api/remember/bulk",
            {"items": [{"text": f"Shelf {number} box {box} holds tools."} for box in range(20)]},
        )
    await caller.remember("The red kite needs a new string.")
    found = (await caller.post("/api/recall", {"query": "red kite string", "limit": 1000})).json()
    distances = [one["distance"] for one in found["results"]]
    assert found["total"] == len(distances) <= 100
    assert distances == sorted(distances)
    assert found["results"][0]["text"] == "The red kite needs a new string."
    near = distances[0] + 0.01
    cut = (await caller.post("/api/recall", {"query": "red kite string", "max_distance": near})).json()
    assert [one["text"] for one in cut["results"]] == ["The red kite needs a new string."]
    assert len(await caller.recalled("red kite string")) == 10
    assert await caller.recalled("red kite string", limit=0) == []
    assert await caller.recalled("red kite", namespace="nothing here") == []


@pytest.mark.row("MW-38", level="e2e")
async def test_weights_rank_within_the_nearest_and_sort_wins_over_them(caller: MemWalCaller) -> None:
    await caller.remember("The green boat is at the pier.")
    near = (await caller.post("/api/recall", {"query": "green boat pier"})).json()["results"]
    while caller.relayer.relayer.context.clock.now_ms() < parse_time(near[0]["created_at"]) + 5:
        await caller.post("/api/stats")
    await caller.remember("Somebody painted a boat.")
    near = (await caller.post("/api/recall", {"query": "green boat pier"})).json()["results"]
    assert near[0]["text"] == "The green boat is at the pier."
    plain = {"query": "green boat pier", "scoring_weights": {"semantic": 2}}
    assert (await caller.post("/api/recall", plain)).json()["results"] == near, (
        "no order of their own, no score"
    )
    weights = {"semantic": 0.1, "recency": 100, "recency_half_life_days": 1e-6}
    asked = {"query": "green boat pier", "scoring_weights": weights}
    ranked = (await caller.post("/api/recall", asked)).json()["results"]
    assert ranked[0]["text"] == "Somebody painted a boat."
    assert [one["score"] for one in ranked] == sorted((one["score"] for one in ranked), reverse=True)
    only = await caller.recalled("green boat pier", limit=1, scoring_weights=weights)
    assert only == ["The green boat is at the pier."], "the nearest are chosen first"
    relevance = (await caller.post("/api/recall", asked | {"sort": "relevance"})).json()["results"]
    assert relevance == near
    recent = await caller.recalled("green boat pier", sort="recent", limit=1, scoring_weights=weights)
    assert recent == ["Somebody painted a boat."]


@pytest.mark.row("MW-38")
def test_a_score_is_meaning_newness_and_importance_each_by_its_weight() -> None:
    weights = Weights(semantic=0.5, recency=2.0, recency_half_life_days=10.0, importance=0.4)
    assert weights.score(0.2, 20.0, 0.5) == pytest.approx(0.5 * 0.8 + 2.0 * 0.25 + 0.4 * 0.5)
    assert Weights(recency=1.0).score(1.0, 30.0, 0.5) == pytest.approx(0.5), (
        "a month halves, if nothing is said"
    )


@pytest.mark.row("MW-38", level="e2e")
async def test_a_recall_that_may_take_no_time_says_at_which_step_it_was(caller: MemWalCaller) -> None:
    await caller.remember("Something to look for.")
    answer = await caller.post("/api/recall", {"query": "something", "deadline_ms": 0})
    assert answer.status_code == 504
    told = answer.json()
    assert told["code"] == "RECALL_TIMEOUT"
    assert told["step"] in {"auth", "embed", "vector_search"}


@pytest.mark.row("MW-38", level="e2e")
async def test_analyze_stores_facts_each_as_a_job_and_anchors_them(caller: MemWalCaller) -> None:
    text = (
        "1. I moved to Porto for the new job.\n\n2. ok\n\n3. My daughter Lena is allergic to nuts.\n\n"
        "4. She starts school in May."
    )
    answer = await caller.post("/api/analyze", {"text": text, "occurred_at": "2026-05-08T13:56:00+02:00"})
    assert answer.status_code == 202
    told = answer.json()
    assert told["fact_count"] == len(told["facts"]) == len(told["job_ids"]) == 3
    assert [one["id"] for one in told["facts"]] == told["job_ids"] == [one["job_id"] for one in told["facts"]]
    assert (told["status"], told["owner"]) == ("pending", caller.account)
    for job in told["job_ids"]:
        assert (await caller.get(f"/api/remember/{job}")).json()["status"] == "done"
    assert "Lena" in (await caller.recalled("who is allergic to nuts?"))[0]
    nothing = (await caller.post("/api/analyze", {"text": "ok thanks"})).json()
    assert (nothing["facts"], nothing["job_ids"], nothing["fact_count"]) == ([], [], 0)


@pytest.mark.row("MW-38", level="e2e")
async def test_ask_without_a_model_quotes_what_is_known(caller: MemWalCaller) -> None:
    await caller.remember("The spare key is under the blue pot.")
    told = (await caller.post("/api/ask", {"question": "Where is the spare key?"})).json()
    assert "The spare key is under the blue pot." in told["answer"]
    assert told["memories_used"] == len(told["memories"]) == 1
    assert {"blob_id", "text", "distance"} <= set(told["memories"][0])
    nothing = (await caller.post("/api/ask", {"question": "Where?", "namespace": "empty"})).json()
    assert (nothing["memories_used"], nothing["memories"]) == (0, [])


@pytest.mark.row("MW-49", level="e2e")
@pytest.mark.row("MW-38", level="e2e")
async def test_what_a_client_sealed_is_found_by_its_vector_and_read_by_nobody(caller: MemWalCaller) -> None:
    async def keep(data: bytes, vector: list[float]) -> dict[str, Any]:
        sent = {"encrypted_data": base64.b64encode(data).decode(), "vector": vector}
        answer = await caller.post("/api/remember/manual", sent)
        assert answer.status_code == 200
        assert set(answer.json()) == {"id", "blob_id", "owner", "namespace"}
        return dict(answer.json())

    near, far = await keep(b"\x00sealed near", [1, 0, 0]), await keep(b"sealed far", [0, 1, 0])
    await keep(b"another length", [1.0, 0.0])
    answer = (await caller.post("/api/recall/manual", {"vector": [0.9, 0.1, 0]})).json()
    assert [one["blob_id"] for one in answer["results"]] == [near["blob_id"], far["blob_id"]]
    assert answer["total"] == 2
    assert answer["results"][0]["distance"] == pytest.approx(1 - 0.9 / 0.82**0.5, abs=1e-5)
    assert set(answer["results"][0]) == {"blob_id", "distance", "created_at", "importance"}
    first = (await caller.post("/api/recall/manual", {"vector": [0.9, 0.1, 0], "limit": 1})).json()
    assert [one["blob_id"] for one in first["results"]] == [near["blob_id"]]
    assert await caller.recalled("sealed near") == [], "no text of anybody"
    relayer = caller.relayer
    blob = await relayer.http.get(f"{relayer.url}/v1/blobs/{near['blob_id']}")
    assert (blob.status_code, blob.content) == (200, b"\x00sealed near")
    job = await caller.remember("A memory in clear.")
    clear = (await caller.get(f"/api/remember/{job}")).json()["blob_id"]
    assert (await relayer.http.get(f"{relayer.url}/v1/blobs/{clear}")).status_code == 404
    elsewhere = await caller.post("/api/remember/manual", {"blob_id": "walrus-7", "vector": [0, 0, 1]})
    assert elsewhere.json()["blob_id"] == "walrus-7"
    assert (await caller.post("/api/stats")).json()["memory_count"] == 5
    assert (await caller.post("/api/forget")).json()["deleted"] == 5
    assert (await caller.post("/api/recall/manual", {"vector": [1, 0, 0]})).json()["results"] == []
    assert (await relayer.http.get(f"{relayer.url}/v1/blobs/{near['blob_id']}")).status_code == 404


@pytest.mark.row("MW-38", level="e2e")
async def test_forget_destroys_a_namespace_and_no_other_one(caller: MemWalCaller) -> None:
    job = await caller.remember("Gone for good, zanzibar.", namespace="one")
    await caller.remember("Kept for good.", namespace="two")
    assert (await caller.post("/api/forget", {"namespace": "one"})).json() == {
        "deleted": 1, "namespace": "one", "owner": caller.account,
    }  # fmt: skip
    assert await caller.recalled("zanzibar", namespace="one") == []
    assert (await caller.get(f"/api/remember/{job}")).status_code == 404
    assert (await caller.post("/api/stats", {"namespace": "one"})).json()["memory_count"] == 0
    assert await caller.recalled("kept", namespace="two") == ["Kept for good."]
    assert (await caller.post("/api/clear-namespace", {"namespace": "never"})).json()["deleted"] == 0
    await caller.remember("Anew.", namespace="one")
    assert await caller.recalled("anew", namespace="one") == ["Anew."]


@pytest.mark.row("MW-38", level="e2e")
async def test_listing_lists_and_a_single_memory_can_be_erased(caller: MemWalCaller) -> None:
    for text in ("First of all.", "Second of all.", "Third of all."):
        await caller.remember(text)
    page = (await caller.post("/api/list", {"limit": 2})).json()
    assert [one["text"] for one in page["memories"]] == ["Third of all.", "Second of all."]
    assert page["total"] == 3
    rest = (await caller.post("/api/list", {"cursor": page["next_cursor"]})).json()
    assert ([one["text"] for one in rest["memories"]], rest["next_cursor"]) == (["First of all."], None)
    blobs = [one["blob_id"] for one in page["memories"]]
    answer = await caller.post("/api/memories/forget", {"blob_ids": [*blobs, blobs[0], "nothing"]})
    assert answer.json()["deleted"] == 2
    assert await caller.recalled("of all") == ["First of all."]
    restored = (await caller.post("/api/restore", {"namespace": "default"})).json()
    assert (restored["restored"], restored["skipped"], restored["total"], restored["truncated"]) == (
        0,
        1,
        1,
        False,
    )


@pytest.mark.row("MW-38", level="e2e")
async def test_namespaces_are_any_text_and_are_listed_as_they_were_given(caller: MemWalCaller) -> None:
    given = ["default", "Default", "proj/Über uns", "_h_x_" + "0" * 64, " ", "n" * 512]
    for name in given:
        await caller.remember(f"In {name[:9]}.", namespace=name)
    target = f"/v1/owners/{caller.account}/namespaces"
    listed = (await caller.get(target)).json()
    assert {one["name"] for one in listed["namespaces"]} == set(given)
    assert {one["memory_count"] for one in listed["namespaces"]} == {1}
    assert (listed["has_more"], listed["snapshot_version"]) == (False, 2)
    for name in given:
        assert await caller.recalled("in", namespace=name) == [f"In {name[:9]}."]
    assert (await caller.post("/api/remember", {"text": "x", "namespace": "n" * 513})).status_code == 400


@pytest.mark.row("MW-38", level="e2e")
async def test_a_walk_over_pages_sees_each_once_and_its_last_cursor_goes_on(caller: MemWalCaller) -> None:
    for number in range(5):
        await caller.remember("One.", namespace=f"space-{number}")
    target, seen, cursor = f"/v1/owners/{caller.account}/namespaces?limit=2", [], ""
    while True:
        page = (await caller.get(target + (f"&updated_after={cursor}" if cursor else ""))).json()
        seen += [one["name"] for one in page["namespaces"]]
        cursor = page["next_cursor"]
        assert cursor
        mark = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        assert set(mark) == {"updated_at", "namespace", "snapshot_at"}
        if not page["has_more"]:
            break
        await caller.remember("Two.", namespace="space-0")
    assert seen == [f"space-{number}" for number in range(5)]
    later = (await caller.get(f"{target}&updated_after={cursor}")).json()
    assert [one["name"] for one in later["namespaces"]] == ["space-0"]
    assert (await caller.get(target + "&updated_after=bm9uZQ")).json() == {"error": "invalid cursor"}
    assert (await caller.get(target.replace("limit=2", "limit=x"))).status_code == 400


@pytest.mark.row("MW-38", level="e2e")
async def test_an_owners_listings_are_its_own(caller: MemWalCaller) -> None:
    await caller.remember("One.")
    other = MemWalCaller(caller.relayer)
    for what in ("namespaces", "memories", "agents"):
        answer = await other.get(f"/v1/owners/{caller.account}/{what}")
        assert (answer.status_code, answer.json()) == (403, {"error": "owner mismatch"})
    owned = (await caller.get(f"/v1/owners/{caller.account}/memories")).json()
    [memory] = owned["memories"]
    assert memory["status"] == "active"
    assert memory["size"] > 0
    [agent] = (await caller.get(f"/v1/owners/{caller.account}/agents")).json()["agents"]
    assert agent["sui_address"] == caller.account


@pytest.mark.row("MW-38", level="e2e")
async def test_a_full_quota_is_a_402_in_megabytes() -> None:
    async with local_relayer(quota_bytes=4000) as relayer:
        caller = MemWalCaller(relayer)
        await caller.remember("A little.")
        answer = await caller.post("/api/remember", {"text": "much " * 2000})
        assert answer.status_code == 402
        assert answer.json()["error"] == "Storage quota exceeded: 0.0 MB used of 0.0 MB allowed"


@pytest.mark.row("MW-38", level="e2e")
async def test_while_the_embedder_is_away_a_job_is_not_done_and_asking_about_it_is_held() -> None:
    embedder = HashingEmbedder()
    async with local_relayer(embedder=embedder) as relayer:
        caller = MemWalCaller(relayer)
        await caller.remember("There before.")
        embedder.down = True
        job = await caller.remember("Said meanwhile.")
        answer = await caller.get(f"/api/remember/{job}")
        state = answer.json()
        assert (state["status"], bool(state["blob_id"])) == ("uploaded", True)
        assert "embedding" in state["error"]
        assert 1.9 <= answer.elapsed.total_seconds() <= 6
        refused = await caller.post("/api/embed", {"text": "x"})
        assert refused.status_code == 503
        assert "traceId: " + refused.headers["x-request-id"] in refused.json()["error"]
        assert refused.headers["retry-after"]
        embedder.down = False
    assert (await _embedding_of(HashingEmbedder())) == 64


async def _embedding_of(embedder: HashingEmbedder) -> int:
    async with local_relayer(embedder=embedder) as relayer:
        return len((await MemWalCaller(relayer).post("/api/embed", {"text": "x"})).json()["vector"])


# ``memrelay account``: what its list of commands says.
def test_the_list_of_commands_says_what_their_functions_say() -> None:
    summaries = {name: getattr(accounts, name).__doc__.partition("\n")[0] for name in commands.COMMANDS}
    assert summaries == commands.COMMANDS
