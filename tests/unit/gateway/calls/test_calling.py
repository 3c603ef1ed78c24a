from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading

import aiohttp
import pytest
from certificates import self_signed
from wire_relayer import SECRET, answer

from gateway_plugin import MemoryPlugin
from gateway_plugin.calls.calling import Outages, RelayerBreaker, Transport
from gateway_plugin.calls.trust import RelayerAddress
from gateway_plugin.errors import (
    DeadlineExceeded,
    GatewayError,
    RelayerRefused,
    RelayerUnreachable,
    RelayerUntrusted,
)


@pytest.fixture
def unknown_to_all(tmp_path):
    """A server with a certificate that no machine knows; it takes one connection and has let go of it at the end."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed(tmp_path))

    def take_one(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            context.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=take_one, args=(listener,), daemon=True)
        server.start()
        yield listener.getsockname()[1]
        server.join(10)


async def get(origin):
    async with contextlib.aclosing(Transport(RelayerAddress.parse(origin))) as transport:
        return await transport.send("GET", "/health", headers={}, patience=5)


async def test_a_certificate_that_does_not_verify_is_named_as_the_cause(unknown_to_all):
    with pytest.raises(RelayerUntrusted, match="SSL_CERT_FILE"):
        await get(f"https://localhost:{unknown_to_all}")


@pytest.fixture
async def proxy(monkeypatch):
    """A proxy that the environment names: what it was asked for; it refuses."""
    asked = []

    async def refuse(reader, writer):
        asked.append((await reader.readline()).decode().strip())
        writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    for name in ("https_proxy", "http_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for name in ("HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(name, address)
    yield asked
    server.close()


async def test_a_relayer_elsewhere_is_reached_through_the_proxy_that_the_environment_names(proxy):
    with pytest.raises(RelayerUnreachable):
        await get("https://relayer.example.org")
    assert proxy == ["CONNECT relayer.example.org:443 HTTP/1.1"]


async def test_nothing_of_this_machine_goes_through_a_proxy(proxy, unused_tcp_port):
    for origin in (f"http://127.0.0.1:{unused_tcp_port}", f"https://localhost:{unused_tcp_port}"):
        with pytest.raises(RelayerUnreachable):
            await get(origin)
    assert proxy == []


async def test_no_proxy_is_asked_for_what_the_environment_leaves_out(proxy, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "relayer.invalid")
    with pytest.raises(RelayerUnreachable):
        await get("https://relayer.invalid")
    assert proxy == []


async def test_a_proxy_that_is_away_is_named_as_the_cause(monkeypatch, unused_tcp_port):
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:password@127.0.0.1:{unused_tcp_port}")
    with pytest.raises(RelayerUnreachable, match="proxy") as raised:
        await get("https://relayer.example.org")
    assert "password" not in str(raised.value)


async def test_who_tries_again_when_the_connections_are_closed_opens_none(unused_tcp_port):
    transport = Transport(RelayerAddress.parse(f"http://127.0.0.1:{unused_tcp_port}"))
    await transport.aclose()
    with pytest.raises(GatewayError, match="closed"):
        await transport.send("GET", "/health", headers={}, patience=1)


async def test_a_name_that_nobody_looks_up_is_not_waited_for():
    class Silent(aiohttp.DefaultResolver):
        async def resolve(self, *_, **__):
            await asyncio.Event().wait()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=Silent())) as http:
        transport = Transport(RelayerAddress.parse("https://relayer.example.org"), http)
        async with asyncio.timeout(30):
            with pytest.raises(RelayerUnreachable, match="failed"):
                await transport.send("GET", "/health", headers={}, patience=0.05)


@pytest.fixture
def opened(clock):
    breaker = RelayerBreaker(clock)
    for _ in range(3):
        breaker.check()
        breaker.failed_by(None)
    return breaker


@pytest.mark.row("AM-26")
def test_three_failures_close_the_way_and_each_more_for_longer_up_to_a_minute(opened, clock):
    pauses = []
    for _ in range(8):
        pauses.append(opened.remaining)
        with pytest.raises(RelayerUnreachable):
            opened.check()
        clock.at += opened.remaining
        opened.check()
        opened.failed_by(None)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_relayer_whose_port_is_closed_is_tried_every_second_however_long_it_is_away(opened, clock):
    for _ in range(8):
        clock.at += opened.remaining
        opened.check()
        opened.failed_by(None)
    for _ in range(100):
        clock.at += opened.remaining
        opened.check()
        opened.failed_by(RelayerUnreachable("no relayer answers"))
        assert opened.remaining == 1
    # The first calls to a relayer that has just been started may be slow.
    clock.at += 1
    opened.check()
    opened.failed_by(None)
    assert opened.remaining == 2


def test_after_the_pause_one_call_tries_and_lets_everybody_through_if_it_succeeds(opened, clock):
    clock.at += 60
    opened.check()
    with pytest.raises(RelayerUnreachable):
        opened.check()
    opened.succeeded()
    opened.check()
    opened.check()


def test_a_success_in_between_starts_the_count_again(clock):
    breaker = RelayerBreaker(clock)
    for _ in range(5):
        breaker.failed_by(None)
        breaker.failed_by(None)
        breaker.succeeded()
    breaker.check()
    assert breaker.remaining == 0


def test_while_a_stranger_answers_the_breaker_says_so(opened, clock):
    opened.failed_by(RelayerUntrusted("somebody else answers"))
    with pytest.raises(RelayerUntrusted, match=r"somebody else answers .*next try is in 2 s"):
        opened.check()
    clock.at += 61
    opened.check()
    opened.failed_by(RelayerUnreachable("nobody answers"))
    with pytest.raises(RelayerUnreachable, match="next try is in"):
        opened.check()


# An outage is told once when it begins and once when it ends, by default, on standard error.
QUESTION = "Where do I always park my bicycle?"


@pytest.fixture
def told():
    return []


@pytest.fixture
def outages(told):
    return Outages("http://relayer", told.append)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RelayerUnreachable("nobody answers"), "unavailable"),
        (RelayerUntrusted("another one"), "untrusted"),
        (RelayerRefused("not_accepted", "unknown account", status=401), "refused:not_accepted"),
    ],
)
def test_the_beginning_and_the_end_are_told_once(outages, told, error, status):
    for _ in range(5):
        outages.heard(error)
    assert len(told) == 1
    assert f"({status})" in told[0]
    outages.heard(None)
    outages.heard(None)
    assert len(told) == 2
    assert "answers again" in told[1]


def test_slow_and_away_are_one_outage_and_one_slow_turn_is_none(outages, told):
    outages.heard(DeadlineExceeded("recall"))
    outages.heard(None)
    assert told == []
    for error in (
        RelayerUnreachable("a"),
        DeadlineExceeded("b"),
        DeadlineExceeded("c"),
        RelayerUnreachable("d"),
    ):
        outages.heard(error)
    assert len(told) == 1


def test_what_is_refused_of_one_request_is_no_outage(outages, told):
    outages.heard(RelayerRefused("too_long", "the query", status=422))
    assert told == []


@pytest.mark.row("CP-30", level="e2e")
def test_a_turn_whose_recall_fails_goes_on_and_a_warning_is_printed(wire, environ, capsys):
    with MemoryPlugin(wire.url, secret=SECRET, environ=environ) as plugin:
        wire.script = [answer(401, "not_accepted")]
        turn = plugin.before_turn(QUESTION)
        assert (turn.text, turn.status) == ("", "refused:not_accepted")
        assert plugin.before_turn(QUESTION).status in {"ok", "empty"}
    said = capsys.readouterr().err
    assert said.index("memory does not work (refused:not_accepted)") < said.index("answers again")
    assert "bicycle" not in said
