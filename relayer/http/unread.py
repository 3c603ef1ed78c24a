"""Answers on their way: how many bytes of them wait for their readers, and for how long."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager

from aiohttp.web import BaseRequest

from relayer.errors import QueueFull
from relayer.http.connections import break_off

__all__ = ["NotTaken", "UnreadAnswers", "taken"]

_MIB = 1024 * 1024
# What a peer has to take in the time that it has: less is as good as nothing (a byte a second holds an answer for days).
_LEAST_BYTES = 16 * 1024
_RETRY_SECONDS = 1.0


class NotTaken(ConnectionError):
    """Raised when a peer does not take its answer: the connection is broken off."""


class UnreadAnswers:
    """Bytes of answers that are being sent, by account.

    An account that has none under way may always send one, so that nobody is kept out by what others leave unread. Answers
    of up to 64 KiB are neither counted nor refused: the bound on connections bounds them.
    """

    SMALL = 64 * 1024

    def __init__(self, *, most: int = 256 * _MIB, per_account: int = 16 * _MIB) -> None:
        self._most = most
        self._per_account = per_account
        self._bytes: Counter[str] = Counter()

    @property
    def nbytes(self) -> int:
        """What waits now."""
        return self._bytes.total()

    def check(self, account: str, size: int = 0) -> None:
        """Refuse an answer of so many bytes where too much waits already.

        Raises:
            QueueFull: come back in a second.
        """
        held = self._bytes[account]
        if held and (held + size >= self._per_account or self.nbytes + size >= self._most):
            raise QueueFull("too many answers of this account are not read", retry_after=_RETRY_SECONDS)

    @contextmanager
    def counted(self, account: str, size: int) -> Iterator[None]:
        """Count an answer while it is sent."""
        if size <= self.SMALL:
            yield
            return
        self._bytes[account] += size
        try:
            yield
        finally:
            self._bytes[account] -= size
            if not self._bytes[account]:
                del self._bytes[account]


async def taken(request: BaseRequest, writing: Awaitable[None], size: int, seconds: float) -> None:
    """Wait until so many bytes are written, and the kernel has taken all of them.

    Raises:
        NotTaken: the peer took less than 16 KiB in so many seconds; the connection is broken off.
        ConnectionError: it is gone.
    """
    watch = _Watch(request, size, seconds)
    try:
        await writing
        while _waiting(request):
            # uvloop writes, and says that it is full, only at the end of a turn.
            await asyncio.sleep(0)
            await request.writer.drain()
    finally:
        watch.timer.cancel()
        if watch.stalled:
            raise NotTaken("an answer was not taken")


class _Watch:
    """Looks now and then at how much of an answer is left."""

    def __init__(self, request: BaseRequest, size: int, seconds: float) -> None:
        self.stalled = False
        self._request = request
        self._left = size
        self._seconds = seconds
        self.timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        before, self._left = self._left, _waiting(self._request)
        if self._left and before - self._left < _LEAST_BYTES:
            self.stalled = True
            # Whoever waits for room is woken by that.
            break_off(self._request.transport)
        else:
            self.timer = asyncio.get_running_loop().call_later(self._seconds, self._look)


def _waiting(request: BaseRequest) -> int:
    """Return how many bytes of a connection the kernel has not taken yet."""
    return request.transport.get_write_buffer_size() if request.transport is not None else 0
