"""Request bodies on their way: read with a minimum rate and within a share of memory, by both fronts.

A body may be read before anything about its sender is proved: MemWal's clients sign its digest. So bytes that have arrived are counted,
never the length that a head announces, and each peer has a share. A peer that stops sending has failed, like one that signs wrongly.
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
"""How long a body may take in addition to the time that the minimum rate gives it."""
_LEAST_PER_SECOND = 16 * 1024
_MIB = 1024 * 1024
_RETRY_SECONDS = 1.0
_TOO_MANY = "too many bodies are being received"


@dataclass(slots=True, eq=False)
class _Body:
    """A body that is being received."""

    peer: str
    most: int
    timeout: asyncio.Timeout
    refused: bool = False
    nbytes: int = 0
    chunks: list[bytes] = field(default_factory=list)
    # In pieces: the digest of a large body in one would hold the event loop.
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, chunk: bytes) -> None:
        self.nbytes += len(chunk)
        if self.nbytes > self.most:
            raise HttpProblem("too_large", f"A body has at most {MAX_BODY} bytes.")
        self.digest.update(chunk)
        self.chunks.append(chunk)


class RequestBodies:
    """Receives the bodies of one process.

    Where all of them, or those of one peer, hold too much, the body that has waited longest for its next byte is refused: of the
    peer that holds the most. Bodies of up to 64 KiB do not count towards their peer's share, so that others behind the same address
    keep being served; the bound on all of them holds for these as well.

    Args:
        limits: where peers that stop sending are counted.
        most: bytes of all bodies.
        per_peer: bytes of one peer's bodies that are larger than `SMALL`.
    """

    SMALL = 64 * 1024

    def __init__(self, limits: Limits, *, most: int = 64 * _MIB, per_peer: int = 16 * _MIB) -> None:
        self._limits = limits
        self._most = most
        self._per_peer = per_peer
        # In the order of their last bytes, the latest last.
        self._open: OrderedDict[_Body, None] = OrderedDict()
        self.nbytes = 0
        """Bytes of all bodies that are not whole yet."""

    async def receive(
        self, request: BaseRequest, peer: str, *, most: int = MAX_BODY, seconds: float = READ_SECONDS
    ) -> tuple[bytes, bytes]:
        """Read a body; returns it and its SHA-256.

        Args:
            request: positioned at its body.
            peer: address of the sender.
            most: bytes that the body may have.
            seconds: the most this may take; never more than `READ_SECONDS`.

        Raises:
            HttpProblem: ``too_large``, ``body_timeout`` or ``malformed``.
            QueueFull: its peer, or all peers together, send too much at once.
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
        """Refuse bodies until the rest are within both bounds; raises `QueueFull` if ``body`` is one of them."""
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
