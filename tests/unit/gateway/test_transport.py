from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from gateway_plugin.endpoint import Endpoint
from gateway_plugin.errors import RelayerUnreachable, RelayerUntrusted
from gateway_plugin.transport import Transport


@pytest.fixture
def self_signed(tmp_path):
    """A server context whose certificate no machine knows."""
    key = generate_private_key(SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, SHA256())
    )
    pem = tmp_path / "server.pem"
    pem.write_bytes(
        certificate.public_bytes(Encoding.PEM)
        + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


async def get(origin):
    transport = Transport(Endpoint.parse(origin))
    try:
        return await transport.send("GET", "/health", headers={}, patience=5)
    finally:
        await transport.aclose()


async def test_a_certificate_that_does_not_verify_is_named_as_the_cause(self_signed):
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=self_signed)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(RelayerUntrusted, match="SSL_CERT_FILE"):
            await get(f"https://localhost:{port}")


async def test_nobody_listening_is_no_matter_of_trust(unused_tcp_port):
    with pytest.raises(RelayerUnreachable):
        await get(f"https://localhost:{unused_tcp_port}")
