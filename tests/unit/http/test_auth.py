"""What acceptance keeps between requests, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest
from border import Border, border, revocations_of
from doubles.set_clocks import AheadClock, StoppedClock

from relayer.domain.namespace import Custody
from relayer.http.accept import Authorities
from relayer.http.limits import AGENT
from relayer.http.problems import HttpProblem
from relayer.settings.config import accepted_authorities, public_authority
from relayer.wire import codec as base64url
from relayer.wire.signing import Right

MEMORY = {"items": [{"text": "kept"}]}


async def test_a_cached_sealed_key_ends_with_its_time_and_its_secret_is_dropped() -> None:
    clock = AheadClock()
    async with border(clock=clock) as at:
        key = at.memory_key(not_after=at.gateway.now + 30)
        assert (await at.call("POST", "/v1/memories", MEMORY, key=key)).status_code == 200
        kept = at.relayer.acceptance._sealed_keys
        assert len(kept) == 1
        clock.ahead_ms = 31_000
        assert (await at.call("POST", "/v1/recall", {"query": "kept"}, key=key)).status_code == 401
        assert len(kept) == 0
        other = at.memory_key(not_after=at.gateway.now + 60)
        assert (await at.call("POST", "/v1/recall", {"query": "kept"}, key=other)).status_code == 200
        clock.ahead_ms = 61_000
        at.relayer.acceptance.drop_expired()
        assert len(kept) == 0


async def test_a_cached_certificate_is_still_held_to_its_time() -> None:
    clock = AheadClock()
    async with border(clock=clock) as at:
        certificate = at.gateway.certificate(not_after=at.gateway.now + 5)
        assert (await at.call("POST", "/v1/memories", MEMORY, certificate=certificate)).status_code == 200
        clock.ahead_ms = 66_000
        answer = await at.call(
            "POST", "/v1/memories", MEMORY, certificate=certificate, created=at.gateway.now + 66
        )
        assert answer.json()["code"] == "unauthorized"


async def test_a_cached_key_is_of_no_use_to_another_agent(at_custody: Border) -> None:
    at = at_custody
    key = at.memory_key()
    assert (await at.call("POST", "/v1/memories", MEMORY, key=key)).status_code == 200
    thief = replace(at.gateway, agent="thief", namespaces=("researcher",))
    assert (await at.call("POST", "/v1/recall", {"query": "kept"}, key=key, gateway=thief)).status_code == 401


@pytest.fixture
async def at_custody():
    async with border() as at:
        yield at


async def test_custody_relayer_needs_no_secret_and_each_custody_keeps_to_itself(at_custody: Border) -> None:
    at = at_custody
    body = {**MEMORY, "namespace": "researcher/plain"}
    assert (await at.call("POST", "/v1/memories", body, key=False)).status_code == 200
    empty = at.memory_key(namespace="researcher/plain", secret=b"")
    listed = await at.call("GET", "/v1/memories", key=empty)
    assert listed.json()["total"] == 1
    named = await at.call("GET", "/v1/namespaces", key=False)
    assert [item["custody"] for item in named.json()["namespaces"]] == [Custody.RELAYER.value]
    own = at.memory_key(namespace="researcher/plain", secret=b"s" * 32)
    answer = await at.call("GET", "/v1/memories", key=own)
    assert (answer.status_code, answer.json()["code"]) == (409, "wrong_custody")


@pytest.mark.row("MW-50", level="e2e")
async def test_a_revocation_over_http_shuts_the_agent_out_and_drops_its_open_namespace(
    at_custody: Border,
) -> None:
    at = at_custody
    assert (await at.call("POST", "/v1/memories", MEMORY)).status_code == 200
    assert len(at.relayer.context.namespaces) == 1
    body = {"revocations": base64url.encode(revocations_of(at.gateway))}
    refused = await at.call("PUT", "/v1/account/revocations", body, key=False)
    assert refused.json()["code"] == "unauthorized"
    hidden = await at.call("GET", "/v1/account/revocations", key=False)
    assert hidden.json()["code"] == "unauthorized"
    admin = replace(at.gateway, agent="admin", rights=(Right.ADMIN,))
    answer = await at.call("PUT", "/v1/account/revocations", body, key=False, gateway=admin)
    assert (answer.status_code, answer.json()) == (200, {"counter": 1})
    kept = await at.call("GET", "/v1/account/revocations", key=False, gateway=admin)
    assert (kept.status_code, kept.json()) == (200, body)
    assert len(at.relayer.context.namespaces) == 0
    assert len(at.relayer.acceptance._sealed_keys) == 0
    assert (await at.call("POST", "/v1/recall", {"query": "kept"})).json()["code"] == "unauthorized"


@pytest.mark.row("MW-41", level="e2e")
async def test_an_agent_that_used_up_its_tokens_is_told_when_to_come_back_polls_included() -> None:
    async with border(clock=StoppedClock()) as at:
        turn = {"turns": [{"role": "user", "text": "ok"}]}
        other = replace(at.gateway, agent="other", namespaces=("other",))
        key = other.memory_key(at.fleet_key)
        assert (await at.call("POST", "/v1/memories", MEMORY, gateway=other, key=key)).status_code == 200
        allowed = int(AGENT.capacity / 5)
        codes = {(await at.call("POST", "/v1/analyze", turn)).status_code for _ in range(allowed)}
        assert codes == {200}
        answer = await at.call("POST", "/v1/analyze", turn)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.json()["retry_after"] == pytest.approx(5 / AGENT.per_second)
        job = await at.call("GET", "/v1/jobs/01m8079zqgt6n9m13psfyd6ak5")
        assert job.json()["code"] == "rate_limited"
    async with border(clock=StoppedClock(), rate_limits="off") as at:
        assert {(await at.call("POST", "/v1/analyze", turn)).status_code for _ in range(allowed + 1)} == {200}


class TestAuthorities:
    @pytest.mark.parametrize(
        ("host", "port", "scheme", "public", "accepted"),
        [
            (
                "127.0.0.1",
                8787,
                "http",
                None,
                ("127.0.0.1:8787", "localhost:8787", "[::1]:8787"),
            ),
            (
                "0.0.0.0",
                443,
                "https",
                "https://M.example",
                ("m.example", "127.0.0.1", "localhost", "[::1]"),
            ),
            ("192.0.2.7", 80, "http", "https://m.example:8443/", ("m.example:8443", "192.0.2.7")),
            ("2001:db8::1", 8787, "https", None, ("[2001:db8::1]:8787",)),
        ],
    )
    def test_the_accepted_names_are_those_that_lead_here(self, host, port, scheme, public, accepted) -> None:
        assert accepted_authorities(host, port, scheme=scheme, public_url=public) == accepted

    def test_a_proxy_s_default_port_is_plain(self) -> None:
        authorities = Authorities((public_authority("https://m.example"),))
        assert authorities.check("M.Example.:443") == "m.example"
        assert authorities.check("m.example") == "m.example"
        for other in ("m.example:8443", "m.example.evil", "xm.example", ""):
            with pytest.raises(HttpProblem, match="wrong_authority"):
                authorities.check(other)
