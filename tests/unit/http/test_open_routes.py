"""The open routes, the document, the metrics: what operators and clients read first."""

from __future__ import annotations

import base64

import pytest
from border import Border, border
from doubles.faulty_store import FaultyStore
from doubles.set_clocks import AheadClock

from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.errors import StoreError, StoreFull, StoreMisconfigured, StoreUnavailable
from relayer.http.problems import CODES
from relayer.http.routes import table
from relayer.testing.local_relayer import RecordingStore
from relayer.wire import codec as base64url
from relayer.wire.sealed_keys import FleetKey, FleetList
from relayer.wire.service import KeysResponse, VersionResponse


async def test_health_and_version_say_what_runs(at: Border) -> None:
    assert (await at.http.get(f"{at.url}/health")).json()["status"] == "ok"
    version = VersionResponse.model_validate((await at.http.get(f"{at.url}/version")).json())
    assert (version.api_version, version.model, version.dimension) == ("1", "hashing", 64)
    assert (await at.http.head(f"{at.url}/health")).status_code == 200


async def test_ready_says_no_while_draining_and_when_the_store_or_the_clock_fails() -> None:
    clock = AheadClock()
    store = FaultyStore(MemoryStore(SystemClock()), clock=clock, seed=1)
    async with border(store, clock) as at:
        answer = await at.http.get(f"{at.url}/ready")
        assert (answer.status_code, answer.json()["ready"]) == (200, True)

        clock.ahead_ms = 31_000
        checks = await at.relayer.readiness._probe()
        assert "set this machine's" in checks["clock"]
        store.down = True
        state = (await at.relayer.readiness._probe())["store"]
        assert state == f"unavailable: {StoreUnavailable.fix}"
        store.down, clock.ahead_ms = False, 0
        await store.delete("relayer")
        assert (await at.relayer.readiness._probe())["relayer_key"] != "ok"

        at.relayer.readiness.drain()
        answer = await at.http.get(f"{at.url}/ready")
        assert (answer.status_code, answer.json()["checks"]["accepting"]) == (503, "draining")


class _ReadOnly(RecordingStore):
    refusal: StoreError | None = None

    async def create(self, key, data):
        if self.refusal:
            raise self.refusal
        return await super().create(key, data)


async def test_a_replica_that_may_not_write_any_more_is_not_ready_and_says_why_without_addresses() -> None:
    store = _ReadOnly(MemoryStore(SystemClock()))
    async with border(store) as at:
        store.refusal = StoreMisconfigured(
            "s3://private at https://store.internal: no", code="access_denied", fix="grant it"
        )
        answer = await at.http.get(f"{at.url}/ready")
        assert (answer.status_code, answer.json()["checks"]["store"]) == (503, "access_denied: grant it")
        assert "internal" not in answer.text
        store.refusal = None
        assert (await at.relayer.readiness._probe())["store"] == "ok"


async def test_a_full_store_is_told_while_reads_go_on() -> None:
    store = _ReadOnly(MemoryStore(SystemClock()))
    async with border(store) as at:
        store.refusal = StoreFull("/private: no room")
        answer = await at.http.get(f"{at.url}/ready")
        document = answer.json()
        assert (answer.status_code, document["degraded"]) == (200, True)
        assert document["checks"]["room"] == f"full, nothing can be stored: {StoreFull.fix}"
        store.refusal = None
        at.relayer.readiness._rights_at = float("-inf")
        await at.relayer.readiness._probe()
        assert (await at.relayer.readiness.check()).checks["room"] == "ok"


async def test_balancers_that_ask_often_do_not_wear_out_the_store(at: Border) -> None:
    at.store.clear()
    for _ in range(20):
        await at.http.get(f"{at.url}/ready")
    assert at.store.count("get") <= 2


async def test_the_published_keys_verify_as_the_plugin_verifies_them(at: Border) -> None:
    answer = KeysResponse.model_validate((await at.http.get(f"{at.url}/v1/keys")).json())
    keys = tuple(FleetKey(key.day, base64url.decode(key.public_key), key.not_after) for key in answer.keys)
    identity, signature = base64url.decode(answer.identity), base64url.decode(answer.signature)
    FleetList(identity, answer.issued_at, keys, signature).verify(at.gateway.now)


async def test_the_document_describes_every_route_with_its_schemas(at: Border) -> None:
    document = (await at.http.get(f"{at.url}/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    served = {(route.path, route.method.lower()) for route in table()}
    described = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert described == served
    assert {"/v1/recall", "/v1/analyze", "/v1/keys", "/ready"} <= document["paths"].keys()
    names = document["components"]["schemas"].keys()
    for reference in _references(document):
        kind, name = reference.removeprefix("#/components/").split("/")
        assert name in document["components"][kind], reference
    assert {"RecallRequest", "RecallResponse", "Problem"} <= set(names)
    signed = document["paths"]["/v1/recall"]["post"]["parameters"]
    schemes, *_ = document["paths"]["/v1/recall"]["post"]["security"]
    headers = {document["components"]["securitySchemes"][scheme]["name"] for scheme in schemes}
    assert {"memory-certificate", "memory-signature", "content-digest", "memory-key", "x-deadline-ms"} <= {
        *headers,
        *(parameter["name"] for parameter in signed),
    }
    recall, keys = document["paths"]["/v1/recall"]["post"], document["paths"]["/v1/keys"]["get"]
    assert "memory-proof" in recall["responses"]["200"]["headers"]
    assert "headers" not in keys["responses"]["200"]
    assert set(recall["requestBody"]["content"]) == {"application/json", "application/memrelay-sealed"}
    revoke = document["paths"]["/v1/account/revocations"]["put"]
    assert set(revoke["requestBody"]["content"]) == {"application/json"}
    described_codes = "".join(one["description"] for one in document["components"]["responses"].values())
    assert all(f"`{code}`" in described_codes for code in CODES)


def _references(node: object) -> list[str]:
    if isinstance(node, dict):
        found = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return found + [reference for value in node.values() for reference in _references(value)]
    if isinstance(node, list):
        return [reference for value in node for reference in _references(value)]
    return []


@pytest.mark.row("MW-43", level="e2e")
async def test_metrics_count_by_route_status_and_code_and_name_nobody(at: Border) -> None:
    await at.call("POST", "/v1/memories", {"items": [{"text": "the canary sings"}]})
    await at.call("GET", "/v1/memories/secret-canary-id")
    await at.http.get(f"{at.url}/secret-canary-path")
    await at.http.request("CANARY", f"{at.url}/v1/recall")
    text = (await at.http.get(f"{at.url}/metrics")).text
    expected = 'memrelay_http_requests_total{code="ok",method="POST",route="/v1/memories",status="200"} 1.0'
    assert expected in text
    assert 'code="not_found",method="GET",route="/v1/memories/{id}",status="404"} 1.0' in text
    assert 'code="not_found",method="GET",route="-",status="404"} 1.0' in text
    assert "memrelay_open_namespaces 1.0" in text
    assert "process_resident_memory_bytes" in text
    for name in (
        "canary",
        "CANARY",
        at.gateway.root.account,
        at.gateway.agent,
        base64.b16encode(b"x").decode() * 9,
    ):
        assert name not in text


async def test_metrics_show_the_store_the_checks_and_what_runs(at: Border) -> None:
    await at.call("POST", "/v1/memories", {"items": [{"text": "the canary sings"}]})
    at.relayer.readiness.drain()
    text = (await at.http.get(f"{at.url}/metrics")).text
    for line in (
        'memrelay_store_requests_total{call="create",end="created"}',
        'memrelay_store_seconds_count{call="get"}',
        'memrelay_ready_check{check="store"} 1.0',
        'memrelay_ready_check{check="accepting"} 0.0',
        'memrelay_build_info{extractor="statements',
        "memrelay_namespace_openings_total 1.0",
        "memrelay_http_requests_under_way 1.0",
        "memrelay_store_free_bytes ",
    ):
        assert line in text, line


@pytest.mark.row("MW-43", level="e2e")
async def test_every_answer_has_an_id_is_not_stored_and_names_no_library(at: Border) -> None:
    for target in ("/health", "/nowhere", "/v1/keys", "/metrics"):
        headers = (await at.http.get(at.url + target)).headers
        assert headers["x-request-id"]
        assert headers["cache-control"] == "no-store"
        assert headers["server"] == "memrelay"


@pytest.mark.row("MW-43", level="e2e")
async def test_a_clients_own_id_is_the_one_of_the_answer_under_either_name(at: Border) -> None:
    async def answered(**headers: str) -> str:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return (await at.http.get(f"{at.url}/health", headers=named)).headers["x-request-id"]

    assert await answered(x_request_id="turn-7") == "turn-7"
    assert await answered(x_correlation_id="turn-8") == "turn-8"
    assert await answered(x_request_id="turn-7", x_correlation_id="turn-8") == "turn-7"
    assert await answered(x_correlation_id="no plain id") != "no plain id"
