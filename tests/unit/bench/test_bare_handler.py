"""The bare handler must do what it is compared for: check signatures, search exactly, answer in shape."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import numpy as np
import pytest
from aiohttp import web
from nacl.signing import SigningKey

from bench.bare_handler import SIGNATURE, BareHandler
from bench.http_gateway import bare_request
from bench.http_load import NotAnswered, drive
from bench.http_servers import Server
from bench.material import encoded, unit_vectors

KEY = SigningKey(b"k" * 32)
ROWS = unit_vectors(50, 1)
MEMORIES = [{"id": f"memory-{at}", "text": f"note {at}"} for at in range(len(ROWS))]


@asynccontextmanager
async def bare() -> AsyncIterator[Server]:
    runner = web.ServerRunner(web.Server(BareHandler(bytes(KEY.verify_key), ROWS, MEMORIES), access_log=None))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield Server(f"http://127.0.0.1:{port}", 0)
    finally:
        await runner.cleanup()


async def post(server: Server, body: bytes, signature: str | None) -> httpx.Response:
    headers = {} if signature is None else {SIGNATURE: signature}
    async with httpx.AsyncClient(trust_env=False) as http:
        return await http.post(f"{server.url}/recall", content=body, headers=headers)


async def test_an_unsigned_a_forged_and_a_changed_request_are_refused():
    body = json.dumps({"vector": encoded(ROWS[0])}).encode()
    async with bare() as server:
        good = _signature(bare_request(server, KEY, "/recall", {"vector": encoded(ROWS[0])}))
        stranger = SigningKey(b"s" * 32)
        forged = _signature(bare_request(server, stranger, "/recall", {"vector": encoded(ROWS[0])}))
        assert (await post(server, body, good)).status_code == 200
        assert (await post(server, body, None)).status_code == 401
        assert (await post(server, body, "!")).status_code == 401
        assert (await post(server, body, forged)).status_code == 401
        assert (await post(server, body.replace(b"{", b"{ "), good)).status_code == 401


async def test_the_search_is_exact_and_the_answer_ordered():
    query = unit_vectors(1, 2)[0]
    async with bare() as server:
        load = await drive(
            server.authority, [bare_request(server, KEY, "/recall", {"vector": encoded(query)})], 1
        )
    expected = np.argsort(-(ROWS @ query))[:5]
    assert [hit["id"] for hit in json.loads(load.bodies[0])["memories"]] == [
        f"memory-{at}" for at in expected
    ]


async def test_the_load_generator_sends_each_request_once_and_counts_every_answer():
    requests = 37
    async with bare() as server:
        bodies = [{"vector": encoded(ROWS[at])} for at in range(requests)]
        load = await drive(
            server.authority, [bare_request(server, KEY, "/recall", body) for body in bodies], 8
        )
    first = sorted(json.loads(body)["memories"][0]["id"] for body in load.bodies)
    assert first == sorted(f"memory-{at}" for at in range(requests))
    assert len(load.latencies) == load.statuses[200] == requests
    assert max(load.latencies) <= load.seconds


async def test_a_run_with_a_refused_request_is_no_measurement():
    async with bare() as server:
        good = bare_request(server, KEY, "/recall", {"vector": encoded(ROWS[0])})
        bad = bare_request(server, SigningKey(b"s" * 32), "/recall", {"vector": encoded(ROWS[0])})
        with pytest.raises(NotAnswered, match="401"):
            await drive(server.authority, [good, bad, good], 2)


async def test_a_connection_that_ends_early_is_no_measurement():
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    listening = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(NotAnswered, match="closed early"):
            await drive(f"127.0.0.1:{port}", [b"POST / HTTP/1.1\r\n\r\n"], 1)


def _signature(request: bytes) -> str:
    head = request.partition(b"\r\n\r\n")[0].decode()
    return next(line.partition(": ")[2] for line in head.split("\r\n") if line.startswith(SIGNATURE))
