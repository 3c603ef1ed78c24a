"""One machine that makes accounts, asks as nobody, or says that it is somebody else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from border import Border, border
from signed_calls import Gateway

from relayer.access.accounts import AccountCaps
from relayer.adapters.memory_store import MemoryStore
from relayer.http.limits import STRANGERS
from relayer.testing.fake_clock import FakeClock
from relayer.wire import codec as base64url
from relayer.wire.signing import Revocations, Right

MEMORY = {"items": [{"text": "The tide gauge stands behind the boathouse."}]}
HOURLY = AccountCaps().per_address_and_hour


async def _remember(at: Border, gateway: Gateway, **headers: str) -> int:
    extra = {name.replace("_", "-"): value for name, value in headers.items()}
    key = gateway.memory_key(at.fleet_key)
    return (await at.call("POST", "/v1/memories", MEMORY, gateway=gateway, key=key, extra=extra)).status_code


async def test_a_peer_on_loopback_makes_no_more_accounts_than_any_other() -> None:
    async with border(accounts="open") as at:
        codes = Counter([await _remember(at, Gateway()) for _ in range(HOURLY + 10)])
        assert codes == {200: HOURLY, 429: 10}
        assert at.store.count("create", "acct/") == 2 * HOURLY
        refused = await at.call("POST", "/v1/memories", MEMORY)
        assert refused.json()["code"] == "rate_limited"
        # One more every three minutes.
        assert 60 < int(refused.headers["retry-after"]) <= 180
        assert at.store.count("create", "acct/") == 2 * HOURLY


async def test_a_peer_cannot_name_itself_and_a_trusted_proxy_can_name_it() -> None:
    async with border(accounts="open") as at:
        codes = [
            await _remember(at, Gateway(), x_forwarded_for=f"198.51.100.{number}")
            for number in range(HOURLY + 5)
        ]
        assert codes.count(429) == 5
    async with border(accounts="open", trusted_proxy="127.0.0.0/8,192.0.2.0/24") as at:
        # What the peer wrote itself stands to the left of what the proxies added, and is not looked at.
        lists = (f"198.51.100.{number}, 203.0.113.9, 192.0.2.1" for number in range(HOURLY + 5))
        codes = [await _remember(at, Gateway(), x_forwarded_for=value) for value in lists]
        assert codes.count(429) == 5
        codes = [
            await _remember(at, Gateway(), x_forwarded_for=f"198.51.100.{number}")
            for number in range(HOURLY + 5)
        ]
        assert codes.count(200) == HOURLY + 5


async def test_requests_that_store_nothing_make_no_account() -> None:
    async with border(accounts="open") as at:
        nothing = {"turns": [{"role": "user", "text": "ok"}]}
        for method, target, body in (
            ("POST", "/v1/analyze", nothing),
            ("POST", "/v1/memories/delete", {"dry_run": True, "kinds": ["fact"]}),
            ("DELETE", "/v1/memories/01m8079zqgt6n9m13psfyd6ak5", None),
            ("POST", "/v1/recall", {"query": "anything"}),
        ):
            assert (await at.call(method, target, body)).status_code < 500
        assert at.store.count("create", "acct/") == 0


async def test_strangers_of_one_peer_share_what_it_may_ask_and_accounts_are_not_held_up() -> None:
    # The clock stands still: on a busy machine the requests take so long that the peer's bucket fills up again.
    clock = FakeClock()
    async with border(MemoryStore(clock), clock, accounts="open") as at:
        at.gateway = Gateway(clock=clock)
        assert await _remember(at, at.gateway) == 200
        job = "01m8079zqgt6n9m13psfyd6ak5"
        kinds = (
            ("POST", "/v1/recall", {"query": "anything"}, Right.READ),
            ("GET", f"/v1/jobs/{job}", None, Right.READ),
            ("GET", f"/v1/erasures/{job}", None, Right.READ),
            ("GET", "/v1/account/revocations", None, Right.ADMIN),
        )
        codes: Counter[int] = Counter()
        for number in range(int(STRANGERS.capacity) + 100):
            method, target, body, right = kinds[number % len(kinds)]
            stranger = Gateway(rights=(right,), clock=clock)
            key = stranger.memory_key(at.fleet_key) if right is Right.READ else False
            answer = await at.call(method, target, body, gateway=stranger, key=key)
            codes[answer.status_code] += 1
        assert codes[429] >= 100
        assert (await at.call("POST", "/v1/recall", {"query": "tide gauge"})).status_code == 200


async def test_an_account_that_only_revokes_counts_as_one() -> None:
    async with border(accounts="open") as at:
        codes = []
        for _ in range(HOURLY + 3):
            gateway = Gateway(rights=(Right.ADMIN,))
            account = gateway.root.account_identity
            encoded = _list_of(account)
            answer = await at.call(
                "PUT", "/v1/account/revocations", {"revocations": encoded}, key=False, gateway=gateway
            )
            codes.append(answer.status_code)
        assert codes.count(200) == HOURLY
        # The account's object, and the list beside it.
        assert at.store.count("create", "acct/") == 2 * HOURLY
        assert await _remember(at, replace(at.gateway)) == 429


def _list_of(account) -> str:
    return base64url.encode(Revocations(bytes(account.verify_key), 1).issue(account))
