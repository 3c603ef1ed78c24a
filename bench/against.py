"""This tree against a commit before it, in the same rounds: CPU time of a request, by kind, beside the bare handler.

A worktree of the commit is made for the run. Both relayers run with the same libraries, hold the same memories, and get the same
requests in turns; the clients' code is this tree's for both.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.http_gateway import BenchGateway
from bench.http_servers import Sample, Server, started
from bench.material import encoded, items, queries, unit_vectors
from bench.report import Lab, Section
from bench.stats import percentile, ratio, spread
from gateway_plugin.keys.identity import Identity
from gateway_plugin.recall.recaller import turn_request
from gateway_plugin.settings.model import RecallSettings
from gateway_plugin.turn.gates import Hearing

__all__ = ["against_commit", "tree_of"]

CONNECTIONS = 8
MEMORIES = 1_000
_ROUNDS = 7
# One memory in so many is a tool's output.
_TOOL_EACH = 20


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of request; ``bodies`` makes those of (count, round). ``sealed`` as the plugin does over plain http."""

    name: str
    target: str
    count: int
    bodies: Callable[[int, int], list[dict[str, Any]]]
    sealed: bool = True
    connections: int = CONNECTIONS


@dataclass(frozen=True, slots=True)
class _Relayer:
    server: Server
    gateway: BenchGateway
    identity: Identity

    async def answer(self, kind: _Kind, number: int) -> Sample:
        requests = [
            await self.gateway.request(self.identity, kind.target, body, sealed=kind.sealed)
            for body in kind.bodies(kind.count, number)
        ]
        return await self.server.answer(requests, kind.connections)


@dataclass(slots=True)
class _Rounds:
    now: list[Sample] = field(default_factory=list)
    before: list[Sample] = field(default_factory=list)


async def against_commit(lab: Lab) -> list[Section]:
    """Measure recalls and writes of both; nothing when no commit is named.

    Raises:
        subprocess.CalledProcessError: there is no such commit.
    """
    commit = lab.against
    if commit is None:
        return []
    found: dict[str, _Rounds] = defaultdict(_Rounds)
    with ExitStack() as stack:
        before = await _started(lab, stack, "before", stack.enter_context(tree_of(commit, lab.work / "tree")))
        now = await _started(lab, stack, "now", None)
        # Kind by kind: what is written is compacted, indexed and judged by afterwards, which is none of a recall's cost.
        for kind in _kinds(lab):
            for number in range(-1, lab.count(_ROUNDS, 1)):
                lab.say(f"against {commit}, {kind.name}: round {number + 1}")
                rounds = found[kind.name] if number >= 0 else _Rounds()
                steps = ((now, rounds.now), (before, rounds.before))
                for relayer, samples in steps if number % 2 else reversed(steps):
                    samples.append(await relayer.answer(kind, number))
        for relayer in (now, before):
            await relayer.gateway.client.aclose()
    return [_section(commit, found)]


@contextmanager
def tree_of(commit: str, where: Path) -> Iterator[Path]:
    """A worktree of a commit, in ``where``, until the block ends."""
    here = ["git", "-C", str(Path(__file__).parent.parent), "worktree"]
    subprocess.run([*here, "add", "--quiet", "--detach", str(where), commit], check=True)
    try:
        yield where
    finally:
        subprocess.run([*here, "remove", "--force", str(where)], check=True)


async def _started(lab: Lab, stack: ExitStack, name: str, tree: Path | None) -> _Relayer:
    lab.say(f"starting the relayer of {name} and storing {MEMORIES:,} memories")
    work = lab.work / name
    arguments = ["serve", "--port", "0", "--data", str(work / "data"), "--rate-limits", "off"]
    server = stack.enter_context(started("relayer", arguments, work, tree=tree))
    gateway = BenchGateway(server, work)
    identity = gateway.identity("against")
    stored = items(unit_vectors(MEMORIES, lab.seed), lab.seed)
    # The plugin's filters leave some out, as they do where an agent uses tools.
    stored = [item if at % _TOOL_EACH else {**item, "trust": "tool"} for at, item in enumerate(stored)]
    await gateway.fill(identity, stored)
    server.settle()
    return _Relayer(server, gateway, identity)


def _kinds(lab: Lab) -> Sequence[_Kind]:
    asked = [encoded(row) for row in unit_vectors(64, lab.seed + 1)]

    def vectors(count: int, _: int) -> list[dict[str, Any]]:
        return [{"vector": asked[at % len(asked)], "floor": 0} for at in range(count)]

    def turns(count: int, _: int) -> list[dict[str, Any]]:
        request = turn_request(RecallSettings(), "?", Hearing.of_owner((), ""))
        body = request.model_dump(mode="json", exclude_unset=True, exclude={"query"})
        return [{**body, "vector": asked[at % len(asked)], "floor": 0} for at in range(count)]

    def texts(count: int, number: int) -> list[dict[str, Any]]:
        return [{"query": text} for text in queries(count, lab.seed + 100 + number)]

    def memories(count: int, number: int) -> list[dict[str, Any]]:
        rows = unit_vectors(count, lab.seed + 200 + number)
        return [{"items": [item]} for item in items(rows, lab.seed + 200 + number)]

    return (
        _Kind("recall, vector given", "/v1/recall", lab.count(400, 40), vectors, sealed=False),
        _Kind("recall, vector given, sealed", "/v1/recall", lab.count(400, 40), vectors),
        _Kind("recall, the plugin's filters and limit", "/v1/recall", lab.count(400, 40), turns),
        _Kind("recall, new text, sealed", "/v1/recall", lab.count(60, 8), texts),
        _Kind("write, one connection", "/v1/memories", lab.count(100, 8), memories, connections=1),
        _Kind("write, 16 connections", "/v1/memories", lab.count(400, 32), memories, connections=16),
        _Kind("write, 64 connections", "/v1/memories", lab.count(1_000, 64), memories, connections=64),
    )


def _section(commit: str, found: dict[str, _Rounds]) -> Section:
    rows, data = [], {}
    for name, rounds in found.items():
        now, before = ([one.cpu for one in some] for some in (rounds.now, rounds.before))
        waits = [
            percentile([value for one in some for value in one.load.latencies], 0.5)
            for some in (rounds.now, rounds.before)
        ]
        rows.append(
            (
                name,
                str(ratio(now, before)),
                *(f"{spread(some).median * 1e6:.0f}" for some in (now, before)),
                *(f"{wait * 1e3:.2f}" for wait in waits),
            )
        )
        data[name] = {"now_cpu_seconds": now, "before_cpu_seconds": before, "p50_seconds": waits}
    return Section(
        f"CPU time a request, this tree / {commit}",
        ("request", "ratio (lowest..highest round)", "now us", "before us", "now p50 ms", "before p50 ms"),
        rows,
        data,
        (f"directory store, {MEMORIES:,} memories at first, rate limits off, default consistency.",),
    )
