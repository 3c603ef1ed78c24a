"""A proxy on loopback before a real S3 server, which does to chosen requests what networks and servers do at times.

Requests and answers pass unchanged, `Host` included, so that signatures hold. A fault is chosen by method, key and count,
never by chance.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import formatdate, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
# A request whose answer is held back is let go when the test is over, or after this many seconds.
_LONGEST = 60.0
_SIGNED = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None  # None: announced, and it never comes


@dataclass(frozen=True)
class Answer:
    """What the client gets; ``announced`` is the content-length when it is not that of the body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    announced: int | None = None


class Reset(Exception):
    """Raised by a fault to break the connection with a TCP reset."""


Forward = Callable[[Request], Answer]
Fault = Callable[[Request, Forward], Answer]


@dataclass
class Rule:
    """A fault for the requests that it fits, at most ``times``; ``key`` is sought in path and query."""

    fault: Fault
    method: str = ""
    key: str = ""
    times: int | None = None
    met: int = 0

    def fits(self, method: str, path: str) -> bool:
        return (
            (not self.method or method == self.method)
            and re.search(self.key, path) is not None
            and (self.times is None or self.met < self.times)
        )


class S3Proxy:
    """What a test holds: the URL to give to the relayer, and the faults in force."""

    def __init__(self, target: str, certificate: Path | None) -> None:
        self._target = urlsplit(target).netloc
        self.certificate = certificate
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._over = threading.Event()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._port = 0
        self.seen: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self._port}"

    def set(self, fault: Fault, *, method: str = "", key: str = "", times: int | None = None) -> Rule:
        rule = Rule(fault, method, key, times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def heal(self) -> None:
        """End every fault; answers that are held back are given up."""
        with self._lock:
            self._rules.clear()
        self._over.set()
        self._over = threading.Event()
        if self._server is None:
            self.start()

    def wait(self, seconds: float) -> None:
        """Hold a request back, as long as its fault is in force."""
        self._over.wait(min(seconds, _LONGEST))

    def start(self) -> None:
        """Listen, on the same port as before."""
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = _Server(("127.0.0.1", self._port), handler)
        self._port = int(self._server.server_address[1])
        self._server.tls = _tls(self.certificate) if self.certificate else None
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def stop(self) -> None:
        """Refuse connections and break those that there are: to its clients, the server is gone."""
        server, self._server = self._server, None
        if server is not None and self._thread is not None:
            server.shutdown()
            self._thread.join()
            server.server_close()
            server.hang_up()

    def present(self, certificate: Path) -> None:
        """Use another certificate for new connections, and break the old ones."""
        self.stop()
        self.certificate = certificate
        self.start()

    def close(self) -> None:
        self._over.set()
        self.stop()

    def rule_for(self, method: str, path: str) -> Rule | None:
        with self._lock:
            self.seen.append((method, path))
            for rule in self._rules:
                if rule.fits(method, path):
                    rule.met += 1
                    return rule
        return None

    def forward(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection(self._target, timeout=_LONGEST)
        try:
            connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
            for name, text in request.headers.items():
                if name not in _HOP:
                    connection.putheader(name, text)
            size = request.headers.get("content-length", "0")
            connection.putheader("content-length", size if request.body is None else str(len(request.body)))
            connection.endheaders(request.body)
            if request.body is None:
                connection.sock.shutdown(socket.SHUT_WR)
            answer = connection.getresponse()
            headers = {name.lower(): text for name, text in answer.getheaders() if name.lower() not in _HOP}
            return Answer(answer.status, headers, answer.read())
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128
    tls: ssl.SSLContext | None = None

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.open: set[socket.socket] = set()

    def finish_request(self, request: socket.socket, client_address: object) -> None:
        # In the connection's own thread: a handshake that hangs must not hold up the others.
        if self.tls is not None:
            request = self.tls.wrap_socket(request, server_side=True)
        self.open.add(request)
        try:
            super().finish_request(request, client_address)
        finally:
            self.open.discard(request)
            if self.tls is not None:
                request.close()

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        """Close without the usual farewell, so that a reset is one."""
        self.close_request(request)

    def hang_up(self) -> None:
        for connection in list(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is part of the play."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: S3Proxy

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        rule = self.proxy.rule_for(self.command, self.path)
        size = int(self.headers.get("content-length", "0"))
        headers = {name.lower(): text for name, text in self.headers.items()}
        try:
            request = Request(self.command, self.path, headers, self.rfile.read(size))
            forward = self.proxy.forward
            self._send(forward(request) if rule is None else rule.fault(request, forward))
        except (Reset, OSError, http.client.HTTPException):
            self._reset()

    def _send(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for name, text in answer.headers.items():
            self.send_header(name, text)
        if answer.status not in {204, 304}:
            length = len(answer.body) if answer.announced is None else answer.announced
            self.send_header("content-length", str(length))
        self.close_connection = self.close_connection or answer.announced is not None
        self.end_headers()
        if answer.status not in {204, 304}:
            self.wfile.write(answer.body)

    def _reset(self) -> None:
        # Closing with unsent lingering data turned off makes the kernel reset the connection.
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True


def cut_body(request: Request, forward: Forward) -> Answer:
    """Break off between the request's head and its body, as a client does that is killed; the server has the head."""
    forward(replace(request, body=None))
    raise Reset


def reset_after(request: Request, forward: Forward) -> Answer:
    """Let the server apply the request, and reset the connection instead of passing its answer on."""
    forward(request)
    raise Reset


def refuse(status: int, code: str, **headers: str) -> Fault:
    """Answer in the server's stead."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}

    def fault(_: Request, __: Forward) -> Answer:
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>"
        return Answer(status, {"date": formatdate(usegmt=True), **named}, body.encode())

    return fault


def refuse_after(status: int, code: str) -> Fault:
    """Let the server apply the request, and answer with a failure."""
    refused = refuse(status, code)

    def fault(request: Request, forward: Forward) -> Answer:
        forward(request)
        return refused(request, forward)

    return fault


def deny_instead_of_absent(request: Request, forward: Forward) -> Answer:
    """Answer 403 where the server says that there is no such key, as Amazon does without s3:ListBucket."""
    answer = forward(request)
    return refuse(403, "AccessDenied")(request, forward) if answer.status == 404 else answer


def tamper(header: str, pattern: str, replacement: str) -> Fault:
    """Pass the request on with another header, for the server's own answer to it."""

    def fault(request: Request, forward: Forward) -> Answer:
        changed = re.sub(pattern, replacement, request.headers[header])
        return forward(replace(request, headers={**request.headers, header: changed}))

    return fault


def shift_signing(seconds: int) -> Fault:
    """Pass the request on as if its client's clock were so many seconds ahead."""

    def fault(request: Request, forward: Forward) -> Answer:
        signed = datetime.strptime(request.headers["x-amz-date"], _SIGNED).replace(tzinfo=UTC)
        moved = (signed + timedelta(seconds=seconds)).strftime(_SIGNED)
        return forward(replace(request, headers={**request.headers, "x-amz-date": moved}))

    return fault


def delay(proxy: S3Proxy, seconds: float) -> Fault:
    """Let a request wait before it is passed on."""

    def fault(request: Request, forward: Forward) -> Answer:
        proxy.wait(seconds)
        return forward(request)

    return fault


def cut_answer(request: Request, forward: Forward) -> Answer:
    """Announce the whole body, send half of it, and close."""
    answer = forward(request)
    return replace(answer, body=answer.body[: len(answer.body) // 2], announced=len(answer.body))


def shorten_answer(request: Request, forward: Forward) -> Answer:
    """Send half of the body as if it were the whole."""
    answer = forward(request)
    return replace(answer, body=answer.body[: len(answer.body) // 2]) if answer.status == 200 else answer


def shift_date(seconds: int) -> Fault:
    """Answer as a server whose clock is so many seconds ahead."""

    def fault(request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        told = parsedate_to_datetime(answer.headers["date"]).timestamp()
        return replace(answer, headers={**answer.headers, "date": formatdate(told + seconds, usegmt=True)})

    return fault


def _tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@contextmanager
def proxied(target: str, certificate: Path | None = None) -> Iterator[S3Proxy]:
    """Run a proxy until the block ends; with a certificate and its key in one PEM file, it speaks TLS."""
    proxy = S3Proxy(target, certificate)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()
