"""The line between a relayer's supervisor and one of its workers: lines of JSON, over a pair of sockets.

A worker says ``ready`` with what it serves, asks for the ``page`` of all metrics, and answers ``collect`` with its own. It ends when
the line does.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from relayer.errors import QueueFull
from relayer.lib.shared import Seat
from relayer.telemetry import describe, log

_LONGEST_LINE = 64 * 1024 * 1024
_PAGE_SECONDS = 8.0


class WorkerLine:
    """A worker's end of the line.

    Args:
        seat: the worker's place.
        end: its end of the pair.

    Attributes:
        collect: returns the worker's own metrics (`relayer.http.metrics.families_of`).
    """

    def __init__(self, seat: Seat, end: socket.socket) -> None:
        self.seat = seat
        self.collect: Callable[[], Awaitable[list[Any]]] | None = None
        self._end = end
        self._writer: asyncio.StreamWriter | None = None
        self._asked: list[asyncio.Future[bytes]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, stop: asyncio.Event) -> None:
        """Listen from now on; ``stop`` is set when the supervisor is gone."""
        reader, self._writer = await asyncio.open_unix_connection(sock=self._end, limit=_LONGEST_LINE)
        self._run(self._listen(reader, stop))

    def ready(self, **facts: str) -> None:
        """Say that requests are answered, and what the supervisor tells people of it."""
        self._send(ready=facts)

    async def page(self) -> bytes:
        """Return the metrics of all workers in the text format; raises `QueueFull` when the supervisor does not answer."""
        answer = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self._send(page=True)
        try:
            async with asyncio.timeout(_PAGE_SECONDS):
                page: bytes = await answer
        except TimeoutError as error:
            raise QueueFull("the supervisor did not collect the metrics in time", retry_after=1.0) from error
        else:
            return page

    async def _listen(self, reader: asyncio.StreamReader, stop: asyncio.Event) -> None:
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if "page" in message:
                    self._tell(message["page"].encode())
                else:
                    self._run(self._collected())
        except (OSError, ValueError) as error:
            log.error("supervisor_not_understood", **describe(error))
        finally:
            stop.set()

    async def _collected(self) -> None:
        self._send(collected=[] if self.collect is None else await self.collect())

    def _tell(self, page: bytes) -> None:
        asked, self._asked = self._asked, []
        for answer in asked:
            if not answer.done():
                answer.set_result(page)

    def _send(self, **message: Any) -> None:
        if self._writer is not None:
            self._writer.write(json.dumps(message).encode() + b"\n")

    def _run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
