"""What a recall costs: CPU time a request of ``memrelay serve`` against the bare handler, in the same rounds."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.http_gateway import BenchGateway, bare_request
from bench.http_servers import Sample, Server, started
from bench.material import encoded, items, queries, unit_vectors
from bench.report import Lab, Section
from bench.stats import percentile, ratio, spread
from gateway_plugin.keys.identity import Identity

__all__ = ["recall_cost"]

CONNECTIONS = 8
MEMORIES = 1_000
_WARM_UP = 64

Bodies = Callable[[int, int], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of request: its name, how many make a round, and their bodies for (count, round)."""

    name: str
    count: int
    bodies: Bodies


@dataclass(slots=True)
class _Rounds:
    relayer: list[Sample] = field(default_factory=list)
    bare: list[Sample] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Bench:
    """Both servers, holding the same memories."""

    relayer: Server
    bare: Server
    gateway: BenchGateway
    identity: Identity

    async def to_relayer(self, bodies: Sequence[dict[str, Any]]) -> Sample:
        requests = [await self.gateway.request(self.identity, "/v1/recall", body) for body in bodies]
        return await self.relayer.answer(requests, CONNECTIONS)

    async def to_bare(self, bodies: Sequence[dict[str, Any]]) -> Sample:
        key = self.gateway.signing_key
        requests = [bare_request(self.bare, key, "/recall", body) for body in bodies]
        return await self.bare.answer(requests, CONNECTIONS)

    async def round(self, kind: _Kind, number: int, into: _Rounds) -> None:
        """Measure both, one right after the other, in turns the one or the other first."""
        steps: list[tuple[Callable[[Sequence[dict[str, Any]]], Awaitable[Sample]], list[Sample]]]
        steps = [(self.to_relayer, into.relayer), (self.to_bare, into.bare)]
        for measure, samples in steps if number % 2 else reversed(steps):
            samples.append(await measure(kind.bodies(kind.count, number)))


async def recall_cost(lab: Lab) -> list[Section]:
    """Measure recall with a given vector, with a text seen before, and with texts never seen."""
    rows = unit_vectors(MEMORIES, lab.seed)
    asked = unit_vectors(64, lab.seed + 1)
    kinds = (
        _Kind("vector given", lab.count(1_500, 40), lambda count, _: _vectors(asked, count)),
        _Kind(
            "text, seen before",
            lab.count(800, 20),
            lambda count, _: [{"query": "Who lent the camera to Elif?", "floor": 0}] * count,
        ),
        _Kind(
            "text, new each time",
            lab.count(150, 8),
            lambda count, number: [
                {"query": text, "floor": 0} for text in queries(count, lab.seed + 100 + number)
            ],
        ),
    )
    with ExitStack() as stack:
        bench = await _prepare(lab, stack, rows)
        sections = []
        for kind in kinds:
            rounds = _Rounds()
            await bench.round(replace(kind, count=2), -1, _Rounds())
            for number in range(lab.count(9, 1)):
                lab.say(f"recall, {kind.name}: round {number + 1}")
                await bench.round(kind, number, rounds)
            sections.append((kind, rounds))
        await bench.gateway.client.aclose()
    return [_section(sections)]


async def _prepare(lab: Lab, stack: ExitStack, rows: NDArray[np.float32]) -> _Bench:
    work = lab.work / "recall"
    lab.say("recall: starting a relayer and storing 1,000 memories")
    arguments = ["serve", "--port", "0", "--data", str(work / "data"), "--rate-limits", "off"]
    relayer = stack.enter_context(started("relayer", arguments, work / "relayer"))
    gateway = BenchGateway(relayer, work)
    identity = gateway.identity("recall")
    ids = await gateway.fill(identity, items(rows, lab.seed))
    memories = await _shown(gateway, identity, ids)
    np.save(work / "rows.npy", rows)
    (work / "memories.json").write_text(json.dumps(memories), "utf-8")
    arguments = ["--agent-key", bytes(gateway.signing_key.verify_key).hex()]
    arguments += ["--rows", str(work / "rows.npy"), "--memories", str(work / "memories.json")]
    bare = stack.enter_context(started("bench.bare_handler", arguments, work / "bare"))
    bench = _Bench(relayer, bare, gateway, identity)
    warm = _vectors(unit_vectors(_WARM_UP, 0), _WARM_UP)
    answers = (await bench.to_relayer(warm)).load.bodies[0], (await bench.to_bare(warm)).load.bodies[0]
    shapes = [sorted(json.loads(answer)["memories"][0]) for answer in answers]
    if shapes[0] != shapes[1]:
        raise RuntimeError("the bare handler's answers do not have the shape of the relayer's")
    relayer.settle()
    return bench


async def _shown(gateway: BenchGateway, identity: Identity, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return what the API shows of each memory, in the order of ``ids``."""
    shown: dict[str, dict[str, Any]] = {}
    cursor: str | None = None
    while True:
        page = await gateway.client.list_memories(identity, limit=100, cursor=cursor)
        shown |= {memory.id: memory.model_dump(mode="json") for memory in page.memories}
        cursor = page.next_cursor
        if cursor is None:
            return [shown[memory] for memory in ids]


def _vectors(rows: NDArray[np.float32], count: int) -> list[dict[str, Any]]:
    encodings = [encoded(row) for row in rows]
    return [{"vector": encodings[at % len(encodings)], "floor": 0} for at in range(count)]


def _section(measured: Sequence[tuple[_Kind, _Rounds]]) -> Section:
    rows, data = [], {}
    for kind, rounds in measured:
        ours, bare = [s.cpu for s in rounds.relayer], [s.cpu for s in rounds.bare]
        times = ratio(ours, bare)
        latencies = [value for sample in rounds.relayer for value in sample.load.latencies]
        rates = spread([s.rate for s in rounds.relayer])
        rows.append(
            (
                kind.name,
                str(times),
                f"{spread(ours).median * 1e6:.0f}",
                f"{spread(bare).median * 1e6:.0f}",
                f"{rates.median:.0f}",
                *(f"{percentile(latencies, share) * 1e3:.1f}" for share in (0.5, 0.95, 0.99)),
            )
        )
        data[kind.name] = {
            "requests_a_round": kind.count,
            "cpu_ratio": {"median": times.median, "low": times.low, "high": times.high},
            "relayer_cpu_seconds": ours,
            "bare_cpu_seconds": bare,
            "relayer_rate": [s.rate for s in rounds.relayer],
            "bare_rate": [s.rate for s in rounds.bare],
        }
    return Section(
        f"Recall over {MEMORIES:,} memories: CPU time a request, relayer / bare handler",
        (
            "query",
            "ratio (lowest..highest round)",
            "relayer us",
            "bare us",
            "relayer/s",
            "p50 ms",
            "p95",
            "p99",
        ),
        rows,
        data,
        (
            f"directory store, consistency strong, rate limits off, {CONNECTIONS} connections, five hits an answer;",
            "the bare handler checks one signature and does the same search (bench/bare_handler.py);",
            "latencies are those under this load, server and load generator on the same machine.",
        ),
    )
