from __future__ import annotations

import asyncio
import ssl

import pytest
from certificates import self_signed

from gateway_plugin.endpoint import Endpoint
from gateway_plugin.errors import RelayerUnreachable, RelayerUntrusted
from gateway_plugin.transport import Transport


@pytest.fixture
def unknown_to_all(tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed(tmp_path))
    return context


async def get(origin):
    transport = Transport(Endpoint.parse(origin))
    try:
        return await transport.send("GET", "/health", headers={}, patience=5)
    finally:
        await transport.aclose()


async def test_a_certificate_that_does_not_verify_is_named_as_the_cause(unknown_to_all):
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=unknown_to_all)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(RelayerUntrusted, match="SSL_CERT_FILE"):
            await get(f"https://localhost:{port}")


async def test_nobody_listening_is_no_matter_of_trust(unused_tcp_port):
    with pytest.raises(RelayerUnreachable):
        await get(f"https://localhost:{unused_tcp_port}")
