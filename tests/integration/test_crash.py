"""Relayers that are killed while they write, clients that leave while they are answered: what was acknowledged stays.

The seed of a failing run is in its output; MEMRELAY_CRASH_SEED repeats it (the instants of a kill are only as
repeatable as the machine's scheduling).
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from demo.relayer_process import RelayerProcess
from gateway_plugin.calls.calling import signed_headers
from gateway_plugin.calls.trust import RelayerAddress, SealedKeyCache, TrustStore
from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError, RelayerRefused
from gateway_plugin.keys.identity import Identity, RootHolder, identify, parse_session_key
from relayer.wire.schemas import Memory, MemoryItem, RecallRequest, RememberRequest
from relayer.wire.sealing import RootKeys

ROUNDS = 30
WRITERS = 8
SPARES = 2
COLD_EVERY = 6
STOP_BOUND = 20.0


def an_identity() -> Identity:
    holder = RootHolder(RootKeys(secrets.token_bytes(32)))
    return identify(holder, parse_session_key("agent:archivist:main"), default_agent=None)


def client_of(url: str, folder: Path) -> RelayerClient:
    return RelayerClient(url, trust=TrustStore(folder / "trust.json"))


def a_request(number: int, rng: random.Random) -> RememberRequest:
    item = MemoryItem(text=f"Entry {number} of the harbour log, berth {rng.randrange(10**9)}.")
    return RememberRequest(items=(item,), idempotency_key=f"entry-{number}")


async def everything(client: RelayerClient, identity: Identity) -> list[Memory]:
    return [memory async for memory in client.all_memories(identity)]


class Archive:
    """What was sent, and what the relayer said of it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sent: dict[int, RememberRequest] = {}
        self.acknowledged: dict[int, str] = {}

    @property
    def unanswered(self) -> list[int]:
        return [number for number in self.sent if number not in self.acknowledged]

    async def write(self, client: RelayerClient, identity: Identity, numbers: list[int]) -> None:
        """Write for ever: first what got no answer before, under the same idempotency key, then new entries."""
        while True:
            number = numbers.pop() if numbers else len(self.sent)
            request = self.sent.setdefault(number, a_request(number, self.rng))
            answer = await client.remember(identity, request, deadline=30)
            self.acknowledged[number] = answer.memories[0].id

    def check(self, listed: list[Memory], where: str) -> None:
        ids = Counter(memory.id for memory in listed)
        texts = Counter(memory.text for memory in listed)
        missing = [number for number, memory in self.acknowledged.items() if memory not in ids]
        assert not missing, f"{where}: acknowledged and lost: {missing[:5]} of {len(self.acknowledged)}"
        assert max(ids.values(), default=1) == 1, where
        assert max(texts.values(), default=1) == 1, where
        known = {request.items[0].text for request in self.sent.values()}
        assert set(texts) <= known, f"{where}: memories that nobody wrote"


@pytest.mark.tier("prove")
@pytest.mark.timeout(800)
async def test_no_acknowledged_memory_is_lost_or_doubled_by_thirty_kills(tmp_path, capsys):
    seed = int(os.environ.get("MEMRELAY_CRASH_SEED") or secrets.randbits(32))
    rng = random.Random(seed)
    identity, archive = an_identity(), Archive(rng)
    # Relayers over one data directory; the next ones start while the present one is written to.
    relayers = [
        RelayerProcess(tmp_path / f"relayer-{number}", data=tmp_path / "data", arguments=("--rate-limits", "off"))
        for number in range(ROUNDS + 1)
    ]  # fmt: skip
    starting: dict[int, asyncio.Task[float]] = {}

    def start(number: int) -> None:
        if number < len(relayers) and number not in starting:
            starting[number] = asyncio.create_task(asyncio.to_thread(relayers[number].start))

    begun = time.monotonic()
    starts: list[float] = []
    try:
        # The first one makes the relayer key.
        start(0)
        starts.append(await starting[0])
        for number in range(ROUNDS):
            where = f"seed {seed}, round {number}"
            cold = number % COLD_EVERY == COLD_EVERY - 1
            if not cold:
                for ahead in range(1, SPARES + 1):
                    if (number + ahead) % COLD_EVERY:
                        start(number + ahead)
            async with client_of(relayers[number].url, tmp_path / f"gateway-{number}") as client:
                before, retried = len(archive.acknowledged), archive.unanswered
                writers = [
                    asyncio.create_task(archive.write(client, identity, retried)) for _ in range(WRITERS)
                ]
                await _until(lambda before=before: len(archive.acknowledged) > before, writers)
                await asyncio.sleep(rng.uniform(0.0, 0.3))
                if cold:
                    # Nothing at all is left running: what comes next starts over a silent directory.
                    for task in starting.values():
                        await task
                    for other in relayers:
                        other.kill()
                relayers[number].kill()
                for writer in writers:
                    writer.cancel()
                await asyncio.gather(*writers, return_exceptions=True)
            start(number + 1)
            starts.append(await starting[number + 1])
            async with client_of(relayers[number + 1].url, tmp_path / f"reader-{number}") as client:
                archive.check(await everything(client, identity), where)
                # Found, too, not only listed.
                for lost in rng.sample(sorted(archive.acknowledged), min(3, len(archive.acknowledged))):
                    query = archive.sent[lost].items[0].text
                    answer = await client.recall(
                        identity, RecallRequest(query=query, limit=1, floor=0), deadline=30
                    )
                    assert answer.memories[0].id == archive.acknowledged[lost], where
    finally:
        await asyncio.gather(*starting.values(), return_exceptions=True)
        for relayer in relayers:
            relayer.kill()
    with capsys.disabled():
        slowest, middle = max(starts), sorted(starts)[len(starts) // 2]
        print(
            f"\ncrash: seed {seed}, {ROUNDS} kills, {len(archive.acknowledged)} acknowledged, "
            f"{len(archive.sent)} sent, start {middle:.1f} s (slowest {slowest:.1f} s), "
            f"{time.monotonic() - begun:.0f} s in all"
        )


async def _until(done, tasks: list[asyncio.Task[None]]) -> None:
    async with asyncio.timeout(60):
        while not done():
            finished, _ = await asyncio.wait(tasks, timeout=0.01, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                task.result()


async def test_a_client_that_leaves_in_the_middle_of_writes_loses_nothing_and_doubles_nothing(tmp_path):
    identity, rng = an_identity(), random.Random(7)
    archive = Archive(rng)
    with RelayerProcess(tmp_path, arguments=("--rate-limits", "off")) as relayer:
        async with client_of(relayer.url, tmp_path) as client:
            await client.remember(identity, a_request(10**6, rng), deadline=30)
            fleet_key = (await client.fleet()).keys[0]
            endpoint = RelayerAddress.parse(relayer.url)
            memory_key = SealedKeyCache().header(identity, fleet_key, int(time.time()))
            # Connections that are cut off while the relayer works, after more and more of an answer's usual time.
            for number in range(24):
                archive.sent[number] = a_request(number, rng)
                body = archive.sent[number].model_dump_json(exclude_unset=True).encode()
                headers = signed_headers(
                    identity, endpoint, method="POST", target="/v1/memories", body=body,
                    memory_key=memory_key, now=int(time.time()),
                )  # fmt: skip
                async with httpx.AsyncClient(trust_env=False) as http:
                    with suppress(httpx.ReadTimeout):
                        answer = await http.post(
                            relayer.url + "/v1/memories",
                            content=body,
                            headers=headers | {"content-type": "application/json"},
                            timeout=httpx.Timeout(30, read=0.0005 * (number + 1)),
                        )
                        archive.acknowledged[number] = answer.json()["memories"][0]["id"]
            # Asking again under the same key gives the first result, whether that was committed or not.
            for number in archive.sent:
                again = await client.remember(identity, archive.sent[number], deadline=30)
                assert again.memories[0].id == archive.acknowledged.get(number, again.memories[0].id)
                archive.acknowledged[number] = again.memories[0].id
            archive.sent[10**6] = a_request(10**6, random.Random(7))
            listed = await everything(client, identity)
        archive.check(listed, "after the cut connections")
        assert len(listed) == 25


async def test_sigterm_during_writes_keeps_what_was_answered_and_ends_with_zero(tmp_path):
    identity, rng = an_identity(), random.Random(11)
    archive = Archive(rng)
    relayer = RelayerProcess(tmp_path, arguments=("--rate-limits", "off"))
    await asyncio.to_thread(relayer.start)
    try:
        async with client_of(relayer.url, tmp_path) as client:
            writers = [asyncio.create_task(archive.write(client, identity, [])) for _ in range(WRITERS)]
            await _until(lambda: len(archive.acknowledged) >= 40, writers)
            begun = time.monotonic()
            code = await asyncio.to_thread(relayer.stop)
            seconds = time.monotonic() - begun
            ends = await asyncio.gather(*writers, return_exceptions=True)
        assert code == 0
        assert seconds < STOP_BOUND
        # Whoever was not answered was told so, or was hung up on: nobody waits for ever.
        assert all(isinstance(end, GatewayError) for end in ends), ends
        for end in ends:
            if isinstance(end, RelayerRefused):
                assert end.status == 503
        await asyncio.to_thread(relayer.start)
        async with client_of(relayer.url, tmp_path) as client:
            archive.check(await everything(client, identity), "after SIGTERM")
    finally:
        relayer.kill()
