"""By hand: very many namespaces on one relayer. What it holds, how long a cold one waits, how recalls fare meanwhile.

    python -m bench.log_many --work DIRECTORY --namespaces 10000 --memories 100

Fills a directory store once, in a process for each core (half a millisecond of one for each memory), and uses it again in
later runs; a run that was stopped goes on where it was.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.progress import track

from bench.log_house import Replica
from bench.log_memory import resident
from bench.material import unit_vectors
from bench.report import Section, machine, show
from bench.stats import percentile
from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.system import SystemClock
from relayer.log.compactor import CompactionLimits
from relayer.maintenance.logs import IndexMaintenance, LogMaintenance, LogMaintenanceLimits
from relayer.namespaces.cache import CacheLimits
from relayer.process import spare_the_collector
from relayer.use_cases.recall import recall
from relayer.wire import schemas

__all__ = ["main"]

_QUERIES = 64
_CHUNK = 50  # namespaces that are filled at a time


def main(
    work: Annotated[Path, typer.Option(help="Directory for the store; made if need be.")],
    namespaces: Annotated[int, typer.Option()] = 10_000,
    memories: Annotated[int, typer.Option(help="In each namespace.")] = 100,
    cache_bytes: Annotated[int, typer.Option()] = CacheLimits().bytes,
    recalls: Annotated[int, typer.Option()] = 3_000,
) -> None:
    """Measure and print one table."""
    spare_the_collector()
    console = Console(width=120)
    about = machine(work.parent)
    console.print(
        f"{about['cores']} cores, load average {about['load_average']:.1f} at the start, {about['system']}\n"
    )
    work.mkdir(parents=True, exist_ok=True)
    _fill(work, namespaces, memories)
    show(uvloop.run(_measured(work, namespaces, memories, cache_bytes, recalls)), console)


async def _measured(work: Path, namespaces: int, memories: int, cache_bytes: int, recalls: int) -> Section:
    store = await DirectoryStore.open(work / "store", clock=SystemClock())
    before = resident()
    relayer = Replica.over(store, CacheLimits(bytes=cache_bytes))
    chosen = random.Random(7)
    visited = chosen.sample(range(namespaces), min(recalls, namespaces))
    cold = [await _recall(relayer, number) for number in track(visited, "cold")]
    held = len(relayer.context.namespaces)
    rows = [
        ("resident MiB beside an empty process", f"{(resident() - before) / 2**20:,.0f}"),
        ("counted MiB", f"{relayer.context.namespaces.nbytes / 2**20:,.0f}"),
        ("namespaces held", f"{held:,} of {namespaces:,}"),
        ("recall from a cold one, ms, p50 / p99", _times(cold)),
    ]
    warm_names = [
        int(opened.namespace.pointer.name.rpartition("-")[2]) for opened in relayer.context.namespaces.all()
    ]
    warm_names = warm_names[-min(len(warm_names), 500) :]
    await _recalls(relayer, warm_names, len(warm_names), "warming")
    rows.append(("recall from a warm one, ms", _times(await _recalls(relayer, warm_names, recalls, "warm"))))
    upkeep = LogMaintenance(
        relayer.context.ports,
        relayer.context.namespaces,
        LogMaintenanceLimits(CompactionLimits(entries=1), interval=0.0),
    )
    caring = asyncio.create_task(_caring(upkeep))
    rows.append(
        (
            "the same while logs are compacted, ms",
            _times(await _recalls(relayer, warm_names, recalls, "compacting")),
        )
    )
    rows.append(("segments made meanwhile", f"{upkeep.counts['segments']:,}"))
    if caring.done():
        caring.result()
    caring.cancel()
    await asyncio.wait([caring])
    await relayer.close()
    await store.close()
    return Section(
        f"{namespaces:,} namespaces of {memories:,} memories on one relayer, directory store",
        ("", ""),
        rows,
        {},
        ("without HTTP; vectors given; every log is due for compaction.",),
    )


def _fill(work: Path, namespaces: int, memories: int) -> None:
    """Fill what is not filled yet; doing so twice changes nothing, because every batch has an idempotency key."""
    chunks = [(first, min(first + _CHUNK, namespaces), memories) for first in range(0, namespaces, _CHUNK)]
    waiting = [chunk for chunk in chunks if not _mark(work, *chunk).exists()]
    if not waiting:
        return
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        filling = [pool.submit(_fill_chunk, work, *chunk) for chunk in waiting]
        for done in track(as_completed(filling), "filling", total=len(filling)):
            done.result()


def _fill_chunk(work: Path, first: int, end: int, memories: int) -> None:
    spare_the_collector()
    uvloop.run(_filled(work, first, end, memories))
    mark = _mark(work, first, end, memories)
    mark.parent.mkdir(exist_ok=True)
    mark.touch()


async def _filled(work: Path, first: int, end: int, memories: int) -> None:
    store = await DirectoryStore.open(work / "store", clock=SystemClock())
    writer = Replica.over(store, CacheLimits(bytes=64 * 2**20))
    for number in range(first, end):
        await writer.fill(f"many-{number}", memories, seed=number, batch=memories)
        async with writer.use(f"many-{number}") as opened:
            # As a relayer's upkeep does seconds later.
            await IndexMaintenance(writer.context).keep(opened)
    await writer.close()
    await store.close()


def _mark(work: Path, first: int, end: int, memories: int) -> Path:
    return work / "filled" / f"{first}-{end}-{memories}"


async def _recalls(relayer: Replica, names: list[int], count: int, what: str) -> list[float]:
    chosen = random.Random(11)
    return [await _recall(relayer, chosen.choice(names)) for _ in track(range(count), what)]


async def _recall(relayer: Replica, number: int) -> float:
    vector = unit_vectors(1, number % _QUERIES)[0].astype("<f4").tobytes()
    request = schemas.RecallRequest.model_construct(**_WANTED, vector=vector)
    began = time.perf_counter()
    # As a request that comes in: it waits for whatever has the event loop now.
    await asyncio.sleep(0)
    found = await recall(relayer.context, relayer.access(f"many-{number}"), request, relayer.deadline())
    seconds = time.perf_counter() - began
    if not found.memories:
        raise RuntimeError("a namespace has lost its memories")
    return seconds


_WANTED = schemas.RecallRequest(query="x", floor=0, limit=5).model_dump(exclude={"vector", "query"})


def _times(seconds: list[float]) -> str:
    return f"{percentile(seconds, 0.5) * 1000:.1f} / {percentile(seconds, 0.99) * 1000:.1f}"


async def _caring(upkeep: LogMaintenance) -> None:
    while True:
        await asyncio.sleep(0)
        await upkeep.round(_raise)


def _raise(error: BaseException) -> None:
    raise error


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
