"""A line to the relayer that can be cut, stalled, or led elsewhere while everything runs."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

from relayer.wire import codec as base64url
from relayer.wire.codec import UnsealError
from relayer.wire.sealing import FIRST_GENERATION, RootKeys
from relayer.wire.signing import (
    CERTIFICATE_HEADER,
    SEALED_TYPE,
    SIGNATURE_HEADER,
    Certificate,
    RequestSignature,
    open_body,
)

_HEARD = 1 << 20


class FaultProxy:
    """Forwards connections of loopback; use as a context manager.

    Attributes:
        target: the port to which new connections go; None refuses them.
        stalled: new connections are taken and never answered.
        connections: how many were made.
        sent: the last bytes that were sent to the relayer, on connections that are not sealed here.
    """

    def __init__(self) -> None:
        self.target: int | None = None
        self.stalled = False
        self.connections = 0
        self.sent = bytearray()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def bodies(self, root: RootKeys) -> list[bytes]:
        """Return what was asked, opened with the secret of the gateway that asked, as far as whole requests are still known."""
        found = []
        for request in bytes(self.sent).split(b"POST /v1/")[1:]:
            head, _, rest = request.partition(b"\r\n\r\n")
            headers = {
                name.lower(): value.decode()
                for name, _, value in (line.partition(b": ") for line in head.split(b"\r\n"))
            }
            body = rest[: int(headers.get(b"content-length", "0"))]
            if headers.get(b"content-type") == SEALED_TYPE:
                certificate = Certificate.verify(base64url.decode(headers[CERTIFICATE_HEADER.encode()]))
                nonce = RequestSignature.parse(headers[SIGNATURE_HEADER.encode()]).nonce
                # An agent's own namespace is the first that its certificate covers.
                namespace = certificate.namespaces[0]
                secret = root.agent(certificate.agent).namespace_secret(namespace, FIRST_GENERATION)
                with contextlib.suppress(UnsealError):
                    found.append(open_body(secret, nonce, body))
        return found

    def lead(self, target: int | None, *, stalled: bool = False) -> None:
        """Change what happens, for open connections too."""
        self.target, self.stalled = target, stalled
        for line in list(self._open):
            _close(line)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._socket)
        self.lead(None)
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(line)
            if self.stalled:
                continue
            try:
                onward = socket.create_connection(("127.0.0.1", self.target or 1), 5)
            except OSError:
                _close(line)
                continue
            self._open.add(onward)
            for source, sink in ((line, onward), (onward, line)):
                listens = {"listens": source is line}
                threading.Thread(target=self._pump, args=(source, sink), kwargs=listens, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, *, listens: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if listens:
                    self.sent += data
                    del self.sent[:-_HEARD]
                sink.sendall(data)
        for end in (source, sink):
            self._open.discard(end)
            _close(end)


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
