"""SIGKILL at random instants, of relayers over a bucket and of the bucket's server: what was acknowledged is there, once.

More rounds: --rounds 30, or make kill-rounds ROUNDS=30. The seed of a failing run is in its output, and
MEMRELAY_CRASH_SEED repeats it (the instants of a kill are only as repeatable as the machine's scheduling).
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from processes import Served
from s3_servers import BUCKET, CREDENTIALS, MortalSeaweed
from test_crash import Archive, an_identity, client_of, everything

from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError
from gateway_plugin.keys.identity import Identity

WRITERS = 8
# SeaweedFS on old data mostly answers within two seconds, and sometimes lets the first write wait for twenty.
RECOVERY = 60.0
ENVIRONMENT = CREDENTIALS | {"MEMRELAY_RELAYER_KEY": "ab" * 32}


@pytest.fixture
def seaweed_alone(tmp_path: Path) -> Iterator[MortalSeaweed]:
    folder = tmp_path / "seaweedfs"
    folder.mkdir()
    server = MortalSeaweed(folder)
    server.start()
    yield server
    server.close()


@pytest.fixture
def start(serve: Callable[..., Served], seaweed_alone: MortalSeaweed, tmp_path: Path) -> Callable[[], Served]:
    return partial(
        serve,
        *("--store", f"s3://{BUCKET}/team", "--endpoint-url", seaweed_alone.url),
        *("--probe", "off", "--rate-limits", "off"),
        data=tmp_path / "data",
        environment=ENVIRONMENT,
    )


def _seeded() -> random.Random:
    seed = int(os.environ.get("MEMRELAY_CRASH_SEED") or secrets.randbits(32))
    print(f"seed {seed}")
    return random.Random(seed)


async def _more(archive: Archive, writers: list[asyncio.Task[None]]) -> None:
    """Wait until something more is acknowledged."""
    before = len(archive.acknowledged)
    async with asyncio.timeout(RECOVERY):
        while len(archive.acknowledged) == before:
            finished, _ = await asyncio.wait(writers, timeout=0.01, return_when=asyncio.FIRST_COMPLETED)
            for writer in finished:
                writer.result()


@asynccontextmanager
async def _writing(archive: Archive, client: RelayerClient, identity: Identity, *, stubborn: bool):
    """Write with several writers at once until the block ends; stubborn ones repeat what was refused."""
    retried = archive.unanswered

    async def write() -> None:
        while True:
            try:
                await archive.write(client, identity, retried)
            except GatewayError:
                if not stubborn:
                    await asyncio.Event().wait()
                # Each of these asks for what was never acknowledged, under the same idempotency key.
                retried.extend(set(archive.unanswered) - set(retried))
                await asyncio.sleep(0.1)

    writers = [asyncio.create_task(write()) for _ in range(WRITERS)]
    try:
        yield writers
    finally:
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)


@pytest.mark.tier("prove")
@pytest.mark.timeout(1800)
async def test_no_acknowledged_memory_is_lost_or_doubled_when_relayers_over_a_bucket_are_killed(
    start: Callable[[], Served], tmp_path: Path, rounds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, identity, began = _seeded(), an_identity(), time.monotonic()
    archive = Archive(rng)
    relayer = await asyncio.to_thread(start)
    for number in range(rounds):
        following = asyncio.create_task(asyncio.to_thread(start))
        async with (
            client_of(relayer.url, tmp_path / "gateway") as client,
            _writing(archive, client, identity, stubborn=False) as writers,
        ):
            await _more(archive, writers)
            await asyncio.sleep(rng.uniform(0.0, 0.3))
            relayer.stop(signal.SIGKILL)
        relayer = await following
        async with client_of(relayer.url, tmp_path / "reader") as client:
            archive.check(await everything(client, identity), f"round {number}")
    with capsys.disabled():
        print(
            f"\nkills of relayers: {rounds}, {len(archive.acknowledged)} acknowledged, {len(archive.sent)} sent, "
            f"{time.monotonic() - began:.0f} s"
        )


@pytest.mark.tier("prove")
@pytest.mark.timeout(1800)
async def test_no_acknowledged_memory_is_lost_or_doubled_when_the_store_is_killed(
    start: Callable[[], Served],
    seaweed_alone: MortalSeaweed,
    tmp_path: Path,
    rounds: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rng, identity, began = _seeded(), an_identity(), time.monotonic()
    archive = Archive(rng)
    relayer = await asyncio.to_thread(start)
    restarts: list[float] = []
    async with client_of(relayer.url, tmp_path / "gateway") as client:
        for number in range(rounds):
            async with _writing(archive, client, identity, stubborn=True) as writers:
                await _more(archive, writers)
                await asyncio.sleep(rng.uniform(0.0, 0.3))
                seaweed_alone.kill()
                restarts.append(await asyncio.to_thread(seaweed_alone.start))
                # The same relayer goes on by itself.
                await _more(archive, writers)
            archive.check(await everything(client, identity), f"round {number}")
    # Nor is anything only in that relayer's memory.
    clean = await asyncio.to_thread(start)
    async with client_of(clean.url, tmp_path / "reader") as client:
        archive.check(await everything(client, identity), "at a fresh relayer")
    with capsys.disabled():
        print(
            f"\nkills of the store: {rounds}, {len(archive.acknowledged)} acknowledged, {len(archive.sent)} sent, "
            f"slowest restart {max(restarts):.1f} s, {time.monotonic() - began:.0f} s"
        )
