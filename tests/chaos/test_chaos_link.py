from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from chaos_link import Link, Weather


class Echo:
    """A server that answers what it gets, and remembers it."""

    def __init__(self) -> None:
        self.got = b""
        self.arrived = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(100):
                self.got += data
                self.arrived.set()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()


@asynccontextmanager
async def an_echo() -> AsyncIterator[tuple[Echo, Link]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    dead = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    dead_address = dead.sockets[0].getsockname()
    dead.close()
    await dead.wait_closed()
    link = Link([dead_address, server.sockets[0].getsockname()], random.Random(1))
    await link.start()
    try:
        yield echo, link
    finally:
        await link.close()
        server.close()


async def ask(link: Link, patience: float = 5.0) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    try:
        writer.write(b"hello")
        async with asyncio.timeout(patience):
            return await reader.read(100)
    finally:
        writer.transport.abort()


async def test_in_fair_weather_everything_arrives_at_the_first_server_that_lives():
    async with an_echo() as (echo, link):
        assert await ask(link) == b"hello"
        assert echo.got == b"hello"


async def test_slow_is_slow_and_complete():
    async with an_echo() as (_, link):
        link.turn(Weather.SLOW, slowness=0.05)
        assert await ask(link) == b"hello"


async def test_lost_bytes_arrive_nowhere():
    async with an_echo() as (echo, link):
        link.turn(Weather.LOST)
        with pytest.raises(TimeoutError):
            await ask(link, patience=0.1)
        assert echo.got == b""


async def test_mute_carries_out_and_does_not_answer():
    async with an_echo() as (echo, link):
        link.turn(Weather.MUTE)
        try:
            answer = await ask(link)
        except ConnectionResetError:
            answer = b""
        assert answer == b""
        assert echo.got == b"hello"


async def test_cut_ends_what_is_open_and_what_comes_until_it_is_fair_again():
    async with an_echo() as (echo, link):
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(b"first")
        await echo.arrived.wait()
        assert await reader.read(100) == b"first"
        link.turn(Weather.CUT)
        with pytest.raises(ConnectionResetError):
            await reader.read(100)
        writer.transport.abort()
        with suppress(ConnectionResetError):
            assert await ask(link) == b""
        link.turn(Weather.FAIR)
        assert await ask(link) == b"hello"
