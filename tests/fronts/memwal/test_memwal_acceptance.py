"""Who is let in by the front for MemWal's clients: signature, window, nonce, account, points; and what never reaches a log."""

from __future__ import annotations

import io
import json

import pytest
from doubles.faulty_store import FaultyStore
from memwal_calls import SEAL_SESSION, MemWalCaller
from nacl.signing import SigningKey

from relayer.access.accounts import DelegateKey, Registration
from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.fronts.memwal.contract import address_of, inner_account
from relayer.telemetry import configure
from relayer.testing.local_relayer import LocalRelayer, local_relayer
from relayer.wire.sealing import account_id

STATS = "/api/stats"


@pytest.mark.row("MW-37", level="e2e")
async def test_a_key_without_any_account_is_its_own(caller: MemWalCaller) -> None:
    answer = await caller.post(STATS)
    assert answer.status_code == 200
    assert answer.json()["owner"] == address_of(bytes(caller.key.verify_key))


@pytest.mark.row("MW-37", level="e2e")
@pytest.mark.parametrize("missing", ["x-public-key", "x-signature", "x-timestamp"])
async def test_a_missing_header_is_a_401_with_an_empty_body(caller: MemWalCaller, missing: str) -> None:
    headers = caller.headers("POST", STATS, b"{}")
    del headers[missing]
    answer = await caller.send("POST", STATS, b"{}", headers)
    assert (answer.status_code, answer.content) == (401, b"")
    assert answer.headers["x-request-id"]


@pytest.mark.row("MW-37", level="e2e")
async def test_a_missing_nonce_is_a_426(caller: MemWalCaller) -> None:
    headers = caller.headers("POST", STATS, b"{}")
    del headers["x-nonce"]
    answer = await caller.send("POST", STATS, b"{}", headers)
    assert (answer.status_code, answer.content) == (426, b"")
    legacy = caller.legacy_headers("POST", STATS, b"{}")
    assert (await caller.send("POST", STATS, b"{}", legacy)).status_code == 426


@pytest.mark.row("MW-37", level="e2e")
@pytest.mark.parametrize(("header", "value"), [
    ("x-nonce", "not-a-uuid"),
    ("x-timestamp", "yesterday"),
    ("x-timestamp", "-5"),
    ("x-public-key", "zz" * 32),
    ("x-public-key", "ab" * 31),
    ("x-signature", "ab" * 63),
    ("x-signature", "ab" * 64),
])  # fmt: skip
async def test_what_is_not_in_form_is_a_401(caller: MemWalCaller, header: str, value: str) -> None:
    # Signed as it is sent, where it is: it must not be the signature alone that refuses it.
    field = {"x-nonce": "nonce", "x-timestamp": "stamp"}.get(header)
    headers = caller.headers("POST", STATS, b"{}", signed={field: value} if field else {}) | {header: value}
    answer = await caller.send("POST", STATS, b"{}", headers)
    assert (answer.status_code, answer.content) == (401, b"")


@pytest.mark.row("MW-37", level="e2e")
@pytest.mark.parametrize("what", ["stamp", "method", "target", "digest", "nonce", "account"])
async def test_each_signed_field_is_covered(caller: MemWalCaller, what: str) -> None:
    answer = await caller.post(STATS, signed={what: "7"})
    assert (answer.status_code, answer.content) == (401, b"")


async def test_the_query_and_the_raw_bytes_are_what_is_signed(caller: MemWalCaller) -> None:
    target = f"/v1/owners/{caller.account}/namespaces?limit=5"
    assert (await caller.get(target)).status_code == 200
    headers = caller.headers("GET", target, b"")
    assert (await caller.send("GET", target.replace("=5", "=6"), b"", headers)).status_code == 401
    spaced = b'{ "namespace" : "caf\xc3\xa9" }'
    assert (
        await caller.send("POST", STATS, spaced, caller.headers("POST", STATS, spaced))
    ).status_code == 200


@pytest.mark.row("MW-37", level="e2e")
async def test_a_stamp_outside_of_the_window_says_so(caller: MemWalCaller) -> None:
    for ahead in (-299, 299):
        assert (await caller.post(STATS, ahead=ahead)).status_code == 200
    for ahead in (-302, 302):
        answer = await caller.post(STATS, ahead=ahead)
        assert (answer.status_code, answer.content) == (401, b"")
        assert answer.headers["x-auth-error"] == "ERR_TIMESTAMP_OUT_OF_BOUNDS"


@pytest.mark.row("MW-37", level="e2e")
async def test_a_nonce_counts_once_and_nobody_can_burn_another_keys(caller: MemWalCaller) -> None:
    headers = caller.headers("POST", STATS, b"{}")
    forged = headers | {"x-signature": "00" * 64}
    assert (await caller.send("POST", STATS, b"{}", forged)).status_code == 401
    assert (await caller.send("POST", STATS, b"{}", headers)).status_code == 200
    assert (await caller.send("POST", STATS, b"{}", headers)).status_code == 401
    other = MemWalCaller(caller.relayer)
    own = other.headers("POST", STATS, b"{}", signed={"nonce": headers["x-nonce"]})
    assert (await other.send("POST", STATS, b"{}", own | {"x-nonce": headers["x-nonce"]})).status_code == 200


async def test_what_depends_on_secrets_or_state_is_refused_after_the_same_time(caller: MemWalCaller) -> None:
    headers = caller.headers("POST", STATS, b"{}")
    await caller.send("POST", STATS, b"{}", headers)
    wrong = [
        headers,
        headers | {"x-nonce": "no"},
        caller.headers("POST", STATS, b"{}", signed={"nonce": "1"}),
    ]
    stranger = MemWalCaller(caller.relayer, account="0x" + "ab" * 32)
    wrong.append(stranger.headers("POST", STATS, b"{}"))
    for one in wrong:
        answer = await caller.send("POST", STATS, b"{}", one)
        assert answer.status_code == 401
        assert answer.elapsed.total_seconds() >= 0.1


@pytest.mark.row("MW-37", level="e2e")
async def test_a_key_signs_for_its_own_account_alone(caller: MemWalCaller) -> None:
    await caller.remember("The vault's code is kept by Ines.")
    stranger = MemWalCaller(caller.relayer, account=caller.account)
    answer = await stranger.post("/api/recall", {"query": "vault"})
    assert (answer.status_code, answer.content) == (401, b"")
    assert await MemWalCaller(caller.relayer).recalled("vault") == []
    for account in ("0x1234567890", "0X" + "ab" * 32, "somebody"):
        assert (await MemWalCaller(caller.relayer, account=account).post(STATS)).status_code == 401


@pytest.mark.row("MW-37", level="e2e")
async def test_a_registered_account_is_its_keys_and_a_revoked_one_is_out() -> None:
    first, second, clock = SigningKey.generate(), SigningKey.generate(), SystemClock()
    shown = "0x" + "5a" * 32
    keys = tuple(DelegateKey(bytes(key.verify_key)) for key in (first, second))
    store = MemoryStore(clock)
    async with local_relayer(store) as relayer:
        accounts = relayer.relayer.accounts
        await accounts.register(inner_account(shown), lambda _: Registration(shown, keys))
        one, other = MemWalCaller(relayer, first, shown), MemWalCaller(relayer, second, shown)
        await one.remember("The lease ends in June.")
        assert await other.recalled("lease") == ["The lease ends in June."]
        await accounts.register(inner_account(shown), lambda _: Registration(shown, keys[:1]))
        assert (await other.post(STATS)).status_code == 401
        assert (await one.post(STATS)).status_code == 200
        # A key whose account is registered without it does not come in by its own address either.
        alone = address_of(bytes(second.verify_key))
        await accounts.register(inner_account(alone), lambda _: Registration(alone, ()))
        assert (await MemWalCaller(relayer, second).post(STATS)).status_code == 401
    async with local_relayer(store) as relayer:
        assert (await MemWalCaller(relayer, first, shown).post(STATS)).status_code == 200
        assert (await MemWalCaller(relayer, second, shown).post(STATS)).status_code == 401


async def test_where_accounts_are_listed_no_other_key_comes_in() -> None:
    key = SigningKey.generate()
    async with local_relayer(accounts=address_of(bytes(key.verify_key))) as relayer:
        assert (await MemWalCaller(relayer, key).post(STATS)).status_code == 200
        assert (await MemWalCaller(relayer).post(STATS)).status_code == 401


@pytest.mark.row("MW-37", level="e2e")
async def test_gateways_and_memwals_clients_never_share_an_account(relayer: LocalRelayer) -> None:
    """The key of a gateway's account gets nothing of its memories here, and none of what is here is a gateway's."""
    await relayer.call("POST", "/v1/memories", {"items": [{"text": "The gateway's own memory."}]})
    gateway = relayer.gateway
    root = MemWalCaller(relayer, gateway.root.account_identity)
    assert root.account == account_id(bytes(gateway.root.account_identity.verify_key))
    assert await root.recalled("memory") == []
    await root.remember("Remembered through the other front.")
    native = await relayer.call("GET", "/v1/namespaces", key=False)
    assert "memwal" not in native.text
    listed = await root.get(f"/v1/owners/{root.account}/namespaces")
    assert [one["name"] for one in listed.json()["namespaces"]] == ["default"]


@pytest.mark.row("MW-37", level="e2e")
async def test_where_the_store_is_silent_a_key_is_not_told_to_be_wrong() -> None:
    clock = SystemClock()
    store = FaultyStore(MemoryStore(clock), clock=clock, seed=1)
    async with local_relayer(store) as relayer:
        store.down = True
        answer = await MemWalCaller(relayer).post(STATS)
        assert answer.status_code == 503
        assert answer.headers["x-auth-error"] == "AUTH_UPSTREAM_UNAVAILABLE"
        store.down = False
        assert (await MemWalCaller(relayer).post(STATS)).status_code == 200


@pytest.mark.row("MW-37", level="e2e")
async def test_legacy_clients_are_let_in_where_the_operator_says_so() -> None:
    async with local_relayer(compat_legacy=True) as relayer:
        caller, raw = MemWalCaller(relayer), b'{"text":"The boat is blue.","namespace":"default"}'
        headers = caller.legacy_headers("POST", "/api/remember", raw)
        answer = await caller.send("POST", "/api/remember", raw, headers)
        assert answer.status_code == 200
        assert set(answer.json()) == {"id", "blob_id", "owner", "namespace"}
        assert (await caller.send("POST", "/api/remember", raw, headers)).status_code == 401, "a replay"
        version = (await relayer.http.get(relayer.url + "/version")).json()
        assert version["deprecations"][0]["surface"] == "requests without x-nonce"


@pytest.mark.row("MW-37", level="e2e")
async def test_what_is_secret_in_a_request_never_reaches_a_log() -> None:
    written = io.StringIO()
    configure("json", "debug", written)
    async with local_relayer(compat_legacy=True) as relayer:
        caller = MemWalCaller(relayer)
        await caller.remember("The canary sings at dawn.")
        await caller.recalled("which canary?")
        raw = b'{"query":"canary sings"}'
        headers = caller.legacy_headers("POST", "/api/recall", raw) | {
            "authorization": "Bearer bearer-canary"
        }
        await caller.send("POST", "/api/recall", raw, headers)
        await caller.send("POST", "/api/recall", raw, headers | {"x-signature": "00" * 64})
        await caller.post("/api/recall", {"query": 5})
        metrics = (await relayer.http.get(relayer.url + "/metrics")).text
    private = bytes(caller.key).hex()
    log = written.getvalue()
    assert "/api/recall" in log
    for secret in (
        SEAL_SESSION,
        private,
        "bearer-canary",
        "canary",
        caller.account[2:],
        headers["x-signature"],
    ):
        assert secret not in log
        assert secret not in metrics


@pytest.mark.row("MW-37", level="e2e")
async def test_points_run_out_in_the_layer_that_is_named_with_the_true_wait() -> None:
    async with local_relayer(compat_limits="30/60/500") as relayer:
        caller = MemWalCaller(relayer)
        jobs = [await caller.remember(f"Note number {number}.") for number in range(6)]
        answer = await caller.post("/api/remember", {"text": "One too many."})
        assert answer.status_code == 429
        told = answer.json()
        assert told["error"] == "Rate limit exceeded"
        assert (told["layer"], told["limit"]) == ("delegate_key", "30 weighted-requests/min")
        # Five points come back in ten seconds.
        assert answer.headers["retry-after"] == str(told["retry_after_seconds"])
        assert 8 <= told["retry_after_seconds"] <= 10
        status = await caller.get(f"/api/remember/{jobs[0]}")
        assert status.status_code == 200, "asking what became of a write is free"
        config = (await relayer.http.get(relayer.url + "/config")).json()
        assert config["rateLimitDisabled"] is False
        metrics = (await relayer.http.get(relayer.url + "/metrics")).text
        assert 'memwal_rate_limit_denials_total{bucket="delegate_key",route="/api/remember"} 1.0' in metrics


async def test_without_rate_limits_the_configuration_says_so() -> None:
    async with local_relayer(compat_limits="5/5/5", rate_limits="off") as relayer:
        caller = MemWalCaller(relayer)
        for number in range(3):
            await caller.remember(f"Note number {number}.")
        assert (await relayer.http.get(relayer.url + "/config")).json()["rateLimitDisabled"] is True


async def test_a_body_of_more_than_2_mib_is_refused_and_one_below_is_read(caller: MemWalCaller) -> None:
    large = json.dumps({"text": "x" * (1024 * 1024)}).encode()
    answer = await caller.send("POST", "/api/remember", large, caller.headers("POST", "/api/remember", large))
    assert answer.status_code == 202
    large = b" " * (2 * 1024 * 1024 + 1)
    answer = await caller.send("POST", STATS, large, caller.headers("POST", STATS, large))
    assert answer.status_code in {400, 413}


@pytest.mark.row("MW-38", level="e2e")
async def test_off_loopback_nobody_is_served_who_was_not_asked_for() -> None:
    for settings, served in (({}, True), ({"compat": "off"}, False), ({"public_url": "https://memory.example.org", "accounts": "open"}, False)):  # fmt: skip
        async with local_relayer(**settings) as relayer:  # type: ignore[arg-type]
            answer = await relayer.http.get(relayer.url + "/config")
            assert (answer.status_code == 200) is served
    async with local_relayer(
        public_url="https://memory.example.org", accounts="open", compat="memwal"
    ) as relayer:
        config = (await relayer.http.get(relayer.url + "/config")).json()
        assert config["suiRpcUrl"] == "https://memory.example.org/sui"
