"""Resident bytes of an open namespace, by its size, beside what the cache believes that it takes."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.log_house import Replica, WithoutIndexes
from bench.report import Lab, Section
from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.system import SystemClock
from relayer.maintenance.logs import IndexLimits, IndexMaintenance

__all__ = ["fill", "measured", "resident", "resident_bytes"]

# Memories in each namespace, and how many such namespaces are opened.
SIZES = ((50, 200), (1_000, 20), (10_000, 6))


async def resident_bytes(lab: Lab) -> list[Section]:
    """Open namespaces of one size in a process of their own, and look at its pages before and after."""
    rows: list[tuple[str, ...]] = []
    data: dict[str, Any] = {}
    for size, how_many in SIZES if not lab.quick else ((20, 3),):
        work = lab.work / f"memory-{size}"
        lab.say(f"resident bytes: storing {how_many} namespaces of {size:,} memories")
        await fill(work, size, how_many)
        for begin in ("log", "index"):
            lab.say(f"resident bytes: opening {how_many} namespaces of {size:,} memories from their {begin}")
            found = await asyncio.to_thread(measured, work, how_many, begin)
            pages, believed = found["resident"] / how_many, found["believed"] / how_many
            rows.append(
                (
                    f"{size:,}",
                    begin,
                    f"{pages / 1024:,.0f}",
                    f"{pages / size:,.0f}",
                    f"{believed / 1024:,.0f}",
                    f"{believed / pages:.2f}",
                )
            )
            data[f"{size} {begin}"] = {"resident": pages, "believed": believed}
    return [
        Section(
            "Resident memory of an open namespace",
            ("memories", "opened from", "KiB", "bytes a memory", "counted as KiB", "counted / resident"),
            rows,
            data,
            (
                "384 dimensions, texts of about 70 bytes; resident: growth of a fresh process that opens several such",
                "namespaces, divided by their number.",
            ),
        )
    ]


async def fill(work: Path, size: int, how_many: int) -> None:
    """Store namespaces of one size in a directory, each with an index."""
    store = await DirectoryStore.open(work, clock=SystemClock())
    replica = Replica.over(store)
    for number in range(how_many):
        await replica.fill(f"memory-{number}", size, seed=number)
        async with replica.use(f"memory-{number}") as opened:
            await opened.tidy_indexes()
            await IndexMaintenance(replica.context, IndexLimits(least=1)).keep(opened)
    await replica.close()
    await store.close()


def measured(work: Path, how_many: int, begin: str) -> dict[str, int]:
    """Return the ``resident`` bytes that opening them takes, and what the cache ``believed``.

    Args:
        work: where `fill` put them.
        how_many: of them to open; at least two.
        begin: ``index``, or ``log`` to do without.
    """
    answer = subprocess.run(
        [sys.executable, "-m", "bench.log_memory", str(work), str(how_many), begin],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, int] = json.loads(answer.stdout)
    return found


async def _child(work: Path, how_many: int, begin: str) -> dict[str, int]:
    store = await DirectoryStore.open(work, clock=SystemClock())
    replica = Replica.over(store if begin == "index" else WithoutIndexes(store))
    async with replica.use("memory-0"):
        pass  # what the first opening loads is no namespace's
    before, believed = resident(), replica.context.namespaces.nbytes
    for number in range(1, how_many):
        async with replica.use(f"memory-{number}") as opened:
            await opened.tidy_indexes()
    await replica.context.namespaces.trim()
    gc.collect()
    share = how_many / (how_many - 1)
    return {
        "resident": round((resident() - before) * share),
        "believed": round((replica.context.namespaces.nbytes - believed) * share),
    }


def resident() -> int:
    """Return the resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_child(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))))
