"""A proxy changes a request on its way, and hands back what the relayer, truly, says to that: nothing is given up for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from border import border

from gateway_plugin import MemoryPlugin
from gateway_plugin.client import LoopThread
from relayer.wire.signing import DIGEST_HEADER

SECRET = bytes(range(32))
KEY = "agent:researcher:main"
SAID = "My locker at the harbour gym has the number 4711 and a brass padlock."
TURN = [{"role": "user", "content": SAID}, {"role": "assistant", "content": "Noted."}]


@dataclass(frozen=True)
class Sent:
    """A request as it travels: start line, headers in their order, body."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)

    def with_header(self, name: str, value: str) -> Sent:
        kept = tuple(pair for pair in self.headers if pair[0].lower() != name)
        return replace(self, headers=(*kept, (name, value)))

    def encoded(self) -> bytes:
        lines = [
            f"{self.method} {self.target} HTTP/1.1",
            *(f"{name}: {value}" for name, value in self.headers),
        ]
        return "\r\n".join((*lines, "", "")).encode() + self.body


Change = Callable[[Sent], Sent]


def as_it_is(sent: Sent) -> Sent:
    return sent


CHANGES: dict[str, Change] = {
    "404 of another target": lambda sent: replace(sent, target="/v1/nothing"),
    "405 of another method": lambda sent: replace(sent, method="PUT"),
    "413 of an announced length": lambda sent: sent.with_header("content-length", "99999999"),
    "415 of another type": lambda sent: sent.with_header("content-type", "text/plain"),
    "415 of a coding": lambda sent: sent.with_header("content-encoding", "gzip"),
    "400 of a header given twice": lambda sent: replace(sent, headers=(*sent.headers, ("accept", "*/*"))),
    "400 of a body read as it is not": lambda sent: sent.with_header("content-type", "application/json"),
    "400 of another body": lambda sent: replace(sent, body=sent.body[:-1] + bytes([sent.body[-1] ^ 1])),
    "400 of another digest": lambda sent: sent.with_header(DIGEST_HEADER, "sha-256=:no:"),
}


class Proxy:
    """Passes requests to a relayer, as ``change`` makes them, and its answers back as they are."""

    def __init__(self) -> None:
        self.change: Change = as_it_is
        self.statuses: list[int] = []
        self._loop = LoopThread("proxy")
        self._stopped: asyncio.Event | None = None
        self.url = self._loop.call(self._started())

    def close(self) -> None:
        self._loop.call(self._ended())
        self._loop.close()

    async def _started(self) -> str:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stopped = asyncio.Event()
        self._task = asyncio.create_task(self._run(ready, self._stopped))
        return await ready

    async def _run(self, ready: asyncio.Future[str], stopped: asyncio.Event) -> None:
        async with self._site() as url:
            ready.set_result(url)
            await stopped.wait()

    async def _ended(self) -> None:
        assert self._stopped is not None
        self._stopped.set()
        await self._task

    @asynccontextmanager
    async def _site(self) -> AsyncIterator[str]:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(
                await asyncio.start_server(self._connected, "127.0.0.1", 0)
            )
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            at = await stack.enter_async_context(border(public_url=url, accounts="open"))
            self._relayer = int(at.url.rpartition(":")[2])
            yield url

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            sent = await self._read(reader)
            if sent.target.startswith("/v1/analyze"):
                sent = self.change(sent)
            onward_reader, onward = await asyncio.open_connection("127.0.0.1", self._relayer)
            onward.write(sent.with_header("connection", "close").encoded())
            await onward.drain()
            answer = await onward_reader.read(-1)
            onward.transport.abort()
            if sent.method != "GET":
                self.statuses.append(int(answer.split(b" ", 2)[1]))
            writer.write(answer)
            await writer.drain()
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Sent:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = tuple(tuple(line.split(": ", 1)) for line in head[1:] if line)
        length = int({name.lower(): value for name, value in headers}.get("content-length", "0"))
        return Sent(method, target, headers, await reader.readexactly(length))


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.close()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_turn_is_not_given_up_for_a_refusal_of_another_request(proxy, tmp_path, change):
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    with MemoryPlugin(proxy.url, secret=SECRET.hex(), environ=environ) as plugin:
        proxy.change = change
        assert plugin.after_turn(TURN, session_key=KEY).status == "queued"
        plugin.flush(5)
        assert 400 <= proxy.statuses[-1] < 500
        assert (plugin.status().delivered, plugin.status().refused, plugin.status().waiting) == (0, 0, 1)
        proxy.change = as_it_is
        end = time.monotonic() + 60
        while plugin.status().waiting and time.monotonic() < end:
            plugin.flush(5)
        assert (plugin.status().refused, plugin.status().waiting) == (0, 0)
