"""Errors of AWS KMS that moto does not imitate, as botocore reads them from documented responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from relayer.adapters.aws_key import AwsKey
from relayer.errors import ConfigurationError, KeyProviderUnavailable

ARN = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd"


class Service(HTTPServer):
    """A server that gives every request the same response."""

    response: tuple[int, str] = (400, "")


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status, code = self.server.response
        content = json.dumps({"__type": code, "message": ""}).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def service(s3_credentials: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    server = Service(("127.0.0.1", 0), Handler)
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("code", ["IncorrectKeyException", "InvalidCiphertextException"])
async def test_a_store_key_of_another_key_is_not_an_error_of_the_service(service: Service, code: str) -> None:
    service.response = 400, code
    assert await AwsKey(ARN).unwrap(b"wrapped") is None


@pytest.mark.parametrize(
    ("response", "error"),
    [
        ((400, "AccessDeniedException"), ConfigurationError),
        ((400, "DisabledException"), ConfigurationError),
        ((400, "ThrottlingException"), KeyProviderUnavailable),
        ((500, "KMSInternalException"), KeyProviderUnavailable),
    ],
)
async def test_a_refusal_is_told_apart_from_a_failure(
    service: Service, response: tuple[int, str], error: type[Exception]
) -> None:
    service.response = response
    for asked in (AwsKey(ARN).unwrap(b"wrapped"), AwsKey(ARN).wrap(bytes(32))):
        with pytest.raises(error, match=response[1]):
            await asked
