"""The demonstration itself: play, ask, kill, ask again, and look at what is on the disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from demo import checks
from demo.checks import DemoCheck, Observation, TraceSearch
from demo.conversation import AgentScript, Conversation, ProbeKind
from demo.gateway import DemoGateway, Played
from demo.relayer_process import RelayerFailed, RelayerProcess
from gateway_plugin.errors import GatewayError
from gateway_plugin.keys.identity import Identity
from relayer.wire.fields import one_line
from relayer.wire.schemas import Memory


class Sabotage(StrEnum):
    """What to break; each value is the name of the checks that must fail then."""

    RELATED = "related"
    """Forget what the first related probe asks for."""
    SILENT = "silent"
    """Ask for memories of any relevance."""
    ISOLATED = "isolated"
    """Ask the cross probes with the other agent's keys."""
    DURABLE = "durable"
    """Delete the last object of every log while the relayer is down."""
    SEALED = "sealed"
    """Write what was said into the data directory."""


def lose_last_entries(data: Path) -> None:
    """Delete the newest object of every log below a data directory."""
    newest: dict[Path, Path] = {}
    for entry in sorted(data.rglob("wal/*")):
        newest[entry.parent] = entry
    for entry in newest.values():
        entry.unlink()


if TYPE_CHECKING:
    from demo.report import Report

_WRITERS: Final = 4
_NOTES_BEFORE_KILL: Final = 24
_NOTES_SECONDS: Final = 30.0
_TURN_BOUND: Final = 2.0
_EXCERPT_BYTES: Final = 128


@dataclass(frozen=True, slots=True)
class ObjectExcerpt:
    """A stored object beside what it hides."""

    file: str
    size: int
    start: bytes
    hidden: str


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """Everything that was seen. Times are in ms."""

    checks: tuple[DemoCheck, ...]
    observations: tuple[Observation, ...]
    recalls_ms: tuple[int, ...]
    turns: int
    captured: int
    memories: Mapping[str, int]
    hits: tuple[int, int]

    @property
    def held(self) -> bool:
        """Whether every assertion holds."""
        return all(check.held for check in self.checks)


async def run(
    conversation: Conversation,
    folder: Path,
    relayer: RelayerProcess,
    audience: Report,
    *,
    sabotage: Sabotage | None = None,
) -> DemoOutcome:
    """Run the demonstration once, in an empty directory, with a relayer that was not started and that the caller ends.

    Raises:
        GatewayError: the relayer does not start or does not take what was said.
    """
    seconds = await asyncio.to_thread(relayer.start)
    audience.step(
        f"relayer ready at {relayer.url} after {seconds:.1f} s, process {relayer.pid}, data in {relayer.data}"
    )
    try:
        return await _Demonstration(conversation, folder, audience, relayer, sabotage).run()
    except GatewayError as error:
        if relayer.exit_code is None:
            raise
        raise RelayerFailed(
            f"the relayer ended on its own, exit code {relayer.exit_code}. Its log:\n{relayer.log_tail()}"
        ) from error


class _Demonstration:
    def __init__(
        self,
        conversation: Conversation,
        folder: Path,
        audience: Report,
        relayer: RelayerProcess,
        sabotage: Sabotage | None,
    ) -> None:
        self._conversation = conversation
        self._scripts = tuple(conversation.agents.values())
        self._audience = audience
        self._relayer = relayer
        self._sabotage = sabotage
        self._gateway = DemoGateway(folder, relayer.url)
        self._played: list[Played] = []

    async def run(self) -> DemoOutcome:
        curated = self._conversation.curated
        await self._play()
        stored = await self._list()
        if self._sabotage is Sabotage.RELATED:
            await self._forget_what_is_asked(stored)
        before = await self._ask()
        self._audience.observed(before)
        found = [*checks.related(before)] if curated else []
        owned = {agent: {memory.id for memory in memories} for agent, memories in stored.items()}
        found += checks.silent(before, curated=curated)
        found += checks.isolated(before, owned, curated=curated)
        found += checks.strangers(await self._trespass())
        notes = await self._kill_while_writing()
        found.append(await self._turn_without_relayer())
        if self._sabotage is Sabotage.DURABLE:
            lose_last_entries(self._relayer.data)
        seconds = await asyncio.to_thread(self._relayer.start)
        self._audience.step(f"relayer started again over the same data, ready after {seconds:.1f} s")
        after = await self._ask()
        self._audience.step(f"asked the same {len(after)} prompts again")
        found += checks.same_again(before, after, curated=curated)
        found += await self._still_there(owned, notes)
        await asyncio.to_thread(self._relayer.stop)
        found += self._search_for_traces()
        turns = [played.recall_ms for played in self._played if played.recall_ms is not None]
        return DemoOutcome(
            checks=tuple(found),
            observations=tuple(before),
            recalls_ms=tuple(turns + [item.milliseconds for item in (*before, *after)]),
            turns=len(self._played),
            captured=sum(played.captured for played in self._played),
            memories={agent: len(memories) for agent, memories in stored.items()},
            hits=checks.hit_rate(before, curated=curated),
        )

    async def _play(self) -> None:
        excerpt: ObjectExcerpt | None = None
        known = self._objects()
        async with self._gateway.plugin() as plugin:
            for script in self._scripts:
                self._audience.playing(script.name, len(script.turns))
                async for played in self._gateway.play(plugin, script):
                    self._played.append(played)
                    self._audience.played(script.name, played)
                    if played.captured and excerpt is None:
                        await self._gateway.deliver(plugin)
                        excerpt = self._newest(known, script)
        if excerpt is not None:
            self._audience.excerpt(excerpt)

    def _newest(self, known: set[Path], script: AgentScript) -> ObjectExcerpt | None:
        made = sorted(self._objects() - known, key=lambda path: path.stat().st_size)
        entries = [path for path in made if path.parent.name == "wal"] or made
        if not entries:
            return None
        data = entries[-1].read_bytes()
        said = [played.turn.text for played in self._played if played.turn in script.turns]
        place = entries[-1].relative_to(self._relayer.data).as_posix()
        return ObjectExcerpt(place, len(data), data[:_EXCERPT_BYTES], one_line(" ".join(said)))

    async def _ask(self) -> list[Observation]:
        floor = 0.0 if self._sabotage is Sabotage.SILENT else None
        seen: list[Observation] = []
        for index, script in enumerate(self._scripts):
            other = self._scripts[index - 1].name if self._sabotage is Sabotage.ISOLATED else None
            seen += [item async for item in self._gateway.ask(script, floor=floor, cross_as=other)]
        return seen

    async def _list(self) -> dict[str, list[Memory]]:
        async with self._gateway.client() as client:
            return {
                script.name: await self._gateway.memories(client, self._gateway.identity(script.name))
                for script in self._scripts
            }

    async def _forget_what_is_asked(self, stored: Mapping[str, Sequence[Memory]]) -> None:
        script = self._scripts[0]
        expected = script.probes_of(ProbeKind.RELATED)[0].expect or ""
        async with self._gateway.client() as client:
            for memory in stored[script.name]:
                if expected.casefold() in memory.text.casefold():
                    await client.forget(self._gateway.identity(script.name), memory.id)

    async def _trespass(self) -> dict[str, str]:
        names = [script.name for script in self._scripts]
        answers: dict[str, str] = {}
        async with self._gateway.client() as client:
            for agent, other in zip(names, (*names[1:], names[0]), strict=True):
                if agent != other:
                    answers |= await self._gateway.trespass(client, agent, other)
        return answers

    async def _kill_while_writing(self) -> list[str]:
        """Kill the relayer while several writers wait for their answers; return what had been acknowledged."""
        acknowledged: list[str] = []
        writing = asyncio.create_task(
            self._gateway.write_notes(self._notebook(), acknowledged, writers=_WRITERS)
        )
        end = time.monotonic() + _NOTES_SECONDS
        while len(acknowledged) < _NOTES_BEFORE_KILL and not writing.done() and time.monotonic() < end:
            await asyncio.sleep(0)
            await asyncio.wait({writing}, timeout=0.01)
        pid = self._relayer.pid
        self._relayer.kill()
        await writing
        self._audience.step(
            f"SIGKILL to process {pid} while {_WRITERS} writers waited; {len(acknowledged)} notes were acknowledged"
        )
        return acknowledged

    def _notebook(self) -> Identity:
        """A namespace below the first agent's own, so that what it is asked about stays as it was."""
        identity = self._gateway.identity(self._scripts[0].name)
        return replace(identity, namespace=f"{identity.namespace}/notes")

    async def _turn_without_relayer(self) -> DemoCheck:
        async with self._gateway.plugin() as plugin:
            begun = time.monotonic()
            injection = await plugin.before_turn(
                "What was I going to do this week?", session_key=f"agent:{self._scripts[0].name}:outage"
            )
            return checks.outage(injection.status, injection.text, time.monotonic() - begun, _TURN_BOUND)

    async def _still_there(self, owned: Mapping[str, set[str]], notes: Sequence[str]) -> list[DemoCheck]:
        now = await self._list()
        notebook = self._notebook()
        async with self._gateway.client() as client:
            now[notebook.namespace] = await self._gateway.memories(client, notebook)
        acknowledged = {**owned, notebook.namespace: notes}
        ids = {name: [memory.id for memory in memories] for name, memories in now.items()}
        pairs = {name: [(memory.id, memory.text) for memory in memories] for name, memories in now.items()}
        return [*checks.durable(acknowledged, ids), *checks.once(pairs)]

    def _search_for_traces(self) -> list[DemoCheck]:
        if self._sabotage is Sabotage.SEALED:
            plain = self._relayer.data / "objects" / "plain"
            plain.write_text("\n".join(turn.text for turn in self._scripts[0].turns), "utf-8")
        turns = [turn for script in self._scripts for turn in script.turns]
        sessions = [session.id for script in self._scripts for session in script.sessions]
        people = {turn.speaker for turn in turns}
        traces = TraceSearch(
            (turn.text for turn in turns),
            (*self._conversation.agents, *sessions, *people, self._gateway.account.removeprefix("0x")),
        )
        found: dict[str, frozenset[str]] = {}
        files = [path for path in sorted(self._relayer.data.rglob("*")) if path.is_file()]
        size = 0
        for path in (*files, self._relayer.log):
            data = path.read_bytes()
            size += len(data)
            place = path.relative_to(self._relayer.data.parent).as_posix()
            # The log is prose: a long word in it need not come from the conversation.
            kinds = traces.found_in(data, words=path != self._relayer.log) | traces.found_in(place.encode())
            if kinds:
                found[place] = kinds
        return checks.sealed(found, len(files) + 1, size)

    def _objects(self) -> set[Path]:
        return {path for path in (self._relayer.data / "objects").rglob("*") if path.is_file()}
