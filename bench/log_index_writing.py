"""Index writes: what calls of a namespace wait for while its index is written, and what memory that takes."""

from __future__ import annotations

import asyncio
import base64
import ctypes
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.log_house import Replica
from bench.material import unit_vectors
from bench.report import Lab, Section
from relayer.namespaces.namespace import OpenNamespace
from relayer.ports import ObjectStore
from relayer.use_cases.recall import recall
from relayer.wire.schemas import RecallRequest

__all__ = ["index_writes"]

SIZES = (10_000, 30_000, 100_000)
_CALM_SECONDS = 5.0
_MIB = 1024 * 1024


@dataclass(slots=True)
class _Waits:
    """Seconds of each call, the longest that the event loop was held, and the most resident bytes."""

    recalls: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    held: float = 0.0
    resident: int = 0


@dataclass(slots=True)
class _Size:
    count: int
    calm: _Waits
    during: _Waits
    seconds: float = 0.0
    nbytes: int = 0
    resident: int = 0


async def index_writes(lab: Lab, store: ObjectStore, where: str) -> list[Section]:
    """Measure over one store."""
    measured = []
    for count in SIZES if not lab.quick else (200,):
        lab.say(f"index writes, {where}: storing {count:,} memories")
        name = f"writing-{count}"
        replica = Replica.over(store)
        await replica.fill(name, count, seed=lab.seed)
        async with replica.use(name) as opened:
            await opened.tidy_indexes()
            calm = await _called(replica, name, lambda: asyncio.sleep(_CALM_SECONDS))
            size = _Size(count, calm, _Waits())
            size.during = await _called(
                replica, name, lambda opened=opened, size=size: _written(opened, size)
            )
        await replica.close()
        measured.append(size)
    return [_section(measured, where)]


async def _written(opened: OpenNamespace, size: _Size) -> None:
    # What was freed before the write is not counted as taken by it.
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    size.resident = _resident()
    began = time.perf_counter()
    size.nbytes = (await opened.write_index()).nbytes
    size.seconds = time.perf_counter() - began


async def _called(replica: Replica, name: str, meanwhile: Callable[[], Awaitable[None]]) -> _Waits:
    """Recall and write, one call after the other, while something is done; a call that is under way then is finished."""
    waits = _Waits()
    over = asyncio.Event()

    async def recalls() -> None:
        for vector in unit_vectors(100_000, 5):
            if over.is_set():
                return
            request = RecallRequest(vector=base64.b64encode(vector.astype("<f4").tobytes()).decode(), floor=0)
            began = time.perf_counter()
            await recall(replica.context, replica.access(name), request, replica.deadline())
            waits.recalls.append(time.perf_counter() - began)
            await asyncio.sleep(0.02)

    async def writes() -> None:
        at = 0
        while not over.is_set():
            began = time.perf_counter()
            await replica.fill(name, 1, seed=at + int(began * 1000))
            waits.writes.append(time.perf_counter() - began)
            at += 1
            await asyncio.sleep(0.05)

    async def beats() -> None:
        last = time.perf_counter()
        while not over.is_set():
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            waits.held, last = max(waits.held, now - last), now
            waits.resident = max(waits.resident, _resident())

    callers = [asyncio.create_task(one()) for one in (recalls, writes, beats)]
    await meanwhile()
    over.set()
    await asyncio.gather(*callers)
    return waits


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _section(measured: list[_Size], where: str) -> Section:
    rows, data = [], {}
    for size in measured:
        rows.append(
            (
                f"{size.count:,}",
                f"{size.seconds:.1f} s",
                f"{size.nbytes / _MIB:.0f} MiB",
                f"{(size.during.resident - size.resident) / _MIB:.0f} MiB",
                *(
                    f"{_ms(calm)} -> {_ms(during)}"
                    for calm, during in (
                        (size.calm.recalls, size.during.recalls),
                        (size.calm.writes, size.during.writes),
                        ([size.calm.held], [size.during.held]),
                    )
                ),
            )
        )
        data[str(size.count)] = {
            "seconds": size.seconds,
            "bytes": size.nbytes,
            "memory": size.during.resident - size.resident,
            "longest_recall": [max(size.calm.recalls), max(size.during.recalls)],
            "longest_write": [max(size.calm.writes), max(size.during.writes)],
            "longest_hold": [size.calm.held, size.during.held],
        }
    head = (
        "memories",
        "index written in",
        "its size",
        "memory meanwhile",
        "longest recall before -> meanwhile",
        "longest write",
        "longest hold of the event loop",
    )
    return Section(f"Index writes, {where}", head, rows, data=data)


def _ms(waits: list[float]) -> str:
    return f"{1000 * float(np.max(waits)):.0f} ms" if waits else "none"
