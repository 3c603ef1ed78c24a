"""A server on loopback that answers S3 requests with what a test has written down, or as a careless server would."""

from __future__ import annotations

import hashlib
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

DATE = "Tue, 17 Nov 2026 10:20:30 GMT"
DATE_MS = 1_794_910_830_000


class How(Enum):
    """What becomes of an answer on its way."""

    WHOLE = auto()
    TRUNCATED = auto()  # the body ends in the middle, with the connection
    LOST = auto()  # the request was received and nothing comes back
    RESET = auto()  # the connection breaks before the body of the request was read
    HELD = auto()  # nothing happens until the test is over


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    how: How = How.WHOLE


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


def found(body: bytes = b"body", **headers: str) -> Reply:
    return Reply(
        200, body, {"ETag": '"e1"'} | {name.replace("_", "-"): text for name, text in headers.items()}
    )


def stored(etag: str = '"e1"', **headers: str) -> Reply:
    return Reply(200, b"", {"ETag": etag} | headers)


def refusal(status: int, code: str, **headers: str) -> Reply:
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>"
    return Reply(status, text.encode(), {name.replace("_", "-"): value for name, value in headers.items()})


def listing(*keys: str, token: str = "") -> Reply:
    rows = "".join(
        f"<Contents><Key>{key}</Key><Size>3</Size><LastModified>2026-11-17T10:20:30.500Z</LastModified></Contents>"
        for key in keys
    )
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
    end = "<IsTruncated>false</IsTruncated>"
    return Reply(200, f"<ListBucketResult>{more if token else end}{rows}</ListBucketResult>".encode())


class ScriptedS3:
    """Answers with ``script`` in order and keeps the requests; what is not in the script is answered with 599."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.script: deque[Reply] = deque()
        self.requests: list[Request] = []
        self.over = threading.Event()

    def will_answer(self, *replies: Reply) -> None:
        self.script.clear()
        self.requests.clear()
        self.script.extend(replies)

    def answer(self, request: Request) -> Reply:
        self.requests.append(request)
        return self.script.popleft() if self.script else refusal(599, "NotInTheScript")


class CarelessS3(ScriptedS3):
    """Keeps objects and does not look at conditions, as several servers of the field do."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.objects: dict[str, bytes] = {}

    def answer(self, request: Request) -> Reply:
        parts = urlsplit(request.path)
        key, query, now = parts.path, parse_qs(parts.query), {"Date": formatdate(usegmt=True)}
        if request.method == "PUT":
            self.objects[key] = request.body
        elif request.method == "DELETE":
            self.objects.pop(key, None)
            return Reply(204, b"", now)
        elif "list-type" in query:
            prefix = query.get("prefix", [""])[0]
            names = [name.split("/", 2)[2] for name in self.objects]
            return listing(*(name for name in names if name.startswith(prefix)))
        elif key not in self.objects:
            return replace(refusal(404, "NoSuchKey"), headers=now)
        body = b"" if request.method == "PUT" else self.objects[key]
        return Reply(200, body, {"ETag": f'"{hashlib.md5(self.objects[key]).hexdigest()}"'} | now)


S = TypeVar("S", bound=ScriptedS3)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    scripted: ScriptedS3

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        size = int(self.headers.get("content-length", "0"))
        reset = bool(self.scripted.script) and self.scripted.script[0].how is How.RESET
        body = b"" if reset else self.rfile.read(size)
        headers = {name.lower(): text for name, text in self.headers.items()}
        self._send(self.scripted.answer(Request(self.command, self.path, headers, body)))

    def _send(self, reply: Reply) -> None:
        if reply.how in {How.LOST, How.RESET, How.HELD}:
            if reply.how is How.HELD:
                self.scripted.over.wait(30)
            elif reply.how is How.RESET:
                # Closing with unsent lingering data turned off makes the kernel reset the connection.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return
        self.send_response_only(reply.status)
        headers = {"Date": DATE, "Content-Length": str(len(reply.body)), **reply.headers}
        for name, text in headers.items():
            if text:
                self.send_header(name, text)
        self.end_headers()
        half = reply.how is How.TRUNCATED
        self.close_connection = self.close_connection or half
        if reply.status not in {204, 304}:
            self.wfile.write(reply.body[: len(reply.body) // 2] if half else reply.body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is part of the play."""


@contextmanager
def serving(kind: type[S], certificate: Path | None = None) -> Iterator[S]:
    """Run a server until the block ends; with a certificate and its key in one PEM file, it speaks TLS."""
    handler = type("Handler", (_Handler,), {})
    with _Server(("127.0.0.1", 0), handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "http" if certificate is None else "https"
        scripted = handler.scripted = kind(f"{scheme}://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield scripted
        finally:
            scripted.over.set()
            server.shutdown()
            thread.join()
