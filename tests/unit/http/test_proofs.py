"""Answers to signed requests prove that the relayer gave them, refusals too; bodies may be sealed for it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from border import Border, border, revoke
from doubles.set_clocks import StoppedClock
from nacl.signing import SigningKey
from signed_calls import encode

from relayer.http.limits import FAILURES, MAX_BODY
from relayer.wire import codec as base64url
from relayer.wire import signing
from relayer.wire.codec import NotAccepted
from relayer.wire.sealing import FIRST_GENERATION
from relayer.wire.signing import (
    PROOF_HEADER,
    SEALED_TYPE,
    Prover,
    Verifier,
    answer_key,
    seal_body,
)

MEMORY = {"items": [{"text": "kept"}]}
NOBODY = "01m8079zqgt6n9m13psfyd6ak5"
MAC, SIGNATURE = 32, 64


def secret_of(at: Border) -> bytes:
    gateway = at.gateway
    return gateway.root.agent(gateway.agent).namespace_secret(gateway.agent, FIRST_GENERATION)


def request_of(sent: httpx.Request) -> bytes:
    return signing.answered_request(
        sent.headers[signing.SIGNATURE_HEADER],
        method=sent.method,
        target=sent.url.raw_path.decode(),
        digest=sent.headers.get(signing.DIGEST_HEADER, ""),
        content_type=sent.headers.get("content-type", ""),
    )


def verifier(at: Border, answer: httpx.Response) -> Verifier:
    identity = at.relayer.fleet.current().identity
    return Verifier(request_of(answer.request), identity, answer_key(secret_of(at)))


def proven(at: Border, answer: httpx.Response) -> int:
    """Check an answer's proof and return its size, which tells its kind."""
    proof = answer.headers[PROOF_HEADER]
    verifier(at, answer).check(proof, answer.status_code, answer.content)
    return len(base64url.decode(proof))


@pytest.mark.parametrize(
    ("status", "method", "target", "body"),
    [
        (200, "POST", "/v1/memories", MEMORY),
        (200, "POST", "/v1/recall", {"query": "kept"}),
        (202, "POST", "/v1/analyze", None),
        (200, "GET", "/v1/memories", None),
        (200, "GET", "/v1/changes?after=0", None),
        (404, "GET", f"/v1/memories/{NOBODY}", None),
        (404, "GET", f"/v1/jobs/{NOBODY}", None),
        (422, "POST", "/v1/recall", {}),
        (400, "POST", "/v1/recall", b"{"),
        (409, "POST", "/v1/ask", {"question": "kept?"}),
    ],
)
async def test_who_opened_the_sealed_key_proves_its_answers_with_its_secret(at, status, method, target, body):
    if status == 202:
        status, body = 200, {"turns": [{"role": "user", "text": "ok"}]}
    answer = await at.call(method, target, body)
    assert (answer.status_code, proven(at, answer)) == (status, MAC)


@pytest.mark.parametrize(
    ("code", "route", "changes"),
    [
        ("clock_skew", "POST /v1/recall", {"created": 1_000_000_000}),
        ("window", "POST /v1/recall", {"window": 300}),
        ("unauthorized", "POST /v1/recall", {"identity": SigningKey(bytes(32))}),
        ("not_found", "POST /v1/nothing", {}),
        ("method_not_allowed", "PUT /v1/recall", {}),
        ("malformed", "GET /v1/namespaces", {}),
        ("unsupported_media_type", "POST /v1/recall", {"extra": {"content-type": "text/plain"}}),
        ("unknown_fleet_key", "POST /v1/recall", {"key": base64url.encode(bytes(80))}),
    ],
)
async def test_a_refusal_before_the_sealed_key_was_opened_is_signed_by_the_relayer(at, code, route, changes):
    answer = await at.call(*route.split(), {"query": "kept"}, **changes)
    assert (answer.json()["code"], proven(at, answer)) == (code, SIGNATURE)


async def test_answers_about_an_account_and_to_clients_without_a_secret_are_signed(at):
    for answer in (
        await at.call("GET", "/v1/namespaces", key=False),
        await at.call("POST", "/v1/memories", {**MEMORY, "namespace": "researcher/plain"}, key=False),
        await at.call("GET", "/v1/memories", key=at.memory_key(namespace="researcher/plain", secret=b"")),
    ):
        assert (answer.status_code, proven(at, answer)) == (200, SIGNATURE)


async def test_the_one_401_is_proven_in_one_way_however_far_its_request_got(at):
    thief = replace(at.gateway, agent="thief")
    assert proven(at, await at.call("POST", "/v1/recall", {"query": "kept"}, gateway=thief)) == SIGNATURE
    await revoke(at, at.gateway)
    revoked = await at.call("POST", "/v1/recall", {"query": "kept"})
    assert (revoked.json()["code"], proven(at, revoked)) == ("unauthorized", SIGNATURE)


async def test_an_answer_to_one_request_proves_nothing_to_another(at):
    one = await at.call("POST", "/v1/recall", {"query": "kept"})
    other = await at.call("POST", "/v1/recall", {"query": "kept"})
    assert one.content == other.content
    with pytest.raises(NotAccepted):
        verifier(at, other).check(one.headers[PROOF_HEADER], 200, one.content)


async def test_a_peer_that_fails_too_often_gets_no_more_signatures():
    async with border(clock=StoppedClock()) as at:
        forged = SigningKey(bytes(32))
        for _ in range(int(FAILURES.capacity)):
            failed = await at.call("GET", "/v1/namespaces", key=False, identity=forged)
            assert proven(at, failed) == SIGNATURE
        answer = await at.call("GET", "/v1/namespaces", key=False, identity=forged)
        assert (answer.status_code, answer.headers.get(PROOF_HEADER)) == (429, None)


async def test_open_routes_and_requests_without_a_signature_get_no_proof(at):
    for target, status in (
        ("/version", 200),
        ("/v1/keys", 200),
        ("/v1/namespaces", 400),
        ("/v1/nothing", 404),
    ):
        answer = await at.http.get(at.url + target)
        assert (answer.status_code, answer.headers.get(PROOF_HEADER)) == (status, None)
    signed = await at.call("GET", "/version", key=False)
    assert (signed.status_code, signed.headers.get(PROOF_HEADER)) == (200, None)


async def test_an_export_is_proven_line_by_line(at):
    await at.call("POST", "/v1/memories", MEMORY)
    answer = await at.call("POST", "/v1/export", {})
    lines = [line async for line in verifier(at, answer).lines(_once(answer.content), most=MAX_BODY)]
    assert [next(iter(json.loads(line))) for line in lines] == ["memrelay_export", "memory", "end"]
    kept = [line for line in answer.content.splitlines() if b'"proof"' not in line]
    unproven = verifier(at, answer).lines(_once(b"\n".join(kept) + b"\n"), most=MAX_BODY)
    with pytest.raises(NotAccepted):
        await anext(unproven)


async def test_events_are_proven_by_comments_among_them(at):
    await at.call("POST", "/v1/memories", MEMORY)
    headers = at.gateway.headers("GET", at.authority, "/v1/changes?after=0", memory_key=at.memory_key())
    read = b""
    async with at.http.stream(
        "GET", f"{at.url}/v1/changes?after=0", headers={**headers, "accept": "text/event-stream"}
    ) as answer:
        async for chunk in answer.aiter_bytes():
            read += chunk
            if b"event: remembered" in read and read.endswith(b"\n\n") and read.count(b": proof ") == 2:
                break
    prover = Prover(request_of(answer.request), at.relayer.acceptance._keys.identity)
    prover.accepted(answer_key(secret_of(at)))
    *parts, _ = re.split(rb": proof [A-Za-z0-9_-]+\n\n", read)
    assert read == b"".join(map(prover.comment, parts))
    assert PROOF_HEADER not in answer.headers


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def sealed_call(at: Border, target: str, body: Any, *, nonce: bytes, **more: Any) -> httpx.Response:
    raw = seal_body(more.pop("secret", secret_of(at)), more.pop("sealed_for", nonce), encode(body))
    return await at.call("POST", target, raw, nonce=nonce, extra={"content-type": SEALED_TYPE}, **more)


async def test_a_sealed_body_is_the_same_request_as_the_body_in_clear(at):
    body = {**MEMORY, "idempotency_key": "one"}
    stored = await sealed_call(at, "/v1/memories", body, nonce=b"a" * 16)
    assert (stored.status_code, stored.json()["memories"][0]["status"]) == (200, "stored")
    for again in (
        await sealed_call(at, "/v1/memories", body, nonce=b"b" * 16),
        await at.call("POST", "/v1/memories", body),
    ):
        assert (again.status_code, again.json()["memories"]) == (200, stored.json()["memories"])
    other = {"items": [{"text": "other"}], "idempotency_key": "one"}
    assert (await sealed_call(at, "/v1/memories", other, nonce=b"c" * 16)).json()[
        "code"
    ] == "idempotency_conflict"


@pytest.mark.parametrize(
    "broken",
    [{"secret": bytes(32)}, {"sealed_for": b"x" * 16}, {"key": False}],
    ids=["another secret", "another request", "no sealed key"],
)
async def test_a_sealed_body_that_cannot_be_opened_is_malformed(at, broken):
    answer = await sealed_call(at, "/v1/recall", {"query": "kept"}, nonce=b"d" * 16, **broken)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert proven(at, answer) in {MAC, SIGNATURE}


async def test_a_sealed_body_for_custody_relayer_has_nothing_to_open_it(at):
    empty = at.memory_key(secret=b"")
    answer = await sealed_call(at, "/v1/recall", {"query": "kept"}, nonce=b"e" * 16, key=empty)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize(("size", "status"), [(MAX_BODY, 422), (MAX_BODY + 1, 413)])
async def test_the_limit_of_a_body_counts_what_is_in_it(at, size, status):
    body = b'{"x":""}'.ljust(size)
    answer = await sealed_call(at, "/v1/recall", body, nonce=b"f" * 16)
    assert answer.status_code == status
    assert (await at.call("POST", "/v1/recall", body)).status_code == status
