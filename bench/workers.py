"""What a second worker brings on two cores, and what it costs in memory: the same requests to relayers that run side by side.

One worker on one core is what a process would be whose every step held the interpreter; one worker as it is computes embeddings on
threads of its own, and so uses more than a core by itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.http_gateway import BenchGateway
from bench.http_load import Load, drive
from bench.http_servers import Server, started
from bench.material import encoded, items, queries, unit_vectors
from bench.report import Lab, Section
from bench.stats import percentile, ratio, spread

__all__ = ["worker_rates"]

CONNECTIONS = 16
NAMESPACES = 8
_MEMORIES = 200


@dataclass(frozen=True, slots=True)
class _Kind:
    """One sort of request."""

    name: str
    target: str
    count: int
    bodies: Callable[[int, int], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class _Relayer:
    """A relayer under measurement, whose processes are the one that was started and those that it forked."""

    name: str
    server: Server
    gateway: BenchGateway

    def processes(self) -> list[int]:
        children = Path(f"/proc/{self.server.pid}/task/{self.server.pid}/children").read_text("ascii")
        return [self.server.pid, *map(int, children.split())]

    def cpu_seconds(self) -> float:
        return sum(Server("", pid).cpu_seconds() for pid in self.processes())

    def keep_to(self, core: int) -> None:
        for pid in self.processes():
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {core})

    def memory(self) -> list[dict[str, int]]:
        """Of each process: resident, its share of what is shared, and what is its own alone, in bytes."""
        return [_memory(pid) for pid in self.processes()]

    async def answer(self, kind: _Kind, number: int) -> tuple[Load, float]:
        """Sign, and then send; returns the load and the CPU seconds a request, of all processes."""
        bodies = kind.bodies(kind.count, number)
        chosen = random.Random(number)
        asked = [
            await self.gateway.request(
                self.gateway.identity(f"n{chosen.randrange(NAMESPACES)}"), kind.target, body
            )
            for body in bodies
        ]
        before = self.cpu_seconds()
        load = await drive(self.server.authority, asked, CONNECTIONS)
        return load, (self.cpu_seconds() - before) / len(asked)


def _memory(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    return {"rss": sizes["Rss"], "pss": sizes["Pss"], "own": sizes["Private_Clean"] + sizes["Private_Dirty"]}


async def worker_rates(lab: Lab) -> list[Section]:
    """Measure recalls and captures of new texts, and recalls with given vectors, by one worker and by two."""
    vectors = unit_vectors(64, lab.seed)
    kinds = (
        _Kind(
            "recall, new text",
            "/v1/recall",
            lab.count(80, 16),
            lambda count, number: [{"query": text, "floor": 0} for text in queries(count, number)],
        ),
        _Kind(
            "capture, new turn",
            "/v1/analyze",
            lab.count(60, 16),
            lambda count, number: [
                {"turns": [{"role": "user", "text": one["text"]}], "session": f"s{number}"}
                for one in items(unit_vectors(count, number), number)
            ],
        ),
        _Kind(
            "recall, vector given",
            "/v1/recall",
            lab.count(400, 16),
            lambda count, _: [
                {"query": "Where is the lamp?", "vector": encoded(vectors[at % 64]), "floor": 0}
                for at in range(count)
            ],
        ),
    )
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    costs: dict[tuple[str, str], list[float]] = defaultdict(list)
    waits: dict[tuple[str, str], list[float]] = defaultdict(list)
    with ExitStack() as stack:
        relayers = [
            await _started(lab, stack, "one on one core", 1),
            await _started(lab, stack, "one", 1),
            await _started(lab, stack, "two", 2),
        ]
        relayers[0].keep_to(0)
        idle = {one.name: one.memory() for one in relayers}
        for kind in kinds:
            for number in range(-1, lab.count(5, 1)):
                lab.say(f"workers, {kind.name}: round {number + 1}")
                for one in relayers[:: 1 if number % 2 else -1]:
                    load, cost = await one.answer(kind, lab.seed + 1000 * (number + 2))
                    if number >= 0:
                        rates[kind.name, one.name].append(load.rate)
                        costs[kind.name, one.name].append(cost)
                        waits[kind.name, one.name].append(percentile(load.latencies, 0.5))
        lab.say("workers: waiting for what is given back")
        await asyncio.sleep(lab.count(30, 0))
        used = {one.name: one.memory() for one in relayers}
        for one in relayers:
            await one.gateway.client.aclose()
    return [_speed(kinds, rates, costs, waits), _sizes(idle, used)]


async def _started(lab: Lab, stack: ExitStack, name: str, workers: int) -> _Relayer:
    work = lab.work / "workers" / name.replace(" ", "-")
    lab.say(f"workers: starting {name}")
    arguments = ["serve", "--port", "0", "--data", str(work / "data"), "--rate-limits", "off"]
    server = stack.enter_context(started("relayer", [*arguments, "--workers", str(workers)], work))
    gateway = BenchGateway(server, work)
    for number in range(NAMESPACES):
        rows = unit_vectors(lab.count(_MEMORIES, 5), number)
        await gateway.fill(gateway.identity(f"n{number}"), items(rows, number))
    relayer = _Relayer(name, server, gateway)
    await asyncio.sleep(1.0)  # what the memories brought about in the background
    return relayer


def _speed(
    kinds: tuple[_Kind, ...],
    rates: dict[tuple[str, str], list[float]],
    costs: dict[tuple[str, str], list[float]],
    waits: dict[tuple[str, str], list[float]],
) -> Section:
    rows, data = [], {}
    for kind in kinds:
        pinned, one, two = (rates[kind.name, name] for name in ("one on one core", "one", "two"))
        rows.append(
            (
                kind.name,
                *(f"{spread(some).median:.0f}" for some in (pinned, one, two)),
                str(ratio(two, pinned)),
                str(ratio(two, one)),
                " / ".join(f"{spread(costs[kind.name, name]).median * 1e3:.1f}" for name in ("one", "two")),
                " / ".join(f"{spread(waits[kind.name, name]).median * 1e3:.0f}" for name in ("one", "two")),
            )
        )
        data[kind.name] = {
            name: {"rates": rates[kind.name, name], "cpu": costs[kind.name, name]}
            for name in ("one on one core", "one", "two")
        }
    return Section(
        f"Answers a second by workers, {CONNECTIONS} connections, {NAMESPACES} namespaces",
        (
            "",
            "one, one core",
            "one",
            "two",
            "two / one, one core",
            "two / one",
            "CPU ms, one/two",
            "p50 ms, one/two",
        ),
        rows,
        data,
        ("The generator's own CPU comes from the same cores.",),
    )


def _sizes(idle: dict[str, list[dict[str, int]]], used: dict[str, list[dict[str, int]]]) -> Section:
    rows = []
    for name in ("one", "two"):
        for when, sizes in (("idle", idle[name]), ("after the rounds", used[name])):
            rows.append(
                (
                    f"{name}, {when}",
                    f"{sum(size['pss'] for size in sizes) / 2**20:.0f}",
                    ", ".join(f"{size['rss'] / 2**20:.0f}" for size in sizes),
                    ", ".join(f"{size['own'] / 2**20:.0f}" for size in sizes),
                )
            )
    return Section(
        "Memory of all processes in MiB; with two, the first is the supervisor",
        ("workers", "in all (PSS)", "resident, each", "its own alone, each"),
        rows,
        json.loads(json.dumps({"idle": idle, "used": used})),
    )
