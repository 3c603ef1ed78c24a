"""Measure a relayer over a bucket against its server's own pace; `make bench-store` runs it.

It starts SeaweedFS and a relayer. A round measures everything once, client by client, in an order that
turns from round to round; ratios and differences are taken within a round, and their least and greatest say how far to
trust the middle.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from rich.console import Console

from bench.http_servers import Sample
from bench.report import Lab, Section, machine, show, write
from bench.store_committer import CommitSample, Committing
from bench.store_http import Bare, Relaying
from bench.store_raw import BOTO3, RawClient, RawSample, raw_clients
from bench.store_tables import sections
from tests.s3_servers import BUCKET, CREDENTIALS, S3Server, seaweedfs

__all__ = ["Rounds", "main", "measure"]

CONNECTIONS = 64
WRITERS = (1, 64, 256)


@dataclass(slots=True)
class Rounds:
    """What was measured of one client, a value for each round; the relayer's parts are empty for a client it cannot use."""

    creates: list[RawSample] = field(default_factory=list)
    absent: list[RawSample] = field(default_factory=list)
    together: list[Sample] = field(default_factory=list)
    alone: list[Sample] = field(default_factory=list)
    recalls: list[Sample] = field(default_factory=list)
    commits: dict[int, list[CommitSample]] = field(default_factory=lambda: {count: [] for count in WRITERS})


@dataclass(slots=True)
class _Bench:
    lab: Lab
    raw: dict[str, RawClient]
    relaying: Relaying
    committing: Committing
    bare: Bare
    size: int

    async def round(self, number: int, name: str, rounds: Rounds) -> None:
        """Measure one client once."""
        lab, seed = self.lab, 100 + number
        self.lab.say(f"round {number + 1}, {name}")
        rounds.creates.append(self.raw[name].creates(self.size, lab.count(400, 10)))
        rounds.absent.append(self.raw[name].reads_absent(lab.count(400, 10)))
        if name != BOTO3:
            return
        relaying, committing = self.relaying, self.committing
        rounds.alone.append(await relaying.write_alone(lab.count(300, 5), seed=seed))
        rounds.recalls.append(await relaying.recall(lab.count(300, 5)))
        rounds.together.append(await relaying.write_together(lab.count(2_000, 64), CONNECTIONS, seed=seed))
        for writers in WRITERS:
            count = lab.count(300 if writers == 1 else 12_000, 2 * writers)
            rounds.commits[writers].append(await committing.append(self.size, count, writers))


async def measure(lab: Lab, server: S3Server) -> list[Section]:
    """Measure a relayer and each client library over one server."""
    raw = raw_clients(BUCKET, server.url)
    measured = {name: Rounds() for name in raw}
    bare_rounds: list[Sample] = []
    with ExitStack() as stack:
        for client in raw.values():
            stack.callback(client.close)
        lab.say("starting a relayer")
        place = ["--store", f"s3://{BUCKET}/relayer", "--endpoint-url", server.url]
        relaying = await Relaying.start(stack, place, CREDENTIALS, lab.work / "relayer")
        committing = await Committing.open(BUCKET, server.url)
        bare = Bare.start(stack, relaying.gateway, lab.work / "bare")
        await bare.write(100, CONNECTIONS, seed=3)
        bench = _Bench(lab, raw, relaying, committing, bare, await _entry_size(relaying, server))
        names = list(raw)
        for number in range(lab.count(7, 1)):
            turn = number % len(names)
            bare_rounds.append(await bare.write(lab.count(3_000, 64), CONNECTIONS, seed=200 + number))
            for name in names[turn:] + names[:turn]:
                await bench.round(number, name, measured[name])
        await committing.close()
        await relaying.gateway.client.aclose()
    return sections(measured, bare_rounds, bench.size)


async def _entry_size(relaying: Relaying, server: S3Server) -> int:
    """Return what one memory comes to in the bucket when nobody shares its entry."""
    known = _objects(server)
    await relaying.write_alone(20, seed=4)
    new = [size for key, size in _objects(server).items() if key not in known]
    return round(statistics.median(new))


def _objects(server: S3Server) -> dict[str, int]:
    pages: Any = server.admin.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    return {row["Key"]: row["Size"] for page in pages for row in page.get("Contents", ())}


def main(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="See that everything runs; numbers mean nothing.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write all numbers to this file, too.")] = None,
    work: Annotated[Path | None, typer.Option(help="Directory on the file system to measure.")] = None,
) -> None:
    """Run the benchmark and print one table for each question."""
    console, progress = Console(width=120), Console(stderr=True)
    os.environ.update(CREDENTIALS)
    with tempfile.TemporaryDirectory(prefix="memrelay-bench-", dir=work) as folder:
        about = machine(Path(folder))
        console.print(
            f"{about['cores']} cores, load average {about['load_average']:.1f} at the start, "
            f"Python {about['python']}, {about['system']}, SeaweedFS on {about['file_system']}\n"
        )
        with progress.status("starting SeaweedFS") as status, seaweedfs(Path(folder)) as server:
            lab = Lab(Path(folder), quick, status.update)
            found = uvloop.run(measure(lab, server))
    for section in found:
        show(section, console)
    if json is not None:
        write(json, about, found)
        console.print(f"all numbers: {json}")


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
