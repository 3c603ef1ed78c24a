"""Requests to a bucket: where they go, with which credentials, and answers that have no end."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from scripted_s3 import DATE, Reply, Request, ScriptedS3, refusal, serving, stored

from relayer.adapters.s3_store import S3Store, Timeouts
from relayer.adapters.s3_store.client import LONGEST_ANSWER, Client, NoSuccess
from relayer.adapters.system import SystemClock
from relayer.errors import StoreMisconfigured, StoreUnavailable
from relayer.ports import Created, Found, Unknown

KEY = "ns/0f/wal/00000000000000000001"
QUICK = Timeouts(connect=2.0, silence=1.0, call=20.0)


@pytest.fixture
def server() -> Iterator[ScriptedS3]:
    with serving(ScriptedS3) as running:
        yield running


@pytest.fixture(autouse=True)
def only_these_credentials(s3_credentials: None) -> None:
    """Nothing of the developer's own."""


def _client(url: str | None, region: str | None = None) -> Client:
    return Client("memories", url, region, 2, Timeouts(2.0, 2.0, 5.0))


def test_requests_go_through_the_proxy_of_the_environment(
    server: ScriptedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("HTTP_PROXY", server.url)
    client = _client("http://s3.example.org")
    server.will_answer(stored())
    client.ask("put_object", Key=KEY, Body=b"", IfNoneMatch="*")
    [request] = server.requests
    assert request.path == f"http://s3.example.org/memories/{KEY}"
    client.close()


def test_a_body_is_sent_with_its_header(server: ScriptedS3) -> None:
    client = _client(server.url)
    server.will_answer(stored())
    client.ask("put_object", Key=KEY, Body=b"new", IfNoneMatch="*")
    [request] = server.requests
    assert request.body == b"new"
    assert "expect" not in request.headers
    client.close()


@pytest.fixture
def role(server: ScriptedS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials come from a role, which the same server gives or refuses."""
    config = tmp_path / "config"
    config.write_text(
        "[profile worker]\nrole_arn = arn:aws:iam::123456789012:role/worker\n"
        "source_profile = base\n[profile base]\naws_access_key_id = a\naws_secret_access_key = b\n"
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "worker")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)


@pytest.mark.usefixtures("role")
def test_the_token_of_a_role_is_sent_and_signed(server: ScriptedS3) -> None:
    given = (
        "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>TEMPORARY</AccessKeyId>"
        "<SecretAccessKey>s</SecretAccessKey><SessionToken>the-token</SessionToken>"
        "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
    )
    client = _client(server.url, region="us-east-1")
    server.will_answer(Reply(200, given.encode()), stored(), stored())
    for _ in range(2):
        client.ask("put_object", Key=KEY, Body=b"", IfNoneMatch="*")
    asked_for_role, *written = server.requests
    assert asked_for_role.method == "POST"
    assert [request.headers["x-amz-security-token"] for request in written] == ["the-token"] * 2
    for request in written:
        assert "Credential=TEMPORARY/" in request.headers["authorization"]
        assert "x-amz-security-token" in request.headers["authorization"]
    client.close()


@pytest.mark.usefixtures("role")
def test_a_role_that_is_refused_is_a_refusal_and_nothing_is_asked_of_the_bucket(server: ScriptedS3) -> None:
    client = _client(server.url, region="us-east-1")
    server.will_answer(refusal(403, "AccessDenied"))
    with pytest.raises(NoSuccess) as caught:
        client.ask("put_object", Key=KEY, Body=b"", IfNoneMatch="*")
    assert caught.value.failure.status == 403
    assert [request.method for request in server.requests] == ["POST"]
    client.close()


async def test_64_writes_are_under_way_at_once_and_each_keeps_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    together = threading.Barrier(64)

    class Gathering(ScriptedS3):
        def answer(self, request: Request) -> Reply:
            together.wait(60)
            return stored()

    with serving(Gathering) as server:
        patience = Timeouts(connect=60.0, silence=60.0, call=60.0)
        store = await S3Store.open(
            "memories", clock=SystemClock(), endpoint_url=server.url, patience=patience
        )
        for _ in range(2):
            outcomes = await asyncio.gather(*(store.create(f"ns/{number}", b"") for number in range(64)))
            assert all(isinstance(outcome, Created) for outcome in outcomes)
        await store.close()
    assert "pool is full" not in caplog.text


_OK = f'HTTP/1.1 200 OK\r\nETag: "e1"\r\nDate: {DATE}\r\n'.encode()
_CHUNK = b"10000\r\n" + b"x" * 65536 + b"\r\n"
ENDLESS = {
    "body": (_OK + b"Content-Length: 1000000000000\r\n\r\n", b"x" * 65536),
    "body in chunks": (_OK + b"Transfer-Encoding: chunked\r\n\r\n", _CHUNK),
    "body of an error": (b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n", _CHUNK),
    "header": (_OK, b"X-More: more\r\n" * 4096),
    "header line": (_OK + b"X-More: ", b"x" * 65536),
    "status line": (b"HTTP/1.1 200 ", b"x" * 65536),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 64),
    "other interim answers": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 64),
}


@dataclass
class EndlessS3:
    """Answers each request with a beginning and then, until the client goes, with the same piece."""

    url: str
    begin: bytes
    piece: bytes
    pause: float
    over: threading.Event = field(default_factory=threading.Event)
    sent: int = 0

    def answer(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.recv(65536)
                connection.sendall(self.begin)
                while not self.over.wait(self.pause) if self.pause else not self.over.is_set():
                    connection.sendall(self.piece)
                    self.sent += len(self.piece)
        except OSError:
            return


@contextmanager
def endless(begin: bytes, piece: bytes, pause: float = 0.0) -> Iterator[EndlessS3]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = EndlessS3(f"http://127.0.0.1:{listener.getsockname()[1]}", begin, piece, pause)

        def accept() -> None:
            while not server.over.is_set():
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=server.answer, args=(connection,), daemon=True).start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield server
        finally:
            server.over.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()


async def _refused(url: str, patience: Timeouts = QUICK) -> None:
    """Read, list and write: each ends in an error, and so do the threads."""
    store = S3Store(Client("memories", url, None, 4, patience), "memories", SystemClock(), patience)
    with pytest.raises((StoreUnavailable, StoreMisconfigured)):
        await store.get(KEY)
    with pytest.raises((StoreUnavailable, StoreMisconfigured)):
        await anext(aiter(store.list("ns/")))
    assert isinstance(await store.create(KEY, b"new"), Unknown)
    await store.close()


@pytest.mark.parametrize("what", ENDLESS)
async def test_an_answer_without_end_is_an_error_and_read_to_a_bound(what: str) -> None:
    with endless(*ENDLESS[what]) as server:
        began = time.monotonic()
        await _refused(server.url)
        assert time.monotonic() - began < 30
        # Seven requests at most: reads and listings are tried three times.
        assert server.sent < 7 * (LONGEST_ANSWER + 16 * 1024 * 1024)


@pytest.mark.parametrize("what", ["body", "header line", "interim answers"])
async def test_an_answer_that_drips_without_end_is_given_up(what: str) -> None:
    begin, piece = ENDLESS[what]
    drop = piece[: piece.index(b"\n\r\n") + 3] if b"\n\r\n" in piece else piece[:1]
    with endless(begin, drop, pause=0.05) as server:
        began = time.monotonic()
        await _refused(server.url, Timeouts(connect=2.0, silence=0.2, call=20.0))
        assert time.monotonic() - began < 60


async def test_only_the_range_is_read_of_an_endless_object() -> None:
    with endless(*ENDLESS["body"]) as server:
        store = S3Store(Client("memories", server.url, None, 4, QUICK), "memories", SystemClock(), QUICK)
        outcome = await store.get(KEY, byte_range=(2, 5))
        assert isinstance(outcome, Found)
        assert outcome.data == b"xxx"
        await store.close()
        assert server.sent < 16 * 1024 * 1024


async def test_interim_answers_are_skipped() -> None:
    hints = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    with endless(hints + _OK + b"Content-Length: 4\r\n\r\nbody", b"", pause=5.0) as server:
        store = S3Store(Client("memories", server.url, None, 4, QUICK), "memories", SystemClock(), QUICK)
        outcome = await store.get(KEY)
        assert isinstance(outcome, Found)
        assert outcome.data == b"body"
        await store.close()
