"""Receive request bodies, with a minimum rate and a limit on memory.

Both fronts, memrelay's own and the one compatible with MemWal, use `RequestBodies`. A body may be received before its
sender is authenticated, because the signatures of MemWal's clients cover its digest. So the bytes that have arrived are
counted, not the announced length, and each peer has a maximum share. A peer that stops sending counts as failed, like one
with a wrong signature.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Any

from aiohttp.web import BaseRequest, RequestPayloadError

from relayer.errors import QueueFull
from relayer.http.limits import Limits, peer_name
from relayer.http.problems import HttpProblem

MAX_BODY = 2 * 1024 * 1024
READ_SECONDS = 15.0
GRACE_SECONDS = 5.0
"""Seconds that a body may take in addition to the time that the minimum rate allows it."""
_LEAST_PER_SECOND = 16 * 1024
_MIB = 1024 * 1024
_RETRY_SECONDS = 1.0
_TOO_MANY = "too many request bodies are being received"


@dataclass(slots=True, eq=False)
class _Body:
    """A body that is being received."""

    peer: str
    most: int
    timeout: asyncio.Timeout
    refused: bool = False
    nbytes: int = 0
    chunks: list[bytes] = field(default_factory=list)
    # The digest is computed per chunk, because hashing a large body in one call would block the event loop.
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, chunk: bytes) -> None:
        self.nbytes += len(chunk)
        if self.nbytes > self.most:
            raise HttpProblem("too_large", f"A body has at most {MAX_BODY} bytes.")
        self.digest.update(chunk)
        self.chunks.append(chunk)


class RequestBodies:
    """Receives the request bodies of one process.

    If all bodies together, or those of one peer, take too much memory, the body that has waited longest for its next byte is
    refused; in the first case one of the peer that holds the most. Bodies of up to 64 KiB do not count towards their peer's
    share, so that other clients behind the same address are still served; they do count towards the total.

    Args:
        limits: where peers that stop sending are charged.
        most: maximum bytes of all bodies.
        per_peer: maximum bytes of one peer's bodies that are larger than `SMALL`.
    """

    SMALL = 64 * 1024

    def __init__(self, limits: Limits, *, most: int = 64 * _MIB, per_peer: int = 16 * _MIB) -> None:
        self._limits = limits
        self._most = most
        self._per_peer = per_peer
        # Ordered by the time of their last bytes, the latest last.
        self._open: OrderedDict[_Body, None] = OrderedDict()
        self.nbytes = 0
        """Bytes of all bodies that are still being received."""

    async def receive(
        self, request: BaseRequest, peer: str, *, most: int = MAX_BODY, seconds: float = READ_SECONDS
    ) -> tuple[bytes, bytes]:
        """Receive a body and return it with its SHA-256.

        Args:
            request: positioned at its body.
            peer: address of the sender.
            most: the maximum size of the body, in bytes.
            seconds: the maximum duration; never more than `READ_SECONDS`.

        Raises:
            HttpProblem: ``too_large``, ``body_timeout`` or ``malformed``.
            QueueFull: its peer, or all peers together, are sending too much.
        """
        if request.headers.get("expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        stream, started = request.content, asyncio.get_running_loop().time()
        until = started + min(seconds, READ_SECONDS)
        body = _Body(peer_name(peer), most, asyncio.timeout_at(min(until, started + GRACE_SECONDS)))
        if stream.is_eof():
            body.add(stream.read_nowait())
        if stream.at_eof():
            return b"".join(body.chunks), body.digest.digest()
        self._open[body] = None
        self.nbytes += body.nbytes
        try:
            async with body.timeout:
                async for chunk in stream.iter_any():
                    if body.refused:
                        raise QueueFull(_TOO_MANY, retry_after=_RETRY_SECONDS)
                    self.nbytes += len(chunk)
                    body.add(chunk)
                    self._make_room(body)
                    allowed = GRACE_SECONDS + body.nbytes / _LEAST_PER_SECOND
                    body.timeout.reschedule(min(until, started + allowed))
        except TimeoutError as error:
            if body.refused:
                raise QueueFull(_TOO_MANY, retry_after=_RETRY_SECONDS) from error
            self._limits.note_failure(peer)
            raise HttpProblem("body_timeout") from error
        except (RequestPayloadError, ConnectionError) as error:
            raise HttpProblem("malformed", "The body is not in form, or ended early.") from error
        finally:
            self._forget(body)
        return b"".join(body.chunks), body.digest.digest()

    def _make_room(self, body: _Body) -> None:
        """Refuse bodies until the remaining ones are within both limits; raises `QueueFull` if ``body`` is one of them."""
        self._open.move_to_end(body)
        if body.nbytes > self.SMALL:
            large = [one for one in self._open if one.peer == body.peer and one.nbytes > self.SMALL]
            while sum(one.nbytes for one in large) > self._per_peer:
                self._refuse(large.pop(0), body)
        while self.nbytes > self._most:
            held: Counter[str] = Counter()
            for one in self._open:
                held[one.peer] += one.nbytes
            [(peer, _)] = held.most_common(1)
            self._refuse(next(one for one in self._open if one.peer == peer and one.nbytes), body)

    def _forget(self, body: _Body) -> None:
        if body in self._open:
            del self._open[body]
            self.nbytes -= body.nbytes

    def _refuse(self, victim: _Body, current: _Body) -> None:
        self._forget(victim)
        victim.refused = True
        victim.chunks.clear()
        if victim is current:
            raise QueueFull(_TOO_MANY, retry_after=_RETRY_SECONDS)
        if not victim.timeout.expired():
            victim.timeout.reschedule(asyncio.get_running_loop().time())
