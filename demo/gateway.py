"""The demonstration's gateway: one secret of its own, the plugin as a host would use it, and a client beneath it.

Everything it writes lies in the demonstration's folder; the user's own secret and pins are not touched.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from demo.checks import Observation
from demo.conversation import AgentScript, ProbeKind, ScriptTurn
from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError, RelayerRefused
from gateway_plugin.keys.identity import Identity, RootHolder, identify, parse_session_key
from gateway_plugin.keys.private_files import create_private
from gateway_plugin.plugin import AsyncMemoryPlugin
from gateway_plugin.settings.model import PluginSettings
from gateway_plugin.setup import connect
from relayer.wire.schemas import Memory, MemoryItem, RecallRequest, RememberRequest
from relayer.wire.sealing import RootKeys

PATIENCE: Final = 15.0
"""Seconds for a recall. A host would allow two; here a busy machine must not look like a broken promise."""
_FLUSH_SECONDS: Final = 60.0
_HISTORY: Final = 12
_STATES: Final = ("live", "superseded", "forgotten")


class NotDelivered(GatewayError):
    """Raised when the relayer does not take what was captured."""


@dataclass(frozen=True, slots=True)
class Played:
    """What happened to one message of a script.

    Attributes:
        recall_ms: how long the recall before it took; None for an answer, and where a gate spared the recall.
        captured: how many messages went to the relayer after it.
    """

    turn: ScriptTurn
    recall_ms: int | None
    captured: int


class DemoGateway:
    """A gateway with a secret made for this run."""

    def __init__(self, folder: Path, url: str) -> None:
        self.secret_file = folder / "secret"
        secret = secrets.token_bytes(32)
        create_private(self.secret_file, secret.hex().encode() + b"\n")
        self._secret = secret.hex()
        self._holder = RootHolder(RootKeys(secret))
        self._environ = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
        self._settings = PluginSettings(url=url)

    @property
    def account(self) -> str:
        """The account's id."""
        return self._holder.account

    def identity(self, agent: str) -> Identity:
        """Return an agent's keys and namespace."""
        return identify(self._holder, parse_session_key(f"agent:{agent}:main"))

    @asynccontextmanager
    async def plugin(
        self, *, floor: float | None = None, captures: bool = True
    ) -> AsyncIterator[AsyncMemoryPlugin]:
        """Make a plugin that knows nothing of an earlier one but the pinned relayer.

        Args:
            floor: the least relevance, instead of the plugin's own.
            captures: False for one that only asks, so that it does not miss the ends of turns.
        """
        settings = self._settings
        if floor is not None:
            settings = settings.model_copy(
                update={"recall": settings.recall.model_copy(update={"min_score": floor})}
            )
        if not captures:
            settings = settings.model_copy(
                update={"capture": settings.capture.model_copy(update={"enabled": False})}
            )
        async with AsyncMemoryPlugin(settings=settings, secret=self._secret, environ=self._environ) as made:
            yield made

    def client(self) -> RelayerClient:
        """Make a client beneath the plugin, to count what is there."""
        return connect(self._settings, self._environ, clock=SystemClock())

    async def play(self, plugin: AsyncMemoryPlugin, script: AgentScript) -> AsyncIterator[Played]:
        """Live through an agent's sessions: recall before each message of a person, capture after each turn.

        Raises:
            NotDelivered: the relayer does not take what was captured.
        """
        for session in script.sessions:
            key = f"agent:{script.name}:{session.id}"
            said: list[Mapping[str, Any]] = []
            for turn, following in zip(session.turns, (*session.turns[1:], None), strict=True):
                recall_ms = None
                if turn.role == "user":
                    injection = await plugin.before_turn(
                        turn.text, session_key=key, messages=said[-_HISTORY:], deadline=PATIENCE
                    )
                    recall_ms = injection.milliseconds if injection.status in {"ok", "empty"} else None
                said.append(
                    {
                        "role": turn.role,
                        "content": turn.text,
                        "id": turn.id,
                        "name": turn.speaker,
                        "timestamp": turn.occurred_at.isoformat(),
                    }
                )
                captured = 0
                # A turn ends before the next message of a person, and at the end.
                if following is None or following.role == "user":
                    captured = (await plugin.after_turn(said, session_key=key)).queued
                yield Played(turn, recall_ms, captured)
            await self.deliver(plugin)

    async def deliver(self, plugin: AsyncMemoryPlugin) -> None:
        """Wait until the relayer has everything that was captured. Raises `NotDelivered`: it does not take it."""
        delivered = await plugin.flush(_FLUSH_SECONDS)
        status = plugin.status()
        if not delivered or status.refused:
            reason = status.last_error or f"{status.refused} refused for good, {status.last_refusal}"
            raise NotDelivered(f"{status.waiting} captured turns were not delivered: {reason}")

    async def ask(
        self, script: AgentScript, *, floor: float | None = None, cross_as: str | None = None
    ) -> AsyncIterator[Observation]:
        """Ask every probe in a session of its own; the cross probes with the keys of ``cross_as``, if it is given."""
        async with self.plugin(floor=floor, captures=False) as plugin:
            for number, probe in enumerate(script.probes):
                speaker = cross_as if cross_as and probe.kind is ProbeKind.CROSS else script.name
                injection = await plugin.before_turn(
                    probe.prompt, session_key=f"agent:{speaker}:probe-{number}", deadline=PATIENCE
                )
                yield Observation(
                    script.name,
                    probe,
                    injection.status,
                    injection.text,
                    tuple((hit.id, hit.text) for hit in injection.hits),
                    injection.milliseconds,
                    injection.standing,
                )

    async def memories(self, client: RelayerClient, identity: Identity) -> list[Memory]:
        """List everything in an agent's namespace, newest first."""
        return [memory async for memory in client.all_memories(identity, states=_STATES)]

    async def trespass(self, client: RelayerClient, agent: str, other: str) -> dict[str, str]:
        """Ask for another agent's namespace with one's own keys; returns what was tried and how it was answered."""
        mine, theirs = self.identity(agent), self.identity(other)
        there = replace(mine, namespace=theirs.namespace)
        attempts: dict[str, Callable[[], Any]] = {
            "recalls": lambda: client.recall(
                there, RecallRequest(query="what do you know?"), deadline=PATIENCE
            ),
            "lists": lambda: client.list_memories(there, deadline=PATIENCE),
            "writes": lambda: client.remember(there, _note("Trust me."), deadline=PATIENCE),
        }
        answers = {}
        for verb, attempt in attempts.items():
            answer = "ok"
            try:
                await attempt()
            except RelayerRefused as error:
                answer = error.code
            answers[f"{agent} {verb} in the namespace of {other}"] = answer
        return answers

    async def write_notes(self, identity: Identity, acknowledged: list[str], *, writers: int) -> None:
        """Remember numbered notes from several writers until the relayer is gone; collect what was acknowledged."""
        numbers = count(1)

        async def write(client: RelayerClient) -> None:
            with suppress(GatewayError):
                while True:
                    note = _note(f"Note {next(numbers)} of a busy afternoon.")
                    answer = await client.remember(identity, note)
                    acknowledged.extend(memory.id for memory in answer.memories)

        async with self.client() as client, asyncio.TaskGroup() as group:
            for _ in range(writers):
                group.create_task(write(client))


def _note(text: str) -> RememberRequest:
    return RememberRequest(items=(MemoryItem(text=text),))
