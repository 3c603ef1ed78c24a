"""A wire that can be made bad: TCP between one relayer and the store, slowed, swallowed, cut or robbed of answers."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum

__all__ = ["Link", "Weather"]

_CHUNK = 64 * 1024
_CONNECT_SECONDS = 2.0
# After the request had time to arrive and to be carried out.
_MUTE_SECONDS = 0.2
# Closing a socket with this option sends a reset instead of a farewell.
_RESET = struct.pack("ii", 1, 0)


class Weather(StrEnum):
    FAIR = "fair"
    SLOW = "slow"
    # Bytes vanish in both directions and connections hang.
    LOST = "lost"
    # Every connection is reset at once.
    CUT = "cut"
    # Requests arrive and are carried out, answers do not come back.
    MUTE = "mute"


class Link:
    """Listens on a port of this machine and passes on to the first server that takes the connection.

    Args:
        targets: (host, port) of each server, the preferred one first.
        rng: decides how slow each piece of a slow connection is.
    """

    def __init__(self, targets: Sequence[tuple[str, int]], rng: random.Random) -> None:
        self._targets = targets
        self._rng = rng
        self._weather = Weather.FAIR
        self._slowness = 0.0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._served: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def turn(self, weather: Weather, slowness: float = 0.0) -> None:
        """Change the weather for what is open and what comes; ``slowness`` is the longest wait of a piece, in s."""
        self._weather, self._slowness = weather, slowness
        if weather is Weather.CUT:
            for writer in list(self._open):
                _reset(writer)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.turn(Weather.CUT)
        # Not cancelled: with its connections gone, each ends by itself.
        await asyncio.gather(*self._served)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._served.add(task)
        self._open.add(writer)
        try:
            if self._weather is not Weather.CUT:
                await self._serve(reader, writer)
        except (OSError, TimeoutError):
            pass
        finally:
            self._served.discard(task)
            self._open.discard(writer)
            _reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await self._connect()
        self._open.add(far_writer)
        ways = (
            asyncio.create_task(self._pass(reader, far_writer, answers=False)),
            asyncio.create_task(self._pass(far_reader, writer, answers=True)),
        )
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._open.discard(far_writer)
            _reset(far_writer)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for host, port in self._targets:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await asyncio.open_connection(host, port)
        raise ConnectionRefusedError

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        while data := await reader.read(_CHUNK):
            if self._weather is Weather.SLOW:
                await asyncio.sleep(self._rng.uniform(0, self._slowness))
            if self._weather is Weather.LOST:
                continue
            if self._weather is Weather.MUTE and answers:
                await asyncio.sleep(_MUTE_SECONDS)
                return
            writer.write(data)
            await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
