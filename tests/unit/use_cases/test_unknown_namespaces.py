"""Requests about a namespace that does not exist: they find nothing, and none of them creates it."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from relayer.testing.local_relayer import AGENT, LocalRelayer, SigningGateway, local_relayer
from relayer.wire.signing import Right

OWNER = SigningGateway(rights=(Right.READ, Right.WRITE, Right.ADMIN))
UNKNOWN = f"{AGENT}/sender-unknown"
ID = "0" * 26
EVERYTHING = {"everything": True}

# Method, target, body, status, and fields of the response.
REQUESTS: list[tuple[str, str, dict[str, Any] | None, int, dict[str, Any]]] = [
    ("POST", "/v1/recall", {"query": "Which bike do I have?"}, 200, {"memories": []}),
    ("GET", "/v1/memories", None, 200, {"memories": []}),
    ("GET", f"/v1/memories/{ID}", None, 404, {"code": "not_found"}),
    ("GET", "/v1/context", None, 200, {"total": 0}),
    ("GET", "/v1/profile", None, 200, {"total": 0}),
    ("GET", "/v1/standing", None, 200, {"lines": []}),
    ("GET", "/v1/changes", None, 200, {"changes": []}),
    ("POST", "/v1/transcript", {"session": "s1"}, 200, {"lines": []}),
    ("POST", "/v1/consolidation", {}, 200, {"proposals": []}),
    ("POST", "/v1/memories/delete", EVERYTHING | {"dry_run": True}, 200, {"matched": 0, "dry_run": True}),
    ("POST", "/v1/memories/delete", EVERYTHING, 200, {"matched": 0, "forgotten": 0, "remaining": 0}),
    ("POST", "/v1/memories/delete", {"where": {"tags": "x"}}, 200, {"matched": 0, "dry_run": False}),
    ("POST", "/v1/memories/delete", EVERYTHING | {"mode": "erase"}, 200, {"matched": 0, "erased": 0}),
    ("DELETE", f"/v1/memories/{ID}", None, 404, {"code": "not_found"}),
    ("DELETE", f"/v1/memories/{ID}?mode=erase", None, 404, {"code": "not_found"}),
    ("POST", f"/v1/memories/{ID}/restore", None, 404, {"code": "not_found"}),
    ("POST", f"/v1/memories/{ID}/supersede", {"text": "New."}, 404, {"code": "not_found"}),
    ("POST", "/v1/namespaces/erase", {}, 404, {"code": "not_found"}),
]


async def send(
    relayer: LocalRelayer,
    method: str,
    target: str,
    body: Any = None,
    *,
    namespace: str = UNKNOWN,
    **more: Any,
) -> Any:
    key = OWNER.memory_key(relayer.fleet_key, namespace=namespace)
    return await relayer.call(method, target, body, gateway=OWNER, key=key, **more)


async def namespaces(relayer: LocalRelayer) -> list[str]:
    answer = await relayer.call("GET", "/v1/namespaces", gateway=OWNER, key=False)
    return [one["name"] for one in answer.json()["namespaces"]]


@pytest.mark.parametrize("known", [True, False], ids=["a known account", "an unknown account"])
async def test_no_read_and_no_deletion_creates_a_namespace(known: bool) -> None:
    async with local_relayer(rate_limits="off") as relayer:
        if known:
            await send(relayer, "POST", "/v1/memories", {"items": [{"text": "One."}]}, namespace=AGENT)
        before = await namespaces(relayer)
        for method, target, body, status, fields in REQUESTS:
            answer = await send(relayer, method, target, body)
            assert answer.status_code == status, (target, answer.text)
            assert {name: answer.json().get(name) for name in fields} == fields, target
            assert await namespaces(relayer) == before == [AGENT] * known, target
        answer = await send(relayer, "POST", "/v1/export", {})
        assert answer.status_code == 200
        assert "text" not in answer.text
        assert await namespaces(relayer) == before


@pytest.mark.parametrize("mode", ["forget", "erase"])
async def test_a_copy_of_a_deletion_deletes_nothing_that_was_stored_after_it(mode: str) -> None:
    async with local_relayer(rate_limits="off") as relayer:
        copied = {"nonce": secrets.token_bytes(16), "created": OWNER.now}
        key = OWNER.memory_key(relayer.fleet_key, namespace=UNKNOWN)
        body = EVERYTHING | {"mode": mode}

        async def deletion() -> dict[str, Any]:
            answer = await relayer.call("POST", "/v1/memories/delete", body, gateway=OWNER, key=key, **copied)
            return answer.json()

        first = await deletion()
        await send(relayer, "POST", "/v1/memories", {"items": [{"text": "One."}]})
        assert await deletion() == first
        assert len((await send(relayer, "GET", "/v1/memories")).json()["memories"]) == 1
