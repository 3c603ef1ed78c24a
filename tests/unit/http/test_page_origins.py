"""Pages of other origins: those in the settings may call, all others get what they got without the setting."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest
from border import Border, border

LISTED = "https://app.example.org"
NATIVE = {
    "content-digest",
    "content-type",
    "memory-certificate",
    "memory-key",
    "memory-route",
    "memory-signature",
    "x-deadline-ms",
}
MEMWAL = {
    "content-type",
    "x-account-id",
    "x-delegate-key",
    "x-nonce",
    "x-public-key",
    "x-seal-session",
    "x-signature",
    "x-timestamp",
}
UNLISTED = (
    "https://evil.example",
    "http://app.example.org",
    "https://app.example.org:8443",
    "https://app.example.org.evil.example",
    "https://APP.example.org",
    "null",
    "*",
    "",
)


@pytest.fixture
async def at() -> AsyncIterator[Border]:
    async with border(page_origins=f"{LISTED}, http://localhost:5173") as running:
        yield running


def _asking(origin: str, method: str = "POST") -> dict[str, str]:
    names = "content-type,memory-signature"
    return {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": names,
    }


def _told(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("access-control-")}


def _names(header: str) -> set[str]:
    return {name.strip() for name in header.split(",")}


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/v1/recall", NATIVE),
        ("GET", "/v1/keys", NATIVE),
        ("DELETE", "/v1/memories/00000000-0000-4000-8000-000000000001", NATIVE),
        ("POST", "/api/remember", MEMWAL),
    ],
)
async def test_a_preflight_of_a_listed_page_allows_what_the_client_sends(
    at: Border, method: str, path: str, expected: set[str]
) -> None:
    answer = await at.http.options(at.url + path, headers=_asking(LISTED, method))
    assert (answer.status_code, answer.content) == (204, b"")
    told = _told(answer.headers)
    assert _names(told.pop("access-control-allow-headers")) == expected
    assert int(told.pop("access-control-max-age")) > 60
    told.pop("access-control-expose-headers", None)
    assert told == {"access-control-allow-origin": LISTED, "access-control-allow-methods": method}
    assert answer.headers["vary"] == "Origin"
    page = (await at.http.get(at.url + "/metrics")).text
    assert 'method="OPTIONS"' in page


async def test_a_preflight_for_what_is_no_route_is_refused(at: Border) -> None:
    for method, path, status in [
        ("POST", "/nothing", 404),
        ("PATCH", "/v1/recall", 405),
        ("POST", "/api/x", 404),
    ]:
        answer = await at.http.options(at.url + path, headers=_asking(LISTED, method))
        assert answer.status_code == status, path
        assert "access-control-allow-methods" not in answer.headers


async def test_a_listed_page_reads_responses_and_refusals_with_their_proof(at: Border) -> None:
    body = {"items": [{"text": "The ferry leaves at nine."}]}
    for origin in (LISTED, "http://localhost:5173"):
        for answer in (
            await at.call("POST", "/v1/memories", body, extra={"origin": origin}),
            await at.call("GET", "/v1/export", extra={"origin": origin}),
            await at.call("POST", "/v1/recall", b"{", extra={"origin": origin}),
            await at.http.get(at.url + "/nothing", headers={"origin": origin}),
            await at.http.post(at.url + "/api/recall", headers={"origin": origin}),
        ):
            assert answer.headers["access-control-allow-origin"] == origin
            assert answer.headers["vary"] == "Origin"
            assert "access-control-allow-credentials" not in answer.headers
        refused = await at.call("POST", "/v1/recall", b"{", extra={"origin": origin})
        assert refused.headers["memory-proof"]
        assert _names(refused.headers["access-control-expose-headers"]) == {"memory-proof", "retry-after"}


@pytest.mark.parametrize("origin", UNLISTED)
async def test_an_unlisted_page_gets_what_it_got_without_the_setting(at: Border, origin: str) -> None:
    async with border() as plain:
        for path in ("/v1/recall", "/api/remember", "/v1/keys", "/metrics"):
            asked = [await one.http.options(one.url + path, headers=_asking(origin)) for one in (at, plain)]
            assert asked[0].status_code == asked[1].status_code == 405
            assert asked[0].headers["allow"] == asked[1].headers["allow"]
            read = [await one.http.get(one.url + path, headers={"origin": origin}) for one in (at, plain)]
            assert read[0].status_code == read[1].status_code
            for answer in asked + read:
                assert _told(answer.headers) == {}
            # A cache must not give this response to a listed page, nor the other way round.
            assert asked[0].headers["vary"] == read[0].headers["vary"] == "Origin"
            assert "vary" not in asked[1].headers


async def test_metrics_stay_closed_to_pages(at: Border) -> None:
    page = await at.http.get(at.url + "/metrics", headers={"origin": LISTED})
    assert page.status_code == 200
    assert _told(page.headers) == {}


async def test_a_request_without_an_origin_is_told_nothing_new(at: Border) -> None:
    answer = await at.http.get(at.url + "/v1/keys")
    assert _told(answer.headers) == {}
    assert (await at.http.options(at.url + "/v1/recall", headers={"origin": LISTED})).status_code == 405
