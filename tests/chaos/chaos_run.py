"""Three real relayers over a real S3 server, clients, and everything going wrong; then a verdict on the history.

    make chaos SECONDS=120 TOPOLOGY=single|cluster SEED=7

A seed repeats the plan of what goes wrong and the clients' choices; the instants are as repeatable as the machine's
scheduling. The run fails when the history is not one of a single log, and leaves the history and all logs behind.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from chaos_checker import Violation, check
from chaos_clients import Client, Town
from chaos_history import End, Event, Kind, save
from chaos_link import Link
from chaos_nemesis import Deed, Nemesis, plan
from chaos_processes import RelayerUnit, a_cluster, a_single_server
from rich.console import Console
from rich.table import Table
from s3_servers import BUCKET, CREDENTIALS

from demo.relayer_process import RelayerProcess
from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.client import RelayerClient

RELAYERS = 3
CLIENTS = 8
PAUSE = 0.12
# When everything is mended, relayers and store may still be busy with what was queued.
QUIET_SECONDS = 120.0
FINAL_PATIENCE = 30.0
SETTLED_SECONDS = 4.0
_SHOWN = 5


class Topology(StrEnum):
    SINGLE = "single"
    CLUSTER = "cluster"


@dataclass
class Outcome:
    """What a run came to; ``ended`` and ``stuck`` say which relayers did not live up to it by themselves."""

    history: list[Event]
    deeds: list[tuple[Deed, float]]
    ended: list[str]
    stuck: list[str]
    namespaces: int


def main(
    seconds: Annotated[float, typer.Option(min=5, help="How long things go wrong.")] = 120,
    topology: Annotated[
        Topology, typer.Option(help="One S3 server, or a cluster of nine processes.")
    ] = Topology.SINGLE,
    seed: Annotated[int | None, typer.Option(help="Repeats a plan; drawn when not given.")] = None,
    relayer_options: Annotated[
        str,
        typer.Option(
            help="More options of memrelay serve, as on a command line.", envvar="CHAOS_RELAYER_OPTIONS"
        ),
    ] = "",
    folder: Annotated[
        Path | None, typer.Option(help="Keeps history and logs, also when nothing is wrong.")
    ] = None,
) -> None:
    """Break things under load and check what clients were told."""
    chosen = secrets.randbits(32) if seed is None else seed
    console = Console()
    console.print(f"chaos: {topology}, {seconds:g} s, seed {chosen}")
    place = folder or Path(tempfile.mkdtemp(prefix="memrelay-chaos-"))
    place.mkdir(parents=True, exist_ok=True)
    os.environ.update(CREDENTIALS)
    outcome = asyncio.run(_run(place, topology, seconds, chosen, shlex.split(relayer_options)))
    violations = check(outcome.history)
    _report(console, outcome, violations)
    if violations or outcome.ended or outcome.stuck:
        save(place / "history.jsonl", outcome.history)
        console.print(f"[red]the history and all logs are in {place}; SEED={chosen} repeats the plan")
        sys.exit(1)
    if folder is None:
        shutil.rmtree(place)
    else:
        save(place / "history.jsonl", outcome.history)


async def _run(
    folder: Path, topology: Topology, seconds: float, seed: int, options: Sequence[str]
) -> Outcome:
    async with AsyncExitStack() as stack:
        store = (a_cluster if topology is Topology.CLUSTER else a_single_server)(folder / "store")
        stack.callback(store.stop)
        await store.start()
        links = [
            Link(
                [*store.gateways[number % len(store.gateways) :], *store.gateways],
                random.Random(seed + number),
            )
            for number in range(RELAYERS)
        ]
        for link in links:
            await link.start()
            stack.push_async_callback(link.close)
        units = [_relayer(folder, number, link, options) for number, link in enumerate(links)]
        for unit in units:
            stack.callback(unit.kill)
        # One after the other: the first one makes what all of them share.
        for unit in units:
            await unit.start()
        town = await _town(folder, units, seed)
        stack.push_async_callback(town.close)
        clients = [Client(town, number, seed) for number in range(CLIENTS)]
        victims = {victim.name: victim for victim in (*units, *store.parts)}
        wires = {f"link-{number}": link for number, link in enumerate(links)}
        nemesis = Nemesis(victims, wires)
        deeds = plan(
            seed, seconds, [unit.name for unit in units], [*wires], [part.name for part in store.parts]
        )
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.run(stop, PAUSE))
            await asyncio.gather(nemesis.run(deeds), asyncio.sleep(seconds))
            stop.set()
        await _settle(town, clients[0])
        stuck = await _look(town, clients[0])
        # What is in no relayer's memory any more must be in the store.
        for unit in units:
            unit.kill()
            await unit.start()
        stuck += await _look(town, clients[0])
        if not any(event.kind is Kind.REMEMBER and event.end is End.OK for event in town.history):
            stuck.append("nothing was acknowledged: this run shows nothing")
        ended = [text for unit in units for text in unit.ended]
        return Outcome(town.history, nemesis.done, ended, stuck, len(town.spaces))


def _relayer(folder: Path, number: int, link: Link, options: Sequence[str]) -> RelayerUnit:
    key = folder / "relayer.key"
    if not key.exists():
        key.touch(0o600)
        key.write_text(secrets.token_hex(32))
    config = folder / "relayer.toml"
    config.write_text(f'relayer_key_file = "{key}"\n')
    arguments = ["--store", f"s3://{BUCKET}/chaos", "--endpoint-url", f"http://127.0.0.1:{link.port}"]
    arguments += ["--probe", "off", "--rate-limits", "off", "--log-format", "json", "--config", str(config)]
    home = folder / f"relayer-{number}"
    return RelayerUnit(home.name, RelayerProcess(home, arguments=[*arguments, *options]))


async def _town(folder: Path, units: Sequence[RelayerUnit], seed: int) -> Town:
    urls = [unit.process.url for unit in units]
    async with RelayerClient(urls[0], trust=TrustStore(folder / "trust.json")) as client:
        fleet = await client.fleet()
    return Town(urls, fleet.keys[0], seed)


async def _settle(town: Town, client: Client) -> None:
    """Wait until nobody writes: relayers go on with what clients have given up on, longer than any pause between tries."""
    end = time.monotonic() + QUIET_SECONDS
    before: dict[str, set[object]] = {}
    while time.monotonic() < end:
        now: dict[str, set[object]] = {space.name: set() for space in town.spaces}
        for space, relayer in itertools.product(town.spaces, range(RELAYERS)):
            read = await client.recall(space, relayer, "strong", None, patience=FINAL_PATIENCE)
            now[space.name].add(read.position if read.end is End.OK else read)
        if now == before and all(len(positions) == 1 for positions in now.values()):
            return
        before = now
        await asyncio.sleep(SETTLED_SECONDS)


async def _look(town: Town, client: Client) -> list[str]:
    """Read every namespace through every relayer, now that all is quiet; returns what could not be read."""
    end = time.monotonic() + QUIET_SECONDS
    stuck: list[str] = []
    for space, relayer in itertools.product(town.spaces, range(RELAYERS)):
        while True:
            listed = await client.list(space, relayer, patience=FINAL_PATIENCE, final=True)
            recalled = await client.recall(
                space, relayer, "strong", space.position, patience=FINAL_PATIENCE, final=True
            )
            if listed.end is recalled.end is End.OK:
                break
            if time.monotonic() > end:
                codes = {listed.code, recalled.code} - {""}
                stuck.append(f"relayer {relayer} does not serve {space.name} again: {', '.join(codes)}")
                break
            await asyncio.sleep(0.5)
    return stuck


def _report(console: Console, outcome: Outcome, violations: Sequence[Violation]) -> None:
    history = outcome.history
    table = Table(
        "operation", "tries", "ok", "refused", "unknown", "p50 ms", "p99 ms", title="what clients were told"
    )
    for kind in Kind:
        tries = [event for event in history if event.kind is kind and not event.final]
        ends = Counter(event.end for event in tries)
        times = sorted(1000 * (event.ended - event.begun) for event in tries if event.end is End.OK)
        middle, high = (
            f"{times[int(part * (len(times) - 1))]:.0f}" if times else "-" for part in (0.5, 0.99)
        )
        table.add_row(
            kind, *map(str, (len(tries), ends[End.OK], ends[End.FAIL], ends[End.UNKNOWN])), middle, high
        )
    console.print(table)
    harms = Counter((deed.victim.partition("-")[0], deed.harm) for deed, _ in outcome.deeds)
    console.print(
        "harm:    " + ", ".join(f"{harm} {victim} {count}" for (victim, harm), count in sorted(harms.items()))
    )
    codes = Counter(event.code or "no answer" for event in history if event.end is not End.OK)
    console.print("answers: " + ", ".join(f"{code} {count}" for code, count in codes.most_common()))
    slowest = max((late for _, late in outcome.deeds), default=0.0)
    kept = sum(event.kind is Kind.REMEMBER and event.end is End.OK for event in history)
    entries = sum(
        max((event.position.seq for event in events if event.position), default=0)
        for _, events in itertools.groupby(
            sorted(history, key=lambda event: event.namespace), lambda event: event.namespace
        )
    )
    console.print(
        f"log:     {kept} acknowledged writes, {entries} entries in {outcome.namespaces} namespaces; "
        f"the slowest recovery took {slowest:.1f} s"
    )
    for text in outcome.ended:
        console.print(f"by itself, {text}", style="red", markup=False)
    for text in outcome.stuck:
        console.print(text, style="red", markup=False)
    for violation in violations[:_SHOWN]:
        console.print(f"[red]{violation.flaw}[/]: {violation.namespace}, {violation.detail}")
        for event in violation.events[:8]:
            console.print(f"    {_line(event)}", markup=False)
    if violations:
        console.print(f"[red]{len(violations)} violations")
    else:
        console.print("[green]one log, nothing lost, nothing twice")


def _line(event: Event) -> str:
    position = event.position.seq if event.position else "-"
    return (
        f"{event.begun:.3f}..{event.ended:.3f} {event.kind} {event.number} at relayer {event.relayer}: {event.end}"
        f" {event.code} position {position} {event.consistency} {len(event.seen) or ''} {' '.join(event.texts)}"
    )


if __name__ == "__main__":
    typer.run(main)
