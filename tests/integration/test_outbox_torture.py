"""Gateways that are killed at random instants over a relayer that comes and goes: what was queued arrives, once.

The seed of a failing run is in its output; MEMRELAY_TORTURE_SEED repeats it, MEMRELAY_TORTURE_ROUNDS makes it longer (the
instants of a kill are only as repeatable as the machine's scheduling).
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import secrets
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from outbox_gateway import SECRET, text_of
from processes import CLEAN

from demo.relayer_process import RelayerProcess
from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.client import RelayerClient
from gateway_plugin.keys.identity import RootHolder, identify, parse_session_key
from gateway_plugin.outbox.queue import Outbox, OutboxFull, OutboxItem, outbox_path
from gateway_plugin.plugin import MemoryPlugin
from relayer.wire.schemas import AnalyzeRequest, TurnItem
from relayer.wire.sealing import RootKeys

ROUNDS = int(os.environ.get("MEMRELAY_TORTURE_ROUNDS", "10"))
GATEWAY = Path(__file__).with_name("outbox_gateway.py")


class Harbour:
    """What the gateways said they had queued, round after round."""

    def __init__(self, folder: Path) -> None:
        self.environment = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
        self.holder = RootHolder(RootKeys(bytes.fromhex(SECRET)))
        self.identity = identify(self.holder, parse_session_key("agent:harbour:a"), default_agent=None)
        self.queued: set[int] = set()
        self.started = 0
        self.statuses: Counter[str] = Counter()

    def run(self, url: str, seconds: float, *, no_room: bool) -> None:
        """Run a gateway for a while, then kill it; with ``no_room``, no file of it may grow for a part of the time."""
        command = [sys.executable, str(GATEWAY), url, str(self.started)]
        environment = CLEAN | self.environment | {"PYTHONPATH": str(Path.cwd())}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
        )
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        if no_room:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        lines += process.communicate()[0].splitlines()
        assert process.returncode == -signal.SIGKILL
        for line in lines:
            # A line that the kill cut off says nothing.
            if len(words := line.split()) == 2 and words[1] in {"queued", "full", "unwritable"}:
                self.statuses[words[1]] += 1
                self.started = max(self.started, int(words[0]) + 1)
                if words[1] == "queued":
                    self.queued.add(int(words[0]))
        # The one after the last line may have been queued, too: it must not be taken for another's.
        self.started += 2

    def bury_poison(self, url: str) -> bool:
        """Queue what the relayer will refuse for good, between the turns of all the others."""
        turns = (TurnItem(role="user", text="too long for any relayer " * 2400),) * 40
        request = AnalyzeRequest(turns=turns, idempotency_key=f"poison-{secrets.token_hex(4)}")
        outbox = Outbox(outbox_path(self.environment, self.holder, url), self.holder)
        try:
            return outbox.put(OutboxItem(self.identity.ref, request, 0))
        except OutboxFull:
            return False
        finally:
            outbox.close()

    async def stored(self, url: str, folder: Path) -> Counter[str]:
        async with RelayerClient(url, trust=TrustStore(folder / "reader-trust.json")) as client:
            return Counter([memory.text async for memory in client.all_memories(self.identity)])


@pytest.mark.tier("prove")
@pytest.mark.timeout(600 + 30 * ROUNDS)
def test_what_was_queued_arrives_once_whatever_is_killed(tmp_path, capsys):
    seed = int(os.environ.get("MEMRELAY_TORTURE_SEED") or secrets.randbits(32))
    rng = random.Random(seed)
    harbour = Harbour(tmp_path)
    relayer = RelayerProcess(tmp_path / "relayer", arguments=("--rate-limits", "off"))
    relayer.start()
    url, up, down, poisoned = relayer.url, True, 0, 0
    try:
        for number in range(ROUNDS):
            wanted = rng.random() < 0.6
            if wanted and not up:
                relayer.start()
            elif up and not wanted:
                relayer.kill()
            up = wanted
            down += not up
            if number % 4 == 1:
                poisoned += harbour.bury_poison(url)
            harbour.run(url, rng.uniform(0.3, 1.5), no_room=number % 5 == 3)
        if not up:
            relayer.start()
        with MemoryPlugin(url, secret=SECRET, environ=dict(harbour.environment)) as last:
            for _ in range(20):
                if last.flush(30):
                    break
            status = last.status()
        texts = asyncio.run(harbour.stored(url, tmp_path))
    finally:
        relayer.kill()
    missing = [one for one in sorted(harbour.queued) if not texts[text_of(one)]]
    assert status.waiting == 0, f"seed {seed}: the queue does not move: {status.last_error}"
    assert not missing, f"seed {seed}: queued and lost: {missing[:5]} of {len(harbour.queued)}"
    assert max(texts.values()) == 1, f"seed {seed}: stored twice"
    assert status.refused == poisoned > 0, f"seed {seed}: {status.last_refusal}"
    with capsys.disabled():
        print(
            f"\ntorture: seed {seed}, {ROUNDS} gateways killed, relayer down in {down} rounds, "
            f"{dict(harbour.statuses)} captures, {len(texts)} stored, {status.refused} poisoned"
        )
