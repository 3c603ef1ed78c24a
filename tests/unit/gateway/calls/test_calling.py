from __future__ import annotations

import contextlib
import socket
import ssl
import threading

import pytest
from certificates import self_signed

from gateway_plugin.calls.calling import Transport
from gateway_plugin.calls.trust import Endpoint
from gateway_plugin.errors import RelayerUnreachable, RelayerUntrusted


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
    transport = Transport(Endpoint.parse(origin))
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
