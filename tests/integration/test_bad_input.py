"""Whatever arrives at the border gets a clear answer, and what is not accepted touches nothing."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from border import Border, border
from plugin_site import PluginSite
from signed_calls import Gateway
from typed_commands import run_gateway

from memrelay import InvalidInput, Memory
from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.telemetry import configure
from relayer.testing.local_relayer import RecordingStore, threaded_relayer
from relayer.wire import codec as base64url
from relayer.wire import signing
from relayer.wire.labels import RESERVED_KEYS
from relayer.wire.signing import Right

MEMORY = {"items": [{"text": "the canary sings at dawn"}]}
QUERY = {"query": "canary"}


def _signed(at: Border, raw: bytes, **more: Any) -> dict[str, str]:
    """Return the headers of a recall with this body."""
    return at.gateway.headers("POST", at.authority, "/v1/recall", raw, memory_key=at.memory_key(), **more)


async def _sent(at: Border, raw: Any, headers: Any) -> httpx.Response:
    """Send a recall as it was signed."""
    return await at.http.post(f"{at.url}/v1/recall", content=raw, headers=headers)


def _by_hand(at: Border, headers: dict[str, str], *more: str) -> bytes:
    """Return the head of a recall of which the body is still to come."""
    lines = [f"host: {at.authority}", *(f"{name}: {value}" for name, value in headers.items()), *more]
    return ("POST /v1/recall HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode()


@pytest.fixture
async def warm(at_border: Border) -> Border:
    """A border whose account is known and whose namespace is open, with its store calls counted from here on."""
    answer = await at_border.call("POST", "/v1/memories", MEMORY)
    assert answer.status_code == 200, answer.text
    at_border.store.clear()
    return at_border


def _problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert problem["request_id"] == answer.headers["x-request-id"]
    return problem


async def _uniform(at: Border, answer: Any) -> None:
    """It is the one 401: told nothing, and the store was not asked."""
    problem = _problem(answer, 401, "unauthorized")
    problem.pop("request_id")
    assert problem == {
        "type": "urn:memrelay:problem:unauthorized",
        "title": "Unauthorized",
        "status": 401,
        "code": "unauthorized",
        "detail": "The request was not accepted. The relayer's log has the reason under the request id.",
        "errors": [],
    }
    assert at.store.calls == []


def _changed(encoded: str) -> str:
    """Return something signed or sealed with another last byte."""
    raw = bytearray(base64url.decode(encoded))
    raw[-1] ^= 1
    return base64url.encode(bytes(raw))


def _thief(at: Border) -> Gateway:
    return replace(at.gateway, agent="thief", namespaces=("researcher", "thief"))


# What makes a recall one that is not accepted, by a relayer that knows the account.
REFUSED: dict[str, Callable[[Border], dict[str, Any]]] = {
    "a signature by another key": lambda at: {"identity": Gateway().identity},
    "a forged certificate": lambda at: {"certificate": _changed(at.gateway.certificate())},
    "a certificate that is over": lambda at: {
        "certificate": at.gateway.certificate(not_before=at.gateway.now - 900, not_after=at.gateway.now - 120)
    },
    "a certificate of later": lambda at: {
        "certificate": at.gateway.certificate(not_before=at.gateway.now + 120)
    },
    "a captured key of another agent": lambda at: {"key": at.memory_key(), "gateway": _thief(at)},
    "a key of another account": lambda at: {"key": at.memory_key(account=Gateway().root.account)},
    "a key of a namespace not covered": lambda at: {"key": at.memory_key(namespace="somebody")},
    "a body of another namespace": lambda at: {"body": {**QUERY, "namespace": "researcher/x"}},
    "a namespace not granted": lambda at: {"body": {**QUERY, "namespace": "somebody"}, "key": False},
    "no right to read": lambda at: {"gateway": replace(at.gateway, rights=(Right.WRITE,))},
    "a key that is over": lambda at: {"key": at.memory_key(not_after=at.gateway.now - 1)},
    "a key of too long a life": lambda at: {"key": at.memory_key(not_after=at.gateway.now + 15 * 60 + 90)},
    "a key that does not open": lambda at: {"key": _changed(at.memory_key())},
}


class TestWhatDependsOnKeysOrStateIsOneAnswer:
    @pytest.mark.parametrize("why", REFUSED)
    async def test_a_recall_is_not_accepted(self, warm: Border, why: str) -> None:
        given = {"body": QUERY} | REFUSED[why](warm)
        await _uniform(warm, await warm.call("POST", "/v1/recall", given.pop("body"), **given))

    async def test_a_right_that_is_not_granted(self, warm: Border) -> None:
        reader = replace(warm.gateway, rights=(Right.READ,))
        await _uniform(warm, await warm.call("POST", "/v1/memories", MEMORY, gateway=reader))
        writer = replace(warm.gateway, rights=(Right.WRITE,))
        await _uniform(warm, await warm.call("GET", "/v1/namespaces", key=False, gateway=writer))

    async def test_a_signature_over_another_method_target_or_key(self, warm: Border) -> None:
        raw, key = json.dumps(QUERY).encode(), warm.memory_key()
        for method, target in (("GET", "/v1/recall"), ("POST", "/v1/recall?"), ("POST", "/v1/analyze")):
            headers = warm.gateway.headers(method, warm.authority, target, raw, memory_key=key)
            await _uniform(warm, await _sent(warm, raw, headers))
        headers = _signed(warm, raw) | {signing.KEY_HEADER: warm.memory_key(namespace="researcher/x")}
        await _uniform(warm, await _sent(warm, raw, headers))

    async def test_an_account_that_is_not_served(self) -> None:
        gateway = Gateway()
        async with border(accounts=Gateway().root.account) as at:
            # What runs beside the requests has looked at the store for the first time by then.
            await at.http.get(f"{at.url}/health")
            at.store.clear()
            await _uniform(at, await at.call("POST", "/v1/recall", QUERY, gateway=gateway, key=False))


class TestWhatFollowsFromTheRequestIsTold:
    async def test_a_clock_that_is_wrong_with_the_server_s_time(self, warm: Border) -> None:
        for created in (warm.gateway.now + 3600, warm.gateway.now - 3600):
            problem = _problem(
                await warm.call("POST", "/v1/recall", QUERY, created=created), 401, "clock_skew"
            )
            assert abs(problem["server_time"] - warm.gateway.now) < 60

    async def test_a_window_that_is_too_long(self, warm: Border) -> None:
        _problem(await warm.call("POST", "/v1/recall", QUERY, window=121), 400, "window")

    async def test_an_authority_of_somebody_else_with_the_accepted_ones(self, warm: Border) -> None:
        answer = await warm.call("POST", "/v1/recall", QUERY, extra={"host": "other.example"})
        problem = _problem(answer, 401, "wrong_authority")
        assert warm.authority in problem["accepted"]

    @pytest.mark.parametrize(
        "name", [signing.CERTIFICATE_HEADER, signing.SIGNATURE_HEADER, signing.DIGEST_HEADER]
    )
    async def test_a_missing_header_by_its_name(self, warm: Border, name: str) -> None:
        raw = json.dumps(QUERY).encode()
        headers = _signed(warm, raw)
        del headers[name]
        answer = await _sent(warm, raw, headers)
        assert name in _problem(answer, 400, "missing_header")["detail"]

    async def test_that_no_namespace_is_named(self, warm: Border) -> None:
        _problem(await warm.call("POST", "/v1/recall", QUERY, key=False), 400, "missing_header")
        _problem(await warm.call("GET", "/v1/memories", key=False), 400, "missing_header")

    async def test_a_header_that_is_not_in_form(self, warm: Border) -> None:
        for name in (signing.CERTIFICATE_HEADER, signing.SIGNATURE_HEADER, signing.DIGEST_HEADER):
            for value in ("!!!", "AA==", "AAA", "AAAA,AAAA", "\u00e9"):
                extra = {name: value.encode("latin-1")}
                _problem(await warm.call("POST", "/v1/recall", QUERY, extra=extra), 400, "malformed")
        for value in ("!!!", "AA==", "AAB", "AAAA,AAAA"):
            _problem(await warm.call("POST", "/v1/recall", QUERY, key=value), 400, "malformed")

    async def test_a_header_that_is_too_long(self, warm: Border) -> None:
        extra = {signing.CERTIFICATE_HEADER: "A" * 2800}
        _problem(await warm.call("POST", "/v1/recall", QUERY, extra=extra), 431, "header_too_large")

    async def test_a_key_for_a_fleet_key_that_is_over(self, warm: Border) -> None:
        key = warm.gateway.memory_key(bytes.fromhex("09" + "00" * 31))
        _problem(await warm.call("POST", "/v1/recall", QUERY, key=key), 401, "unknown_fleet_key")

    async def test_none_of_it_reaches_the_store(self, warm: Border) -> None:
        await warm.call("POST", "/v1/recall", QUERY, created=1)
        await warm.call("POST", "/v1/recall", b"{", extra={"content-type": "text/plain"})
        await warm.call("POST", "/v1/recall", b"{")
        await warm.call("GET", "/v1/memories?limit=0")
        assert warm.store.calls == []


class TestReplays:
    async def test_a_recorded_read_is_refused_and_a_recorded_write_is_answered_with_its_first_result(
        self, warm: Border
    ) -> None:
        raw = json.dumps({"items": [{"text": "said once"}]}).encode()
        write = warm.gateway.headers(
            "POST", warm.authority, "/v1/memories", raw, memory_key=warm.memory_key()
        )
        first = await warm.http.post(f"{warm.url}/v1/memories", content=raw, headers=write)
        again = await warm.http.post(f"{warm.url}/v1/memories", content=raw, headers=write)
        assert first.status_code == again.status_code == 200
        assert first.json()["memories"] == again.json()["memories"]

        raw = json.dumps(QUERY).encode()
        read = _signed(warm, raw)
        assert (await _sent(warm, raw, read)).status_code == 200
        _problem(await _sent(warm, raw, read), 401, "replayed")


BROKEN_RULES: list[tuple[Any, str]] = [
    ({}, "(body)"),
    ([], "(body)"),
    ({"query": ""}, "query"),
    ({"query": "\u200b\u00ad"}, "query"),
    ({"query": "a" * 65_537}, "query"),
    ({"query": 7}, "query"),
    ({"query": "a", "limit": 0}, "limit"),
    ({"query": "a", "limit": 10**400}, "limit"),
    (b'{"query": "a", "floor": 1e999}', "floor"),
    ({"query": "a", "kinds": ["secret-canary"]}, "kinds.0"),
    ({"query": "a", "secret-canary": 1}, "(unknown field)"),
    ({"query": "a", "namespace": "Not Normal"}, "namespace"),
    ({"query": "a", "namespace": "a/../b"}, "namespace"),
    ({"vector": "AAA"}, "vector"),
    ({"vector": [0.0] * 5000}, "vector"),
    ({"query": "a", "occurred_after": "yesterday"}, "occurred_after"),
    ({"query": "a", "where": {"price": {"near": 1}}}, "where"),
    ({"query": "a", "where": {"": 1}}, "where"),
    ({"query": "a", "where": {"price": {"gt": None}}}, "where"),
    ({"query": "a", "min_position": {"seq": -1, "digest": "00"}}, "min_position.seq"),
]


class TestBodies:
    async def test_a_body_that_is_not_the_signed_one(self, warm: Border) -> None:
        _problem(await warm.call("POST", "/v1/recall", QUERY, digest_of=b"other"), 400, "digest_mismatch")

    @pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
    async def test_a_body_that_is_not_json_by_its_own_word(self, warm: Border, media_type: str) -> None:
        answer = await warm.call("POST", "/v1/recall", QUERY, extra={"content-type": media_type})
        _problem(answer, 415, "unsupported_media_type")

    async def test_a_compressed_body(self, warm: Border) -> None:
        answer = await warm.call("POST", "/v1/recall", QUERY, extra={"content-encoding": "gzip"})
        _problem(answer, 415, "unsupported_media_type")

    async def test_two_mebibytes_are_read_and_one_byte_more_is_not(self, warm: Border) -> None:
        most = b'{"query": "' + b"a" * (2 * 1024 * 1024 - 13) + b'"}'
        _problem(await warm.call("POST", "/v1/recall", most), 422, "invalid")
        _problem(await warm.call("POST", "/v1/recall", most + b" "), 413, "too_large")

    async def test_a_body_without_a_length_is_read_up_to_the_same_limit(self, warm: Border) -> None:
        async def chunks(raw: bytes) -> AsyncIterator[bytes]:
            for start in range(0, len(raw), 65536):
                yield raw[start : start + 65536]

        small, large = json.dumps(QUERY).encode(), b" " * (2 * 1024 * 1024 + 1)
        for raw, status in ((small, 200), (large, 413)):
            headers = _signed(warm, raw)
            answer = await _sent(warm, chunks(raw), headers)
            assert answer.status_code == status, answer.text

    async def test_a_body_that_does_not_come_is_waited_for_within_the_deadline_only(
        self, warm: Border
    ) -> None:
        raw = json.dumps(QUERY).encode()
        head = _by_hand(warm, _signed(warm, raw), f"content-length: {len(raw)}", "x-deadline-ms: 200")
        answer = await warm.raw(head + raw[:5])
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"body_timeout" in answer

    async def test_a_client_that_asks_first_is_told_to_go_on_only_when_it_is_accepted(
        self, warm: Border
    ) -> None:
        raw = json.dumps(QUERY).encode()
        for accepted in (True, False):
            identity = None if accepted else Gateway().identity
            headers = _signed(warm, raw, identity=identity)
            answer = await warm.raw(
                _by_hand(warm, headers, f"content-length: {len(raw)}", "expect: 100-continue")
            )
            assert answer.startswith(b"HTTP/1.1 100 " if accepted else b"HTTP/1.1 401 ")

    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"{",
            b"[" * 10_000 + b"]" * 10_000,
            b'{"query": "a", "query": "b"}',
            b'{"query": "a", "floor": NaN}',
            b'{"query": "\xff"}',
            b'{"query": "\\ud800"}',
            b'{"query": "a"} trailing',
        ],
    )
    async def test_what_is_no_single_json_document(self, warm: Border, raw: bytes) -> None:
        extra = {"content-type": "application/json"}
        _problem(await warm.call("POST", "/v1/recall", raw, extra=extra), 400, "invalid_json")

    async def test_a_broken_rule_is_told_by_field_and_never_by_value(self, warm: Border) -> None:
        for body, field in BROKEN_RULES:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            answer = await warm.call("POST", "/v1/recall", raw)
            problem = _problem(answer, 422, "invalid")
            assert field in [item["field"] for item in problem["errors"]]
            assert all(item["rule"] for item in problem["errors"])
            assert "secret-canary" not in answer.text

    @pytest.mark.parametrize("value", [b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\x00\x00\x00\x00"])
    async def test_a_vector_without_a_direction_is_refused(self, warm: Border, value: bytes) -> None:
        vector = base64.b64encode(value * 64).decode()
        assert (await warm.call("POST", "/v1/recall", {"vector": vector})).status_code == 422

    @pytest.mark.parametrize(
        "query", ["limit=0", "limit=a", "secret-canary=1", "kinds=statement,secret-canary", "cursor="]
    )
    async def test_a_query_is_held_to_its_rules_too(self, warm: Border, query: str) -> None:
        answer = await warm.call("GET", f"/v1/memories?{query}")
        _problem(answer, 422, "invalid")
        assert "secret-canary" not in answer.text

    @pytest.mark.parametrize("query", ["limit=1&limit=2", "limit", "a=1&&b=2", "limit=%ff"])
    async def test_a_query_out_of_form_is_malformed(self, warm: Border, query: str) -> None:
        _problem(await warm.call("GET", f"/v1/memories?{query}"), 400, "malformed")

    async def test_a_deadline_that_is_none_is_malformed(self, warm: Border) -> None:
        for value in ("0", "-1", "1.5", "soon", "9" * 12):
            answer = await warm.call("POST", "/v1/recall", QUERY, extra={"x-deadline-ms": value})
            _problem(answer, 400, "malformed")


class TestTheHead:
    @pytest.mark.parametrize(
        "request_bytes",
        [
            b"nonsense\r\n\r\n",
            b"GET /health HTTP/9.9\r\n\r\n",
            b"GET /health HTTP/1.1\r\nhost: a\r\nbad header: \x00\r\n\r\n",
            b"GET /\x00health HTTP/1.1\r\nhost: a\r\n\r\n",
            b"POST /v1/recall HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
            b"POST /v1/recall HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
            b"POST /v1/recall HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
            b"GET http://other.example/health HTTP/1.1\r\nhost: a\r\n\r\n",
        ],
    )
    async def test_what_is_no_request_is_a_problem_too(self, at_border: Border, request_bytes: bytes) -> None:
        answer = await at_border.raw(request_bytes)
        head = answer.lower()
        assert head.startswith((b"http/1.0 400 ", b"http/1.1 400 ")), answer
        assert b"content-type: application/problem+json" in head
        assert b"x-request-id: " in head

    async def test_a_line_that_does_not_end_is_cut_off(self, at_border: Border) -> None:
        answer = await at_border.raw(b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n")
        assert answer.split(b" ", 2)[1] in {b"400", b"414", b"431"}
        assert b"application/problem+json" in answer

    @pytest.mark.parametrize(
        "name", [*("memory-certificate", "memory-key", "memory-signature", "content-digest")]
    )
    async def test_a_second_header_of_one_kind_is_refused(self, warm: Border, name: str) -> None:
        raw = json.dumps(QUERY).encode()
        headers = _signed(warm, raw)
        pairs = [*headers.items(), (name, headers[name])]
        answer = await _sent(warm, raw, pairs)
        assert "twice" in _problem(answer, 400, "malformed")["detail"]

    @pytest.mark.parametrize(
        "host", ["LOCALHOST:{port}", "localhost.:{port}", "[::1]:{port}", "127.0.0.1:{port}"]
    )
    async def test_every_spelling_of_an_accepted_name_is_accepted(self, warm: Border, host: str) -> None:
        given = host.format(port=warm.authority.rpartition(":")[2])
        raw = json.dumps(QUERY).encode()
        authority = signing.normal_authority(given, "http")
        headers = warm.gateway.headers("POST", authority, "/v1/recall", raw, memory_key=warm.memory_key())
        answer = await warm.http.post(
            f"{warm.url}/v1/recall", content=raw, headers={**headers, "host": given}
        )
        assert answer.status_code == 200, answer.text

    @pytest.mark.parametrize(
        "target", ["/v1/memories/a%2Fb", "/v1/memories/%00", "/v1/../v1/keys", "/v1/memories/.."]
    )
    async def test_a_target_that_hides_something_reaches_nothing(self, warm: Border, target: str) -> None:
        answer = await warm.raw(f"GET {target} HTTP/1.1\r\nhost: {warm.authority}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert warm.store.calls == []

    async def test_unknown_routes_and_methods_are_problems(self, at_border: Border) -> None:
        _problem(await at_border.http.get(f"{at_border.url}/v2/recall"), 404, "not_found")
        answer = await at_border.http.get(f"{at_border.url}/v1/recall")
        _problem(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == "POST"

    async def test_a_plain_request_id_comes_back_and_another_does_not(self, at_border: Border) -> None:
        plain, odd = "trace:abc.DEF_1-2", "a b"
        for given, same in ((plain, True), (odd, False), ("x" * 129, False)):
            answer = await at_border.http.get(f"{at_border.url}/health", headers={"x-request-id": given})
            assert (answer.headers["x-request-id"] == given) is same
            assert answer.headers["x-request-id"]

    async def test_unknown_and_malformed_ids_look_alike(self, warm: Border) -> None:
        bodies = []
        for identifier in ("01m8079zqgt6n9m13psfyd6ak5", "not-an-id"):
            problem = _problem(await warm.call("GET", f"/v1/memories/{identifier}"), 404, "not_found")
            problem.pop("request_id")
            bodies.append(problem)
        assert bodies[0] == bodies[1]


class TestLoad:
    async def test_a_stranger_in_a_loop_is_held_off_and_known_agents_are_not(self, warm: Border) -> None:
        stranger = Gateway()
        key = stranger.memory_key(warm.fleet_key)
        answers: list[httpx.Response] = []
        codes: list[str] = []
        # On a busy machine so much comes back in the meantime that one round may be too few.
        while codes.count("rate_limited") < 5 and len(codes) < 700:
            answers += await asyncio.gather(
                *(
                    warm.call(
                        "POST", "/v1/recall", QUERY, gateway=stranger, key=key, identity=Gateway().identity
                    )
                    for _ in range(70)
                )
            )
            codes = [answer.json()["code"] for answer in answers]
        assert codes.count("rate_limited") >= 5
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert int(refused.headers["retry-after"]) >= 1
        assert (await warm.call("POST", "/v1/recall", QUERY)).status_code == 200


class _Sick(RecordingStore):
    """A store that, once told so, hangs or breaks in a way that nobody foresaw."""

    hangs = breaks = False

    async def get(self, key: str, **options: Any) -> Any:
        if self.hangs:
            await asyncio.Event().wait()
        if self.breaks:
            raise KeyError("the canary sings at dawn")
        return await super().get(key, **options)


class TestASickStore:
    async def test_the_deadline_is_kept_and_the_stuck_step_named(self) -> None:
        store = _Sick(MemoryStore(SystemClock()))
        async with border(store) as at:
            store.hangs = True
            answer = await at.call("POST", "/v1/recall", QUERY, extra={"x-deadline-ms": "300"})
            assert "during admit" in _problem(answer, 504, "deadline_exceeded")["detail"]
            store.hangs = False
            await at.call("POST", "/v1/memories", MEMORY)
            store.hangs = True
            answer = await at.call("GET", "/v1/memories", extra={"x-deadline-ms": "300"})
            assert "during read" in _problem(answer, 504, "deadline_exceeded")["detail"]

    async def test_an_unforeseen_failure_tells_nothing_and_the_relayer_goes_on(self) -> None:
        written = io.StringIO()
        configure("json", stream=written)
        store = _Sick(MemoryStore(SystemClock()))
        async with border(store) as at:
            await at.call("POST", "/v1/memories", MEMORY)
            store.breaks = True
            answer = await at.call("POST", "/v1/recall", QUERY)
            _problem(answer, 500, "internal_error")
            store.breaks = False
            assert (await at.call("POST", "/v1/recall", QUERY)).status_code == 200
        logged = written.getvalue()
        assert "KeyError" in logged
        assert answer.headers["x-request-id"] in logged
        assert "canary" not in answer.text + logged


NAN = float("nan")
MANY_TAGS = [f"tag{number}" for number in range(33)]
FIVE_KIB = {"note": "x" * 5 * 1024}
NO_LIST, NO_TEXT = "must be a list of texts", "valid string"
# The argument, its value, where the fault is in it, and what the message says: the field of tags ends with the item's
# index, the place in metadata is the path to the value.
BAD_LABELS: list[tuple[str, Any, str, str]] = [
    ("tags", "health", "", NO_LIST),
    ("tags", 5, "", NO_LIST),
    ("tags", {"health": True}, "", NO_LIST),
    ("tags", ["fine", 1], ".1", NO_TEXT),
    ("tags", [None], ".0", NO_TEXT),
    ("tags", [True], ".0", NO_TEXT),
    ("tags", [["health"]], ".0", NO_TEXT),
    ("tags", [""], ".0", "at least 1 character"),
    ("tags", ["x" * 65], ".0", "at most 64 characters"),
    ("tags", MANY_TAGS, "", "must have at most 32 items"),
    ("metadata", [1], "", "must be a JSON object"),
    ("metadata", FIVE_KIB, "", "must have at most 4096 bytes of JSON"),
    ("metadata", {"": 1}, "", "must have keys that are not empty"),
    ("metadata", {"big": 2**63}, "big", "must be an integer of 64 bits"),
    *(
        ("metadata", {key: 1}, key, "is reserved for filters; choose another key")
        for key in sorted(RESERVED_KEYS)
    ),
]


class TestBadLabelsOverHttp:
    """Each request also has something valid, which must not be stored either."""

    async def _bodies(self, at: Border, labels: dict[str, Any]) -> list[tuple[str, dict[str, Any], str]]:
        """Return the requests that store labels, each with its target and what its fields begin with."""
        known = (await at.call("GET", "/v1/memories")).json()["memories"][0]["id"]
        at.store.clear()
        pair = [{"text": "fine"}, {"text": "not fine", **labels}]
        turns = [{"role": "user", "text": "I live in Bern."}]
        return [
            ("/v1/memories", {"items": pair}, "items.1."),
            ("/v1/import", {"memories": pair}, "memories.1."),
            ("/v1/analyze", {"turns": turns, **labels}, ""),
            (f"/v1/memories/{known}/supersede", {"text": "a new text", **labels}, ""),
        ]

    async def test_the_field_and_the_rule_are_named_and_nothing_is_stored(self, warm: Border) -> None:
        for name, value, place, rule in BAD_LABELS:
            for target, body, prefix in await self._bodies(warm, {name: value}):
                problem = _problem(await warm.call("POST", target, body), 422, "invalid")
                (error,) = problem["errors"]
                assert error["field"] == prefix + name + (place if name == "tags" else "")
                assert (f"{place}: {rule}" if name == "metadata" and place else rule) in error["rule"]
            assert warm.store.calls == []

    async def test_a_number_that_is_not_finite_is_refused_wherever_it_is(self, warm: Border) -> None:
        for target, body, prefix in await self._bodies(warm, {"metadata": {"a": {"b": [NAN]}}}):
            raw = json.dumps(body).encode()
            problem = _problem(await warm.call("POST", target, raw), 400, "invalid_json")
            assert problem["detail"] == "NaN and Infinity are not JSON."
            answer = await warm.call("POST", target, raw.replace(b"NaN", b"1e999"))
            (error,) = _problem(answer, 422, "invalid")["errors"]
            assert error["field"] == f"{prefix}metadata"
            assert error["rule"].startswith("a.b[0]: must be finite")
        assert warm.store.calls == []

    @pytest.mark.parametrize("empty", ["", "  ", "\u200b"])
    async def test_an_empty_query_is_named(self, warm: Border, empty: str) -> None:
        for target, field in (("recall", "query"), ("ask", "question"), ("active-recall", "query")):
            answer = await warm.call("POST", f"/v1/{target}", {field: empty})
            (error,) = _problem(answer, 422, "invalid")["errors"]
            assert (error["field"], "at least" in error["rule"]) == (field, True)
        assert warm.store.calls == []


@pytest.fixture(scope="module")
def relayer() -> Iterator[Border]:
    with threaded_relayer(lambda: border(rate_limits="off")) as running:
        yield running


@pytest.fixture(scope="module")
def memory(relayer: Border, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """The memories of an account, one of which is there, whatever is refused or filtered: its id is found by listing."""
    environ = {"HOME": str(tmp_path_factory.mktemp("home"))}
    with Memory(agent="shop", url=relayer.url, secret=os.urandom(32).hex(), environ=environ) as made:
        made.add("The lamp costs 40 euro.", metadata={"price": 40})
        yield made


def _the_lamp_alone(memory: Memory) -> bool:
    return [(one.text, one.metadata) for one in memory.list()] == [("The lamp costs 40 euro.", {"price": 40})]


# The ways in which labels are stored in Python, and what the field begins with.
STORING: dict[str, tuple[str, Callable[..., object]]] = {
    "text": ("", lambda memory, **labels: memory.add("The chair is red.", **labels)),
    "messages": (
        "",
        lambda memory, **labels: memory.add([{"role": "user", "content": "I live in Bern."}], **labels),
    ),
    "many": ("", lambda memory, **labels: memory.add_many(["The chair is red.", "It is old."], **labels)),
    "update": ("", lambda memory, **labels: memory.update(next(memory.list()).id, "A new text.", **labels)),
    "import": (
        "exported[1].",
        lambda memory, **labels: memory.import_([{"text": "x"}, {"text": "y", **labels}]),
    ),
}
BAD_IN_PYTHON = [
    *BAD_LABELS,
    ("metadata", {"a": {"b": [NAN]}}, "a.b[0]", "must be finite; JSON has neither NaN nor infinity"),
    ("metadata", {"net price: EUR": {"old one": NAN}}, "net price: EUR.old one", "must be finite"),
    (
        "metadata",
        {"a": {"b": {1, 2}}},
        "a.b",
        "must be JSON: text, number, true, false, null, list or object",
    ),
    ("metadata", {"a": {7: 1}}, "a", "must have keys that are not empty"),
]


class TestBadInputInPython:
    # Every rule in one way of storing, and every way with one rule of each label.
    @pytest.mark.parametrize(
        ("way", "name", "value", "place", "rule"),
        [("text", *one) for one in BAD_IN_PYTHON]
        + [(way, *one) for way in STORING if way != "text" for one in (BAD_LABELS[3], BAD_IN_PYTHON[-1])],
    )
    def test_bad_labels_are_named_and_nothing_is_stored(
        self, memory: Memory, way: str, name: str, value: Any, place: str, rule: str
    ) -> None:
        prefix, store = STORING[way]
        with pytest.raises(InvalidInput) as caught:
            store(memory, **{name: value})
        inside = f".{place}" if name == "metadata" and place else place
        assert caught.value.field == f"{prefix}{name}{inside}"
        assert rule in str(caught.value)
        assert _the_lamp_alone(memory)

    @pytest.mark.parametrize(
        ("field", "call"),
        [
            *(
                ("query", lambda memory, bad=bad: memory.search(bad))
                for bad in ("", " ", "\u200b", None, 5, b"x")
            ),
            *(("question", lambda memory, bad=bad: memory.ask(bad)) for bad in ("", " ", None, b"x")),
            *(("message", lambda memory, bad=bad: memory.recall(bad)) for bad in (None, 5, b"x", ["x"])),
            *(("user", lambda memory, bad=bad: memory.search("x", user=bad)) for bad in ("", " ", 5)),
            ("where.net price", lambda memory: memory.search("x", where={"net price": {"near": 1}})),
            ("where.price", lambda memory: memory.search("x", where={"price": NAN})),
            ("memory_id", lambda memory: memory.get(5)),
            ("memory_id", lambda memory: memory.delete(None)),
            ("memory_id", lambda memory: memory.erase(5)),
            ("user", lambda memory: memory.erase_all(user="nobody")),
        ],
    )
    def test_another_bad_argument_is_named(
        self, memory: Memory, field: str, call: Callable[[Memory], object]
    ) -> None:
        with pytest.raises(InvalidInput) as caught:
            call(memory)
        assert caught.value.field == field
        assert _the_lamp_alone(memory)

    @pytest.mark.parametrize("message", ["", " \n", "\u200b\ufeff", "\u0301", "\ud800"])
    def test_a_message_without_a_visible_character_recalls_nothing(
        self, memory: Memory, message: str
    ) -> None:
        assert memory.recall(message) == ""

    def test_a_filter_on_a_missing_key_passes_nothing_and_deletes_nothing(self, memory: Memory) -> None:
        where = {"missing.key": {"gte": 1}}
        assert memory.search("what does the lamp cost", where=where, min_score=0) == ()
        assert list(memory.list(where=where)) == []
        assert memory.delete_all(where=where) == 0
        assert _the_lamp_alone(memory)

    def test_an_unknown_user_has_no_memories_and_is_not_created(
        self, memory: Memory, relayer: Border
    ) -> None:
        relayer.store.clear()
        assert memory.search("lamp", user="nobody") == ()
        assert memory.recall("What does the lamp cost?", user="nobody") == ""
        assert list(memory.list(user="nobody")) == []
        with pytest.raises(InvalidInput):
            memory.add("x", metadata={"a": NAN}, user="nobody")
        assert relayer.store.count("create") == 0
        assert memory.delete_all(user="nobody") == 0
        assert memory.users() == ()


@pytest.fixture
def site(relayer: Border, tmp_path: Path) -> Iterator[PluginSite]:
    with PluginSite(tmp_path, relayer.url, os.urandom(32).hex()) as made:
        yield made


class TestBadInputOnTheCommandLine:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("remember", "x", "--tag", ""), "tags: String should have at least 1 character"),
            (("remember", "x", "--tag", "x" * 65), "tags: String should have at most 64 characters"),
            (
                ("remember", "x", *(word for tag in MANY_TAGS for word in ("--tag", tag))),
                "tags: must have at most 32 items",
            ),
            (
                ("remember", "x", "--metadata", f"note={FIVE_KIB['note']}"),
                "metadata: must have at most 4096 bytes of JSON",
            ),
            *(
                (("remember", "x", "--metadata", f"price={number}"), "metadata: price: must be finite")
                for number in ("NaN", "-Infinity", "1e999")
            ),
            *(
                (("remember", "x", "--metadata", f"{key}=1"), f"metadata: {key}: is reserved for filters")
                for key in sorted(RESERVED_KEYS)
            ),
            (("search", "  "), "query: must contain at least one visible character"),
            (("ask", ""), "question: String should have at least 1 character"),
            (("search", "lamp", "--tag", "x", "--where", "price>=NaN"), "price.gte: must be finite"),
            (("list", "--where", '{"price": {"near": 1}}'), "where: price: has an unknown operator"),
            (("list", "--where", "price"), "--where: give KEY=VALUE"),
            (("list", "--where", "=5"), "--where: give KEY=VALUE"),
            (("list", "--where", "{"), "--where: not valid JSON"),
            (("search", "lamp", "--where", "price>null"), "where: price.gt: must be a number or a text"),
            (("remember", "x", "--metadata", "price"), "--metadata: give KEY=VALUE"),
            (("list", "--where", "{}"), "where: must be an object with at least one condition"),
            (("search", "lamp", "--agent", "main/"), "--agent: a name must not be empty"),
        ],
    )
    def test_the_field_and_the_rule_are_named_and_nothing_is_stored(
        self, site: PluginSite, arguments: tuple[str, ...], message: str
    ) -> None:
        done = run_gateway(site.environment, *arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert site.texts() == []

    def test_a_filter_on_a_missing_key_passes_nothing(self, site: PluginSite) -> None:
        site.command("remember", "The lamp costs 40 euro.", "--metadata", "price=40")
        assert site.json("search", "lamp", "--floor", "0", "--where", "missing=1")["memories"] == []
        assert site.json("list", "--where", "missing>=1")["memories"] == []

    def test_an_unknown_user_has_no_memories_and_is_not_created(
        self, site: PluginSite, relayer: Border
    ) -> None:
        site.command("remember", "The lamp costs 40 euro.")
        relayer.store.clear()
        for arguments in (("search", "lamp"), ("list",)):
            said = site.command(*arguments, "--agent", "main/sender-nobody").stdout
            assert "default/sender-nobody has no memories. Another agent's: --agent NAME" in said
        assert relayer.store.count("create") == 0
        deleted = site.json("delete", "--everything", "--agent", "main/sender-nobody")
        assert (deleted["matched"], deleted["forgotten"], deleted["dry_run"]) == (0, 0, False)
        assert [one["name"] for one in site.json("namespaces")["namespaces"]] == ["default"]
