"""A load generator that costs little: prepared requests over plain connections, one at a time on each.

Requests are bytes that were signed before the clock starts, and an answer is only looked at as far as needed to find
its end, so that the measured process and not this one is what the machine spends its time on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import cast

__all__ = ["Load", "NotAnswered", "drive", "http_request"]

_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = b"content-length:"
_OK = 200


class NotAnswered(Exception):
    """Raised when a connection ended, or an answer was not 200: nothing was measured."""


@dataclass(slots=True)
class Load:
    """What came back. ``latencies`` in seconds and ``bodies``, both in the order in which answers came."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Good answers per second."""
        return self.statuses[_OK] / self.seconds


def http_request(
    authority: str, target: str, headers: dict[str, str], body: bytes, method: str = "POST"
) -> bytes:
    """Return a request as it goes over the wire, its body JSON unless the headers have another type."""
    headers = {"Content-Type": "application/json"} | headers
    lines = [f"{method} {target} HTTP/1.1", f"Host: {authority}"]
    lines += [f"Content-Length: {len(body)}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode("ascii") + _END_OF_HEAD + body


async def drive(authority: str, requests: Sequence[bytes], connections: int) -> Load:
    """Send every request once, over ``connections`` connections that each wait for the answer before the next one.

    Raises:
        NotAnswered: a connection was closed early, or an answer is not 200.
    """
    host, _, port = authority.rpartition(":")
    loop = asyncio.get_running_loop()
    load, source = Load(), iter(requests)
    opened = [
        await loop.create_connection(lambda: _Connection(source, load), host, int(port))
        for _ in range(connections)
    ]
    try:
        started = perf_counter()
        for _, connection in opened:
            connection.begin()
        await asyncio.gather(*(connection.finished for _, connection in opened))
        load.seconds = perf_counter() - started
    finally:
        for transport, _ in opened:
            transport.abort()
        await asyncio.sleep(0)  # the turn in which their sockets are closed
    if load.statuses[_OK] != len(requests):
        refused = next((body for body in load.bodies if b'"code"' in body), b"")
        raise NotAnswered(
            f"answers by status: {dict(load.statuses)}; {refused[:300].decode(errors='replace')}"
        )
    return load


class _Connection(asyncio.Protocol):
    """One connection: takes the next request as soon as its answer is complete."""

    def __init__(self, source: Iterator[bytes], load: Load) -> None:
        self._source = source
        self._load = load
        self._buffer = b""
        self._wanted = -1
        self._sent_at = 0.0
        self._transport: asyncio.Transport | None = None
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._give_up(NotAnswered(f"a connection was closed early ({type(exc).__name__})"))

    def begin(self) -> None:
        request = next(self._source, None)
        if request is None:
            self.finished.set_result(None)
            return
        assert self._transport is not None
        self._sent_at = perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        if self._wanted < 0:
            end = self._buffer.find(_END_OF_HEAD)
            if end < 0:
                return
            try:
                self._wanted = end + len(_END_OF_HEAD) + _content_length(self._buffer[:end])
            except NotAnswered as error:
                self._give_up(error)
                return
        if len(self._buffer) >= self._wanted:
            self._complete()

    def _give_up(self, error: NotAnswered) -> None:
        if not self.finished.done():
            self.finished.set_exception(error)

    def _complete(self) -> None:
        load, answer = self._load, self._buffer
        load.latencies.append(perf_counter() - self._sent_at)
        load.statuses[int(answer[9:12])] += 1
        load.bodies.append(answer[answer.find(_END_OF_HEAD) + len(_END_OF_HEAD) :])
        self._buffer, self._wanted = b"", -1
        self.begin()


def _content_length(head: bytes) -> int:
    lowered = head.lower()
    at = lowered.find(_LENGTH)
    if at < 0:
        raise NotAnswered("an answer does not state its length")
    return int(lowered[at + len(_LENGTH) :].partition(b"\r\n")[0])
