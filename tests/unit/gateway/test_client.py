from __future__ import annotations

import asyncio
import base64
import inspect
import json
import time

import pytest
from aiohttp import web
from nacl.public import PrivateKey
from nacl.signing import SigningKey
from wire_relayer import answer, hang, prover_of, strangers

from gateway_plugin.calls.calling import MAX_ANSWER_BYTES
from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.client import RelayerClient, SyncRelayerClient
from gateway_plugin.errors import (
    DeadlineExceeded,
    GatewayError,
    RelayerRefused,
    RelayerUnreachable,
    RelayerUntrusted,
    SettingsError,
)
from gateway_plugin.keys.identity import Identity, RootHolder, identify, parse_session_key
from relayer.wire import codec as base64url
from relayer.wire.schemas import AnalyzeRequest, MemoryItem, RecallRequest, RememberRequest, TurnItem
from relayer.wire.sealing import RootKeys
from relayer.wire.service import ExportRequest, ImportItem, ImportRequest

COFFEE = RememberRequest(items=(MemoryItem(text="oat milk coffee"),))
QUERY = RecallRequest(query="which coffee?")


@pytest.fixture
async def client(wire, trust_store):
    async with RelayerClient(wire.url, trust=trust_store) as made:
        yield made


class Impatient(SystemClock):
    """Counts pauses instead of taking them."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
async def impatient(wire, trust_store):
    async with RelayerClient(wire.url, trust=trust_store, clock=Impatient()) as made:
        yield made


def pauses(client: RelayerClient) -> list[float]:
    return client._clock.pauses


async def test_what_was_remembered_is_recalled_by_a_signed_and_verified_request(client, identity):
    stored = await client.remember(identity, COFFEE)
    found = await client.recall(identity, QUERY)
    assert [hit.id for hit in found.memories] == [stored.memories[0].id]


async def test_every_route_is_signed_over_its_exact_target(client, identity, wire):
    stored = await client.remember(identity, COFFEE)
    one = stored.memories[0].id
    await client.list_memories(identity, limit=3, kinds=("fact", "statement"), states=("live",))
    await client.get_memory(identity, one)
    await client.forget(identity, one)
    await client.namespaces(identity)
    await client.analyze(identity, AnalyzeRequest(turns=(TurnItem(role="user", text="I moved"),)))
    assert wire.paths() == [
        "/v1/keys",
        "/v1/memories",
        "/v1/memories?limit=3&kinds=fact,statement&states=live",
        f"/v1/memories/{one}",
        f"/v1/memories/{one}?mode=forget",
        "/v1/namespaces?limit=100",
        "/v1/analyze",
    ]


async def test_an_id_from_a_stranger_cannot_leave_its_place_in_the_path(client, identity, wire):
    with pytest.raises(RelayerRefused):
        await client.get_memory(identity, "../keys?x=1#y")
    assert wire.paths()[-1] == "/v1/memories/..%2Fkeys%3Fx%3D1%23y"


async def test_keys_are_fetched_once_and_a_sealed_key_serves_many_calls(client, identity, wire):
    for _ in range(3):
        await client.recall(identity, QUERY)
    sealed = {headers["memory-key"] for _, path, headers, _ in wire.seen if path == "/v1/recall"}
    assert wire.paths().count("/v1/keys") == 1
    assert len(sealed) == 1


async def test_namespaces_sends_no_key(client, identity, wire):
    await client.namespaces(identity)
    assert "memory-key" not in wire.seen[-1][2]


async def test_all_requests_about_a_namespace_name_one_route_to_balancers(client, holder, identity, wire):
    await client.remember(identity, COFFEE)
    await client.recall(identity, QUERY)
    coder = identify(holder, parse_session_key("agent:coder:s"), default_agent=None)
    await client.recall(coder, QUERY)
    routes = [headers.get("memory-route") for _, path, headers, _ in wire.seen if path != "/v1/keys"]
    assert routes == [identity.route, identity.route, coder.route]
    assert len(set(routes)) == 2


async def test_the_namespace_secret_is_nowhere_on_the_wire(client, identity, wire):
    await client.remember(identity, COFFEE)
    secret = identity.namespace_secret
    sent = repr([(headers, body) for _, _, headers, body in wire.seen])
    spellings = (secret.hex(), base64.b64encode(secret).decode().rstrip("="), base64url.encode(secret))
    assert not any(spelling in sent for spelling in spellings)


async def test_a_busy_relayer_is_asked_again_with_a_fresh_nonce_and_the_same_idempotency_key(
    impatient, identity, wire
):
    wire.script = [answer(503, "busy"), answer(429, "limited")]
    await impatient.remember(identity, COFFEE)
    calls = [(headers, body) for _, path, headers, body in wire.seen if path == "/v1/memories"]
    assert len({headers["memory-signature"] for headers, _ in calls}) == 3
    assert len({body for _, body in calls}) == 1
    assert wire.bodies("/v1/memories")[0]["idempotency_key"]
    assert len(wire.texts("researcher")) == 1


async def test_retry_after_is_waited_for(impatient, identity, wire):
    wire.script = [answer(429, "limited", retry_after=1.5)]
    await impatient.recall(identity, QUERY)
    assert pauses(impatient) == [1.5]


async def test_a_retry_after_beyond_the_deadline_is_not_waited_for(impatient, identity, wire):
    wire.script = [answer(429, "limited", retry_after=60)]
    with pytest.raises(RelayerRefused) as raised:
        await impatient.recall(identity, QUERY)
    assert (raised.value.code, pauses(impatient)) == ("limited", [])


async def test_a_refusal_that_waiting_cannot_change_is_not_retried(impatient, identity, wire):
    wire.script = [answer(403, "forbidden")]
    with pytest.raises(RelayerRefused) as raised:
        await impatient.recall(identity, QUERY)
    assert (raised.value.code, raised.value.status, raised.value.request_id) == ("forbidden", 403, "req-1")
    assert wire.paths().count("/v1/recall") == 1


async def test_attempts_end_sooner_for_a_turn_that_waits(impatient, identity, wire):
    wire.script = [answer(503, "busy")] * 20
    with pytest.raises(RelayerRefused):
        await impatient.recall(identity, QUERY)
    with pytest.raises(RelayerRefused):
        await impatient.remember(identity, COFFEE)
    assert wire.paths().count("/v1/recall") == 2
    assert wire.paths().count("/v1/memories") == 4


async def test_the_deadline_covers_everything_and_aborts_the_request(client, identity, wire):
    await client.recall(identity, QUERY)  # so that the relayer's keys are known
    wire.script = [hang]
    start = time.monotonic()
    with pytest.raises(DeadlineExceeded) as raised:
        await client.recall(identity, QUERY, deadline=0.2)
    assert time.monotonic() - start < 5.0  # the answer would take minutes
    assert raised.value.step == "recall"
    assert await asyncio.to_thread(wire.aborted.wait, 5)


async def test_the_relayer_is_told_how_long_it_has(client, identity, wire):
    await client.recall(identity, QUERY, deadline=1.5)
    assert 0 < int(wire.seen[-1][2]["x-deadline-ms"]) <= 1500


async def test_a_relayer_that_is_out_of_time_counts_as_a_deadline(client, identity, wire):
    wire.script = [answer(504, "deadline_exceeded")]
    with pytest.raises(DeadlineExceeded):
        await client.recall(identity, QUERY)


def other(number: int) -> Identity:
    return identify(RootHolder(RootKeys(bytes(range(32)))), parse_session_key(f"agent:other-{number}:main"))


async def test_a_slow_namespace_holds_back_no_other(client, identity, wire):
    wire.script = [hang] * 3
    for _ in range(3):
        with pytest.raises(DeadlineExceeded):
            await client.recall(identity, QUERY, deadline=0.1)
    # A call may have timed out before it arrived.
    wire.script.clear()
    assert await client.recall(other(1), QUERY)
    with pytest.raises(RelayerUnreachable, match="in namespace researcher"):
        await client.recall(identity, QUERY)
    assert client.breaker.remaining > 0


async def test_a_relayer_that_is_slow_for_three_namespaces_is_spared_by_all(client, wire):
    wire.script = [hang] * 3
    for number in range(3):
        with pytest.raises(DeadlineExceeded):
            await client.recall(other(number), QUERY, deadline=0.1)
    before = len(wire.seen)
    with pytest.raises(RelayerUnreachable, match="next try is in"):
        await client.recall(other(4), QUERY)
    assert len(wire.seen) == before


async def test_a_relayer_that_is_away_is_away_for_all_namespaces(trust_store, identity):
    async with RelayerClient("http://127.0.0.1:9", trust=trust_store, clock=Impatient()) as client:
        for _ in range(3):
            with pytest.raises(RelayerUnreachable):
                await client.recall(identity, QUERY)
        with pytest.raises(RelayerUnreachable, match="next try is in"):
            await client.recall(other(1), QUERY)


async def test_a_refusal_does_not_open_the_breaker(client, identity, wire):
    wire.script = [answer(404, "not_found")] * 5
    for _ in range(5):
        with pytest.raises(RelayerRefused):
            await client.recall(identity, QUERY)
    assert client.breaker.remaining == 0


@pytest.mark.parametrize(
    ("status", "code"),
    [(500, "corrupt_namespace"), (500, "internal_error"), (503, "upgrade_required"), (503, "queue_full")],
)
async def test_a_namespace_that_is_not_served_does_not_open_the_breaker(
    impatient, identity, wire, status, code
):
    wire.script = [answer(status, code)] * 20
    for _ in range(4):
        with pytest.raises(RelayerRefused):
            await impatient.recall(identity, QUERY)
    assert impatient.breaker.remaining == 0


async def test_a_relayer_that_serves_nobody_opens_the_breaker(impatient, identity, wire):
    wire.script = [answer(503, "store_unavailable")] * 20
    for _ in range(3):
        with pytest.raises(RelayerRefused):
            await impatient.recall(identity, QUERY)
    assert impatient.breaker.remaining > 0


@pytest.mark.parametrize("ahead", [-3600, 7200])
async def test_a_wrong_clock_is_corrected_once_and_stays_corrected(client, identity, wire, ahead):
    wire.clock_ahead = ahead
    await client.recall(identity, QUERY)
    await client.recall(identity, QUERY)
    assert abs(client.clock_offset - ahead) <= 1
    assert wire.paths().count("/v1/recall") == 3


async def test_a_relayer_that_always_blames_the_clock_is_believed_once(client, identity, wire):
    wire.script = [answer(401, "clock_skew", server_time=int(time.time()))] * 9
    with pytest.raises(RelayerRefused):
        await client.recall(identity, QUERY)
    assert wire.paths().count("/v1/recall") == 2


async def test_a_relayer_cannot_make_the_gateway_sign_for_next_year(client, identity, wire):
    wire.script = [answer(401, "clock_skew", server_time=int(time.time()) + 365 * 86_400)]
    with pytest.raises(RelayerRefused):
        await client.recall(identity, QUERY)
    assert client.clock_offset == 0


async def test_an_unknown_fleet_key_makes_the_client_fetch_the_new_one(client, identity, wire):
    await client.recall(identity, QUERY)
    wire.fleet = [PrivateKey.generate()]
    await client.recall(identity, QUERY)
    assert wire.paths().count("/v1/keys") == 2


async def test_a_relayer_that_never_knows_its_own_key_ends_the_call(client, identity, wire):
    wire.script = [answer(401, "unknown_fleet_key")] * 9
    with pytest.raises(RelayerRefused):
        await client.recall(identity, QUERY)
    assert wire.paths().count("/v1/recall") == 2


async def test_another_identity_at_the_same_address_gets_no_key(wire, trust_store, identity):
    async with RelayerClient(wire.url, trust=trust_store) as first:
        await first.recall(identity, QUERY)
    wire.identity = SigningKey.generate()
    async with RelayerClient(wire.url, trust=trust_store) as second:
        with pytest.raises(RelayerUntrusted, match="memrelay-gateway trust"):
            await second.recall(identity, QUERY)
        assert wire.paths().count("/v1/recall") == 1
        await second.trust()
        await second.recall(identity, QUERY)


async def test_a_configured_identity_is_demanded_and_pins_nothing(wire, trust_store, identity):
    async with RelayerClient(wire.url, trust=trust_store, relayer_identity=bytes(32)) as client:
        with pytest.raises(RelayerUntrusted):
            await client.recall(identity, QUERY)
    assert trust_store.pinned(wire.url) is None


async def test_a_redirect_is_not_followed(client, identity, wire):
    async def elsewhere(_):
        raise web.HTTPTemporaryRedirect("http://127.0.0.1:9/")

    wire.script = [elsewhere] * 4
    with pytest.raises(RelayerUntrusted, match="redirect"):
        await client.recall(identity, QUERY)
    assert wire.paths().count("/v1/recall") == 1


async def test_an_answer_that_is_no_relayers_is_said_to_be_that(client, identity, wire):
    async def page(_):
        return strangers(web.Response(text="<html>welcome</html>"))

    wire.script = [page]
    with pytest.raises(RelayerUntrusted, match="did not prove that it is the relayer"):
        await client.recall(identity, QUERY)
    assert client.breaker.remaining == 0
    wire.script = [page]
    with pytest.raises(RelayerUnreachable, match="does not answer as a memrelay relayer"):
        await client.version()


async def test_an_endless_answer_is_cut_off(impatient, identity, wire):
    async def endless(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(MAX_ANSWER_BYTES // 65_536 + 2):
            await response.write(bytes(65_536))
        return response

    wire.script = [endless] * 4
    with pytest.raises(RelayerUnreachable, match="more than"):
        await impatient.recall(identity, QUERY, deadline=20)


async def test_loopback_ignores_a_proxy_of_the_environment(wire, trust_store, identity, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with RelayerClient(wire.url, trust=trust_store) as client:
        await client.recall(identity, QUERY)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com", "https://example.com/prefix", "https://u:p@example.com", "ftp://x", "http://[::1", "",
    ],
)  # fmt: skip
def test_an_address_that_would_leak_or_break_signatures_is_refused(url, trust_store):
    with pytest.raises(SettingsError):
        RelayerClient(url, trust=trust_store)


def test_the_sync_form_makes_the_same_calls(wire, trust_store, identity):
    with SyncRelayerClient(wire.url, trust=trust_store) as client:
        stored = client.remember(identity, COFFEE)
        assert client.recall(identity, QUERY).memories[0].id == stored.memories[0].id
        assert client.list_memories(identity, limit=1).total == 1
        assert client.forget(identity, stored.memories[0].id).state == "forgotten"
        wire.script = [hang]
        with pytest.raises(DeadlineExceeded):
            client.recall(identity, QUERY, deadline=0.1)
    with pytest.raises(RuntimeError, match="closed"):
        client.version()


def test_the_sync_form_takes_the_same_typed_arguments() -> None:
    ours, theirs = (inspect.signature(one, eval_str=True) for one in (SyncRelayerClient, RelayerClient))
    assert [*ours.parameters.values()] == [*theirs.parameters.values()]


# An export is read line by line, and one that was cut short is not taken for whole.
HEAD = {"memrelay_export": 1, "namespace": "ops", "memories": 1}
END = {"end": True, "memories": 1}
LINE = {
    "memory": {
        "id": "0" * 26, "text": "one", "kind": "fact", "audience": "agent", "trust": "user",
        "created_at": "2026-01-01T00:00:00Z",
    }
}  # fmt: skip


@pytest.fixture
def ops():
    return identify(RootHolder(RootKeys(b"5" * 32)), parse_session_key("agent:ops:s"), default_agent=None)


def sends(*lines):
    async def scripted(_):
        return web.Response(text="".join(json.dumps(line) + "\n" for line in lines))

    return scripted


async def fetched(client, ops):
    return [memory.text async for memory in client.export(ops, ExportRequest())]


async def test_a_whole_export_gives_its_memories(client, ops, wire):
    wire.script = [None, sends(HEAD, LINE, LINE, END)]
    assert await fetched(client, ops) == ["one", "one"]


@pytest.mark.parametrize("lines", [(), (HEAD,), (HEAD, LINE)])
async def test_an_export_without_its_end_is_an_error(client, ops, wire, lines):
    wire.script = [None, sends(*lines)]
    with pytest.raises(RelayerUnreachable, match="cut short"):
        await fetched(client, ops)


@pytest.mark.parametrize(
    ("change", "proven"),
    [
        (lambda body: body.replace(b'"one"', b'"two"'), 0),
        (lambda body: body[: body.rindex(b'{"proof"')], 1),
        (lambda body: b"".join(line + b"\n" for line in body.splitlines() if b'"proof"' not in line), 0),
    ],
    ids=["changed", "cut", "unproven"],
)
async def test_what_was_changed_on_the_way_is_not_believed(client, ops, wire, change, proven):
    async def scripted(request):
        prover = prover_of(request, wire.identity)
        prover.accepted(b"")
        first = prover.line(b"".join(json.dumps(line).encode() + b"\n" for line in (HEAD, LINE)))
        body = first + prover.line(json.dumps(LINE).encode() + b"\n" + json.dumps(END).encode() + b"\n")
        assert change(body) != body
        return strangers(web.Response(body=change(body)))

    wire.script = [None, scripted]
    exported = client.export(ops, ExportRequest())
    assert [(await anext(exported)).text for _ in range(proven)] == ["one"] * proven
    with pytest.raises(RelayerUntrusted):
        await anext(exported)


async def test_a_line_separator_in_a_text_does_not_end_a_line(client, ops, wire):
    text = "one\u2028two\x85three"
    line = {"memory": {**LINE["memory"], "text": text}}
    body = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in (HEAD, line, END))

    async def scripted(_):
        return web.Response(text=body)

    wire.script = [None, scripted]
    assert await fetched(client, ops) == [text]


async def test_what_is_no_export_is_an_error(client, ops, wire):
    wire.script = [None, sends(["not", "an", "object"])]
    with pytest.raises(RelayerUnreachable, match="no export"):
        await fetched(client, ops)


async def test_a_refusal_is_told_as_one(client, ops, wire):
    wire.script = [None, answer(409, "wrong_namespace_key")]
    with pytest.raises(RelayerRefused) as caught:
        await fetched(client, ops)
    assert caught.value.code == "wrong_namespace_key"


async def test_leaving_the_context_closes_the_client(wire, trust_store, ops):
    async with RelayerClient(wire.url, trust=trust_store) as made:
        await made.list_memories(ops)
    with pytest.raises(GatewayError, match="closed"):
        await made.list_memories(ops)


async def test_the_retry_of_an_import_is_the_same_write_and_another_import_is_not(client, ops, wire):
    request = ImportRequest(memories=(ImportItem(text="one"),))
    stored = sends({"memories": [{"status": "stored"}]})
    wire.script = [answer(503, "overloaded"), stored]
    await client.import_memories(ops, request)
    wire.script = [stored]
    await client.import_memories(ops, request)
    first, retry, second = (body["idempotency_key"] for body in wire.bodies("/v1/import"))
    assert first == retry != second
