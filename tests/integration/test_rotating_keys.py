"""Rotating the keys of an agent's memories as a person does it: everything stays, and what the old keys opened is gone.

A kill test that takes longer has more rounds with --rounds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from bucket_dumps import VECTOR, dump_of_folder
from processes import CLEAN
from test_crash import Archive, client_of, everything
from typed_commands import machine, run_gateway, run_relayer

from demo.relayer_process import RelayerProcess
from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError
from gateway_plugin.keys.identity import Identity, RootHolder, identify, parse_session_key
from relayer.wire.schemas import RecallRequest
from relayer.wire.sealing import FIRST_GENERATION, RootKeys

OLD = "The spare key of the boathouse hangs behind the third oar."
NEW = "The spare key of the boathouse moved to the shed on Friday."
GONE = "The ferry to the island stops running in winter."
LATER = "The sluice of the mill is closed at nine since the flood."
ERASED = "The safe behind the picture opens with the year of the flood."
ROTATE = ("keys", "rotate", "--agent", "researcher", "--reseal", "--yes")


class Site:
    """A relayer over a directory, and the gateway of its user."""

    def __init__(self, folder: Path) -> None:
        self.relayer = RelayerProcess(folder / "relayer", arguments=("--rate-limits", "off"))
        self.folder = folder
        self.secret = secrets.token_hex(32)
        self.root = RootKeys(bytes.fromhex(self.secret))

    @property
    def environment(self) -> dict[str, str]:
        return machine(self.folder / "owner", self.relayer.url, self.secret)

    def run(self, *arguments: str, code: int = 0) -> str:
        done = run_gateway(self.environment, *arguments)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def listed(self, *arguments: str) -> list[dict]:
        return json.loads(self.run("list", "--json", "--agent", "researcher", *arguments))["memories"]

    def everything(self) -> list[dict]:
        states = ("live", "superseded", "forgotten")
        return self.listed(*(word for state in states for word in ("--state", state)))

    def remember(self, text: str, *more: str) -> None:
        self.run("remember", text, "--agent", "researcher", *more)

    def id_of(self, text: str) -> str:
        (found,) = [row["id"] for row in self.listed() if row["text"] == text]
        return found

    def generation(self) -> int:
        (known,) = [
            row
            for row in json.loads(self.run("namespaces", "--agent", "researcher", "--json"))["namespaces"]
            if row["name"] == "researcher"
        ]
        return known["generation"]

    def incarnations(self) -> int:
        return len(list((self.relayer.data / "objects" / "ns").iterdir()))

    def opened_by(self, *generations: int) -> set[str]:
        """Return what the namespace secrets of these generations open in the store, with the relayer key."""
        agent = self.root.agent("researcher")
        held = {agent.namespace_secret("researcher", number) for number in generations}
        return asyncio.run(dump_of_folder(self.relayer.data)).opened_by(self.root.account, held)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    with made.relayer:
        yield made


def test_after_a_rotation_everything_is_there_and_the_old_secret_opens_nothing(site: Site) -> None:
    site.remember(OLD, "--tag", "boats", "--metadata", "ticket=4711")
    site.run("edit", site.listed()[0]["id"], NEW, "--agent", "researcher")
    site.remember(GONE)
    hidden = site.id_of(GONE)
    site.run("forget", hidden, "--agent", "researcher")
    site.remember(ERASED)
    site.run("erase", site.id_of(ERASED), "--agent", "researcher", "--yes")
    before = site.everything()
    assert {row["state"] for row in before} == {"live", "superseded", "forgotten"}
    first = site.generation()
    assert site.opened_by(first) >= {OLD, NEW, GONE, VECTOR}
    assert "would happen" in site.run("keys", "rotate", "--agent", "researcher", "--reseal")
    assert "sealed again: researcher: 3 memories" in site.run(*ROTATE)
    generation = site.generation()
    assert generation > first
    assert site.opened_by(first) == set()
    assert {OLD, NEW, GONE, VECTOR} == site.opened_by(generation)
    assert site.everything() == before
    assert NEW in site.run("search", "Where is the spare key of the boathouse?", "--agent", "researcher")
    site.run("restore", hidden, "--agent", "researcher")
    # The same text again is a duplicate, so the MACs follow the keys.
    site.remember(GONE)
    site.remember(LATER)
    assert {row["text"] for row in site.listed()} == {NEW, GONE, LATER}
    assert site.opened_by(first) == set()
    site.run(*ROTATE)
    assert site.opened_by(first, generation) == set()
    site.remember(GONE)
    assert [row["text"] for row in site.listed()].count(GONE) == 1
    assert {row["text"] for row in site.listed()} == {NEW, GONE, LATER}
    done = run_relayer({}, "verify", "--data", str(site.relayer.data))
    assert done.returncode == 0, done.stdout + done.stderr


async def _rotate(site: Site) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gateway_plugin", *ROTATE]
    environment = CLEAN | site.environment
    return await asyncio.to_thread(
        subprocess.Popen, command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


async def _ended(command: subprocess.Popen[bytes]) -> str:
    shown, _ = await asyncio.to_thread(command.communicate, timeout=120)
    return shown.decode()


def _identity(site: Site) -> Identity:
    return identify(RootHolder(site.root), parse_session_key("agent:researcher:main"), default_agent=None)


async def _keep_on(work: Callable[[], Awaitable[object]], done: list[object]) -> None:
    while True:
        done.append(await work())


async def _until(true: Callable[[], bool], *tasks: asyncio.Task[None]) -> None:
    """Wait for what tasks do that must not end."""
    end = time.monotonic() + 60
    while not true():
        done, _ = await asyncio.wait(tasks, timeout=0.02)
        assert not done, [task.exception() for task in done]
        assert time.monotonic() < end


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_is_written_and_asked_during_a_rotation_is_answered_and_stays(site: Site) -> None:
    identity, archive = _identity(site), Archive(random.Random(7))
    read: list[object] = []
    async with client_of(site.relayer.url, site.folder / "gateway") as client:
        recall = partial(client.recall, identity, RecallRequest(query="harbour log"))
        tasks = [
            asyncio.create_task(archive.write(client, identity, [])),
            asyncio.create_task(_keep_on(recall, read)),
        ]
        await _until(lambda: len(archive.acknowledged) >= 100, *tasks)
        for _ in range(2):
            command = await _rotate(site)
            assert "with new keys" in await _ended(command)
            assert command.returncode == 0
            wanted = len(archive.acknowledged) + 20, len(read) + 5
            await _until(
                lambda wanted=wanted: len(archive.acknowledged) >= wanted[0] and len(read) >= wanted[1],
                *tasks,
            )
        await _end(*tasks)
        archive.check(await everything(client, identity), "after two rotations")


@pytest.mark.timeout(1800)
async def test_a_rotation_that_is_killed_at_any_moment_loses_nothing_and_can_be_run_again(
    site: Site, rounds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("MEMRELAY_CRASH_SEED") or secrets.randbits(32))
    rng, identity, began = random.Random(seed), _identity(site), time.monotonic()
    archive, interrupted, former = Archive(rng), 0, FIRST_GENERATION
    async with client_of(site.relayer.url, site.folder / "gateway") as client:
        for number in range(rounds):
            where, retried = f"seed {seed}, round {number}", archive.unanswered
            writers = [asyncio.create_task(_stubborn(archive, client, identity, retried)) for _ in range(3)]
            await _more(archive, 10, writers)
            known = site.incarnations()
            command = await _rotate(site)
            # The first object of the next incarnation shows that the rotation is under way.
            await _until(
                lambda known=known, command=command: (
                    site.incarnations() > known or command.poll() is not None
                ),
                *writers,
            )
            await asyncio.sleep(rng.uniform(0.0, 0.2))
            if number % 3 == 2:
                command.kill()
            else:
                await asyncio.to_thread(site.relayer.kill)
                await asyncio.to_thread(site.relayer.start)
            await _ended(command)
            interrupted += command.returncode != 0
            again = await _rotate(site)
            shown = await _ended(again)
            assert again.returncode == 0, f"{where}: {shown}"
            await _more(archive, 5, writers)
            await _end(*writers)
            archive.check(await everything(client, identity), where)
            assert await asyncio.to_thread(site.opened_by, former) == set(), where
            former = await asyncio.to_thread(site.generation)
    with capsys.disabled():
        print(
            f"\nkilled rotations: {rounds}, {interrupted} interrupted, {len(archive.acknowledged)} acknowledged, "
            f"{time.monotonic() - began:.0f} s"
        )


async def _more(archive: Archive, count: int, writers: list[asyncio.Task[None]]) -> None:
    """Wait until ``count`` more memories are acknowledged."""
    wanted = len(archive.acknowledged) + count
    await _until(lambda: len(archive.acknowledged) >= wanted, *writers)


async def _stubborn(archive: Archive, client: RelayerClient, identity: Identity, retried: list[int]) -> None:
    """Write until cancelled, and again under the same idempotency key what got no answer."""
    while True:
        try:
            await archive.write(client, identity, retried)
        except GatewayError:
            retried.extend(set(archive.unanswered) - set(retried))
            await asyncio.sleep(0.1)
