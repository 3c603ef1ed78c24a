"""What a neighbour costs: recall in one namespace, alone and while others capture as fast as the relayer lets them.

``python -m bench.fairness``. The two are measured in turns, in one run, because only their ratio can be compared.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from rich.console import Console

from bench.http_gateway import BenchGateway
from bench.http_load import NotAnswered, drive
from bench.http_servers import Server, started
from bench.material import items, queries, unit_vectors
from bench.report import Lab, Section, machine, show, write
from bench.stats import percentile, ratio
from gateway_plugin.keys.identity import Identity

__all__ = ["fairness", "main"]

MEMORIES = 1_000
# Connections on which the neighbour captures, each with ten turns a request.
CAPTURING = 4
_TURNS = 10


@dataclass(slots=True)
class _Times:
    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    captured: int = 0


async def fairness(lab: Lab) -> list[Section]:
    """Measure recalls of new texts and of given vectors, with the limits of accounts as they come and without any."""
    sections = []
    for limits in ("on", "off"):
        with started(
            "relayer",
            ["serve", "--port", "0", "--data", str(lab.work / limits / "data"), "--rate-limits", limits],
            lab.work / limits / "relayer",
        ) as server:
            sections.append(await _measured(lab, server, limits))
    return sections


async def _measured(lab: Lab, server: Server, limits: str) -> Section:
    reader, neighbour = (BenchGateway(server, lab.work / limits / name) for name in ("reader", "neighbour"))
    mine, theirs = reader.identity("recall"), neighbour.identity("capture")
    rows = unit_vectors(MEMORIES, lab.seed)
    await reader.fill(mine, items(rows, lab.seed))
    server.settle()
    times = _Times()
    rounds, recalls = lab.count(7, 1), lab.count(60, 5)
    for number in range(-1, rounds):
        lab.say(f"fairness, limits {limits}: round {number + 1}")
        bodies = [{"query": text, "floor": 0} for text in queries(recalls, lab.seed + 10 * number + 1000)]
        alone = await _recall(reader, server, mine, bodies[::2])
        async with _capturing(neighbour, server, theirs, times):
            beside = await _recall(reader, server, mine, bodies[1::2])
        if number >= 0:  # the first round warms both up
            times.alone.append(percentile(alone, 0.95))
            times.beside.append(percentile(beside, 0.95))
    for gateway in (reader, neighbour):
        await gateway.client.aclose()
    return _section(limits, times)


async def _recall(
    gateway: BenchGateway, server: Server, identity: Identity, bodies: list[dict[str, Any]]
) -> list[float]:
    requests = [await gateway.request(identity, "/v1/recall", body) for body in bodies]
    return (await drive(server.authority, requests, 1)).latencies


@asynccontextmanager
async def _capturing(
    gateway: BenchGateway, server: Server, identity: Identity, times: _Times
) -> AsyncIterator[None]:
    """Capture in another account until the block ends."""
    numbers, begun = count(len(times.beside) * 1_000_000), asyncio.Event()

    async def capture() -> None:
        while True:
            request = await gateway.request(identity, "/v1/analyze", _turns(next(numbers)))
            try:
                await drive(server.authority, [request], 1)
                times.captured += 1
            except NotAnswered:
                await asyncio.sleep(0.05)  # over the limit: what a gateway does, only more impatient
            begun.set()

    tasks = [asyncio.create_task(capture()) for _ in range(CAPTURING)]
    try:
        await begun.wait()
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


def _turns(number: int) -> dict[str, Any]:
    texts = queries(_TURNS, number)
    return {"turns": [{"role": "user", "text": f"I decided it: {text} We keep it so."} for text in texts]}


def _section(limits: str, times: _Times) -> Section:
    compared = ratio(times.beside, times.alone)
    middle = len(times.alone) // 2
    alone, beside = sorted(times.alone)[middle], sorted(times.beside)[middle]
    return Section(
        f"Recall of a new text beside {CAPTURING} connections that capture, limits {limits}",
        ("p95 alone", "p95 beside", "ratio"),
        [(f"{alone * 1000:.1f} ms", f"{beside * 1000:.1f} ms", str(compared))],
        {"alone": times.alone, "beside": times.beside, "captured": times.captured},
        (
            f"{len(times.alone)} rounds, medians of their p95; {times.captured} captures of {_TURNS} turns were kept meanwhile.",
        ),
    )


def main(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="See that everything runs.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write all numbers to this file, too.")] = None,
) -> None:
    """Measure what a neighbour that captures costs a recall."""
    console, progress = Console(width=120), Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="memrelay-bench-") as folder:
        about = machine(Path(folder))
        console.print(f"{about['cores']} cores, load average {about['load_average']:.1f} at the start\n")
        with progress.status("starting") as status:
            sections = uvloop.run(fairness(Lab(Path(folder), quick, status.update)))
        for section in sections:
            show(section, console)
    if json is not None:
        write(json, about, sections)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
