from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading

import aiohttp
import pytest
from certificates import self_signed

from gateway_plugin.calls.calling import Transport
from gateway_plugin.calls.trust import RelayerAddress
from gateway_plugin.errors import GatewayError, RelayerUnreachable, RelayerUntrusted


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
    transport = Transport(RelayerAddress.parse(origin))
    try:
        return await transport.send("GET", "/health", headers={}, patience=5)
    finally:
        await transport.aclose()


async def test_a_certificate_that_does_not_verify_is_named_as_the_cause(unknown_to_all):
    with pytest.raises(RelayerUntrusted, match="SSL_CERT_FILE"):
        await get(f"https://localhost:{unknown_to_all}")


async def test_nobody_listening_is_no_matter_of_trust(unused_tcp_port):
    with pytest.raises(RelayerUnreachable):
        await get(f"https://localhost:{unused_tcp_port}")


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
