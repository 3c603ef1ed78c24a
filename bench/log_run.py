"""Measure the log by itself, without HTTP; `make bench-log` runs it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from bench.log_appending import appending, replicas
from bench.log_index_writing import index_writes
from bench.log_keeping import bytes_written
from bench.log_memory import resident_bytes
from bench.log_opening import cold_openings
from bench.log_restoring import restores
from bench.report import Lab, Section, machine, show, write
from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.s3_store import S3Store
from relayer.adapters.system import SystemClock
from relayer.ports import ObjectStore
from relayer.process import spare_the_collector
from tests.s3_servers import BUCKET, CREDENTIALS, seaweedfs

__all__ = ["Part", "main"]


class Part(StrEnum):
    """What can be measured alone."""

    APPENDS = "appends"
    REPLICAS = "replicas"
    OPENINGS = "openings"
    BUCKET_OPENINGS = "bucket-openings"
    INDEX_WRITES = "index-writes"
    RESTORES = "restores"
    WRITTEN = "written"
    MEMORY = "memory"


_OVER_A_DIRECTORY: dict[Part, Callable[[Lab, ObjectStore, str], Awaitable[list[Section]]]] = {
    Part.APPENDS: appending,
    Part.REPLICAS: replicas,
    Part.OPENINGS: cold_openings,
    Part.INDEX_WRITES: index_writes,
    Part.RESTORES: restores,
    Part.WRITTEN: bytes_written,
}


def main(
    only: Annotated[list[Part] | None, typer.Option(help="Only this part; may be repeated.")] = None,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="See that everything runs; numbers mean nothing.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write all numbers to this file, too.")] = None,
    work: Annotated[Path | None, typer.Option(help="Directory on the file system to measure.")] = None,
) -> None:
    """Run the benchmarks of the log and print one table for each question."""
    console, progress = Console(width=132), Console(stderr=True)
    spare_the_collector()  # as a relayer does
    sections: list[Section] = []
    with tempfile.TemporaryDirectory(prefix="memrelay-bench-", dir=work) as folder:
        about = machine(Path(folder))
        console.print(
            f"{about['cores']} cores, load average {about['load_average']:.1f} at the start, "
            f"Python {about['python']}, {about['system']}, stores on {about['file_system']}\n"
        )
        with progress.status("starting") as status:
            lab = Lab(Path(folder), quick, status.update)
            for part in only or list(Part):
                found = _measured(part, lab)
                for section in found:
                    show(section, console)
                sections += found
    if json is not None:
        write(json, about, sections)
        console.print(f"all numbers: {json}")


def _measured(part: Part, lab: Lab) -> list[Section]:
    if part is Part.MEMORY:
        return uvloop.run(_memory(lab))
    if part is Part.BUCKET_OPENINGS:
        os.environ.update(CREDENTIALS)
        with seaweedfs(lab.work) as server:
            return uvloop.run(_over_a_bucket(lab, server.url))
    return uvloop.run(_over_a_directory(lab, part))


async def _memory(lab: Lab) -> list[Section]:
    return await resident_bytes(lab)


async def _over_a_directory(lab: Lab, part: Part) -> list[Section]:
    store = await DirectoryStore.open(lab.work / part.value, clock=SystemClock())
    try:
        return await _OVER_A_DIRECTORY[part](lab, store, "directory store")
    finally:
        await store.close()


async def _over_a_bucket(lab: Lab, url: str) -> list[Section]:
    store = await S3Store.open(BUCKET, clock=SystemClock(), endpoint_url=url, client="direct")
    try:
        return await cold_openings(lab, store, "bucket (SeaweedFS)")
    finally:
        await store.close()


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
