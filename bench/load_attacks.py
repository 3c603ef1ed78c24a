"""What an attacker costs the others: recall of a well-behaved account, alone and while one account or address attacks.

``python -m bench.load_attacks`` (``make prove``). Each attack gets a relayer of its own and runs for a bounded time in a process of lower
priority. An attacker also takes CPU time from a relayer on the same machine, which proves nothing about the relayer: so the same recalls are
measured while a process of that priority only burns as much CPU time as the attacker did. Ends with 1 if an attack makes recall more than
three times as slow (p95) as it is alone, or beside what only burns.
"""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
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
from bench.stats import percentile
from gateway_plugin.keys.identity import Identity

__all__ = ["main"]

SLOWER = 3.0
ATTACK_SECONDS = 15.0
_MEMORIES = 500
_PER_SECOND = 8.0
# Recalls of the first seconds of an attack are not counted: a cheap beginning must not hide what builds up.
_WARM_SECONDS = 2.0
_PATIENCE = 10.0
_TEXT = 64 * 1024
_TURNS = 31
# What attackers and burners are started with: the machine is to be shared fairly, what is measured is the relayer.
_NICE = 10


@dataclass(slots=True)
class _Target:
    """What an attacker has: a relayer, a folder of its own, and how long it may go on once it is prepared."""

    server: Server
    work: Path
    seconds: float
    quick: bool = False
    until: float = float("inf")
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)

    def begin(self) -> None:
        """Say that all is prepared: from here on it is measured what this costs the others."""
        self.until = time.monotonic() + self.seconds
        print("begun", flush=True)

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self.until

    def gateway(self) -> BenchGateway:
        """Return a gateway of an account of its own, which closes when the attack ends."""
        gateway = BenchGateway(self.server, self.work / secrets.token_hex(4))
        self.closing.push_async_callback(gateway.client.aclose)
        return gateway

    async def send(self, request: bytes) -> None:
        """Send a request and wait for its answer; what it is does not matter."""
        with suppress(NotAnswered, OSError, TimeoutError):
            async with asyncio.timeout(min(max(self.until - time.monotonic(), 0.01), 60.0)):
                await drive(self.server.authority, [request], 1)

    async def keep(self, connections: int, make: Callable[[], Awaitable[bytes]]) -> None:
        """Send requests one after the other on each of so many connections, as fast as they are answered."""

        async def repeat() -> None:
            while self.goes_on:
                await self.send(await make())
                await asyncio.sleep(0.002)

        await asyncio.gather(*(repeat() for _ in range(connections)))


async def _growing_texts(target: _Target) -> None:
    """Texts that grow when they are normalised, and turns of which every word looks like a statement's beginning."""
    gateway = target.gateway()
    identity = gateway.identity("growing")
    growing = {"items": [{"text": "\ufdfa" * (_TEXT // 3)} for _ in range(_TURNS)]}
    saying = {"turns": [{"role": "user", "text": "I " * (_TEXT // 2)} for _ in range(_TURNS)]}
    requests = [await gateway.request(identity, "/v1/memories", growing) for _ in range(3)]
    requests += [await gateway.request(identity, "/v1/analyze", saying) for _ in range(8)]
    target.begin()
    await asyncio.gather(*map(target.send, requests))


async def _unread_answers(target: _Target) -> None:
    """Requests for the largest pages there are, whose answers nobody reads."""
    gateway = target.gateway()
    identity = gateway.identity("pages")
    rows = unit_vectors(100, 5)
    large = [{**item, "text": item["text"] + " tale" * 12_000} for item in items(rows, 5)]
    for start in range(0, len(large), 20):
        await target.send(
            await gateway.request(identity, "/v1/memories", {"items": large[start : start + 20]})
        )
    host, _, port = target.server.authority.rpartition(":")
    connections = []
    target.begin()
    while target.goes_on:
        if len(connections) < 100:
            request = await gateway.request(identity, "/v1/memories?limit=100", None, "GET")
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with suppress(OSError):
                connection.connect((host, int(port)))
                connection.sendall(request)
            connections.append(connection)
        await asyncio.sleep(0.05)
    for connection in connections:
        connection.close()


async def _idle_connections(target: _Target) -> None:
    """More connections than a process may usually have files open, on which nothing is said."""
    host, _, port = target.server.authority.rpartition(":")
    connections: list[socket.socket] = []
    target.begin()
    while target.goes_on:
        # Those that the relayer closed are opened again.
        for connection in list(connections):
            with suppress(BlockingIOError, OSError):
                if connection.recv(1, socket.MSG_DONTWAIT) == b"":
                    connections.remove(connection)
                    connection.close()
        for _ in range(min(200, 1_100 - len(connections))):
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex((host, int(port)))
            connections.append(connection)
        await asyncio.sleep(0.25)
    for connection in connections:
        connection.close()


async def _many_accounts(target: _Target) -> None:
    """Accounts that come into being, and polls and questions about erasures of accounts that have nothing."""
    numbers = count()
    unknown = "01m8079zqgt6n9m13psfyd6ak5"

    async def make() -> bytes:
        gateway, number = BenchGateway(target.server, target.work / secrets.token_hex(4)), next(numbers)
        async with aclosing(gateway.client):
            identity = gateway.identity("new")
            if number % 3 == 0:
                item = {"items": [{"text": f"note {number}"}]}
                return await gateway.request(identity, "/v1/memories", item)
            subject = "jobs" if number % 3 == 1 else "erasures"
            return await gateway.request(identity, f"/v1/{subject}/{unknown}", None, "GET")

    target.begin()
    await target.keep(8, make)


async def _long_queries(target: _Target) -> None:
    """Forty-six queries a second, each as long as it may be."""
    gateway = target.gateway()
    identity = gateway.identity("long")
    await target.send(
        await gateway.request(identity, "/v1/memories", {"items": items(unit_vectors(50, 3), 3)})
    )
    sent: set[asyncio.Task[None]] = set()
    numbers = count()
    target.begin()
    while target.goes_on:
        text = " ".join(queries(600, next(numbers)))[:_TEXT]
        request = await gateway.request(identity, "/v1/recall", {"query": text})
        sent.add(asyncio.create_task(target.send(request)))
        sent = {task for task in sent if not task.done()}
        await asyncio.sleep(1 / 46)
    await asyncio.gather(*sent)


async def _taken_streams(target: _Target) -> None:
    """Sixteen accounts that each take as many streams of changes as one may."""
    requests = []
    for _ in range(16):
        gateway = target.gateway()
        identity = gateway.identity("streams")
        await target.send(await gateway.request(identity, "/v1/memories", {"items": [{"text": "a note"}]}))
        for _ in range(16):
            request = await gateway.request(identity, "/v1/changes", None, "GET")
            requests.append(request.replace(b"\r\n", b"\r\nAccept: text/event-stream\r\n", 1))
    target.begin()
    await asyncio.gather(*map(target.send, requests))


async def _listed_namespaces(target: _Target) -> None:
    """Listings of an account that has many namespaces, one after the other on each of eight connections."""
    gateway = target.gateway()
    for number in range(30 if target.quick else 300):
        identity = gateway.identity(f"n{number}")
        await target.send(await gateway.request(identity, "/v1/memories", {"items": [{"text": "a note"}]}))
    identity = gateway.identity("n0")
    target.begin()
    await target.keep(8, lambda: gateway.request(identity, "/v1/namespaces", None, "GET"))


async def _unsigned_bodies(target: _Target) -> None:
    """Bodies of the largest size for MemWal's front, of which a kilobyte arrives now and then; no signature is good."""
    host, _, port = target.server.authority.rpartition(":")
    stamp, size = int(time.time()), 2 * 1024 * 1024
    head = (
        f"POST /api/recall HTTP/1.1\r\nHost: {target.server.authority}\r\nContent-Length: {size}\r\n"
        f"x-public-key: {'ab' * 32}\r\nx-signature: {'cd' * 64}\r\nx-timestamp: {stamp}\r\n"
        "x-nonce: 6f0d9b5e-6a0e-4c37-8f6b-111111111111\r\n\r\n"
    ).encode()

    async def trickle() -> None:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(head)
            while target.goes_on and not writer.is_closing():
                writer.write(b" " * 1024)
                await writer.drain()
                await asyncio.sleep(0.25)
            writer.transport.abort()

    async def repeat() -> None:
        while target.goes_on:
            await trickle()
            await asyncio.sleep(0.5)

    target.begin()
    await asyncio.gather(*(repeat() for _ in range(200)))


_ATTACKS: dict[str, Callable[[_Target], Awaitable[None]]] = {
    "texts that grow": _growing_texts,
    "unread answers": _unread_answers,
    "idle connections": _idle_connections,
    "many accounts and polls": _many_accounts,
    "long queries": _long_queries,
    "taken streams": _taken_streams,
    "listed namespaces": _listed_namespaces,
    "unsigned bodies": _unsigned_bodies,
}


@dataclass(frozen=True, slots=True)
class _Measured:
    """p95 of a recall in seconds, and how many failed; one that failed took as long as anybody waits."""

    p95: float
    failed: int

    @classmethod
    def of(cls, latencies: list[float]) -> _Measured:
        return cls(percentile(latencies, 0.95), sum(one >= _PATIENCE for one in latencies))

    def __str__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.p95 * 1000:.1f} ms{failed}"


class _WellBehaved:
    """An account with some memories that recalls eight times a second, each time something new."""

    def __init__(self, server: Server, work: Path) -> None:
        self._server = server
        self._gateway = BenchGateway(server, work)
        self._identity: Identity = self._gateway.identity("well-behaved")
        self._seed = count(1000)

    async def settle(self) -> None:
        await self._gateway.fill(self._identity, items(unit_vectors(_MEMORIES, 1), 1))
        self._server.settle()
        for _ in range(20):
            await self._recall()

    async def recalls(self, seconds: float) -> _Measured:
        """Recall for so long, at an even pace that a slow answer does not slow down; the first moments do not count."""
        begun, tasks = time.monotonic(), []
        while (now := time.monotonic()) < begun + seconds:
            task = asyncio.create_task(self._recall())
            if now >= begun + min(_WARM_SECONDS, seconds / 4):
                tasks.append(task)
            await asyncio.sleep(1 / _PER_SECOND)
        return _Measured.of(await asyncio.gather(*tasks))

    async def close(self) -> None:
        await self._gateway.client.aclose()

    async def _recall(self) -> float:
        body = {"query": queries(1, next(self._seed))[0], "floor": 0}
        request = await self._gateway.request(self._identity, "/v1/recall", body)
        started_at = time.perf_counter()
        try:
            async with asyncio.timeout(_PATIENCE):
                await drive(self._server.authority, [request], 1)
        except (NotAnswered, OSError, TimeoutError):
            return _PATIENCE
        return time.perf_counter() - started_at


@contextmanager
def _beside(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a part of this module in a process of lower priority until the block ends."""
    command = [sys.executable, "-m", "bench.load_attacks", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


async def _begun(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process is prepared; raises `RuntimeError` when it ended instead."""
    assert process.stdout is not None
    if not await asyncio.to_thread(process.stdout.readline):
        raise RuntimeError(f"{process.args!r} ended before it began")


_Proved = tuple[tuple[str, ...], dict[str, Any], bool]


async def _proved(lab: Lab, name: str, seconds: float) -> _Proved:
    """Run one attack; returns its row, its numbers, and whether recall stayed fast enough."""
    folder = Path(tempfile.mkdtemp(prefix=name.replace(" ", "-"), dir=lab.work))
    with started(
        "relayer",
        ["serve", "--port", "0", "--data", str(folder / "data"), "--accounts", "open"],
        folder / "relayer",
    ) as server:
        victim = _WellBehaved(server, folder / "victim")
        lab.say(f"{name}: filling")
        await victim.settle()
        lab.say(f"{name}: alone")
        quiet = await victim.recalls(seconds / 2)
        lab.say(f"{name}: attacked")
        quick = ("--quick",) if lab.quick else ()
        arguments = ("attack", name, server.url, str(server.pid), str(folder), str(seconds), *quick)
        with _beside(*arguments) as attacker:
            await _begun(attacker)
            process = Server(server.url, attacker.pid)
            before, spent = time.monotonic(), process.cpu_seconds()
            attacked = await victim.recalls(seconds)
            share = _share(process, spent, time.monotonic() - before)
        lab.say(f"{name}: beside what only burns {share:.0%} of a core")
        server.settle(20.0)
        with _beside("burn", f"{min(share, 1.0):.3f}") as burner:
            await _begun(burner)
            burning = await victim.recalls(seconds / 2)
        await victim.close()
    ratio, beside = attacked.p95 / quiet.p95, attacked.p95 / burning.p95
    held = min(ratio, beside) <= SLOWER and not attacked.failed
    row = (
        name,
        str(quiet),
        str(burning),
        str(attacked),
        f"{ratio:.1f}x",
        f"{beside:.1f}x",
        f"{share:.0%}",
        "holds" if held else "BROKEN",
    )
    data = {
        "quiet": quiet.p95,
        "burning": burning.p95,
        "attacked": attacked.p95,
        "failed": attacked.failed,
        "attacker_cpu": share,
    }
    return row, data, held


def _share(process: Server, spent: float, seconds: float) -> float:
    """Return how much of a core a process took; one that has ended took nothing any more."""
    try:
        return (process.cpu_seconds() - spent) / seconds
    except OSError:
        return 0.0


app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    *,
    only: Annotated[list[str] | None, typer.Option(help="This attack alone; may be given again.")] = None,
    seconds: Annotated[float, typer.Option(help="How long each attack lasts, 20 at most.")] = ATTACK_SECONDS,
    quick: Annotated[bool, typer.Option("--quick", help="See that everything runs.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write all numbers to this file, too.")] = None,
) -> None:
    """Measure what attacks cost the recall of others."""
    if context.invoked_subcommand is not None:
        return
    unknown = set(only or ()) - set(_ATTACKS)
    if unknown:
        raise typer.BadParameter(f"there is no attack {', '.join(unknown)}: {', '.join(_ATTACKS)}")
    # What a relayer is usually started with; the attackers raise theirs.
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    console, progress = Console(width=140), Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="memrelay-attacks-") as folder:
        about = machine(Path(folder))
        console.print(f"{about['cores']} cores, load average {about['load_average']:.1f} at the start\n")
        with progress.status("starting") as status:
            lab = Lab(Path(folder), quick, status.update)
            lasting = 4.0 if quick else min(seconds, 20.0)
            results = [_best_of_two(lab, name, lasting) for name in only or _ATTACKS]
    section = Section(
        "Recall of a well-behaved account while another one attacks (p95)",
        ("attack", "alone", "burning", "attacked", "/ alone", "/ burning", "attacker", ""),
        [row for row, _, _ in results],
        {row[0]: data for row, data, _ in results},
        (
            "burning: beside a process that only takes as much CPU time as the attacker did; attacker: that, in cores.",
            f"An attack is held off while the smaller of both ratios is at most {SLOWER:.0f} and no recall fails.",
        ),
    )
    show(section, console)
    if json is not None:
        write(json, about, [section])
    if not all(held for _, _, held in results):
        raise typer.Exit(1)


def _best_of_two(lab: Lab, name: str, seconds: float) -> _Proved:
    """Measure an attack, and once more if it was not held off: what else happens on a machine only makes a recall slower."""
    first = uvloop.run(_proved(lab, name, seconds))
    return first if first[-1] else uvloop.run(_proved(lab, name, seconds))


@app.command(hidden=True)
def attack(
    name: str,
    url: str,
    pid: int,
    folder: Path,
    seconds: float,
    *,
    quick: Annotated[bool, typer.Option()] = False,
) -> None:
    """Attack a relayer: what the measuring process starts."""
    os.nice(_NICE)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    uvloop.run(_attacking(_ATTACKS[name], _Target(Server(url, pid), folder / "attacker", seconds, quick)))


async def _attacking(work: Callable[[_Target], Awaitable[None]], target: _Target) -> None:
    async with target.closing:
        await work(target)
    # Until it is told to stop: what it took is still to be looked at.
    await asyncio.Event().wait()


@app.command(hidden=True)
def burn(share: float) -> None:
    """Take a share of a core until told to stop: what the measuring process starts."""
    os.nice(_NICE)
    print("begun", flush=True)
    while os.getppid() != 1:
        begun = time.monotonic()
        while time.monotonic() < begun + 0.01 * share:
            pass
        time.sleep(0.01 * (1 - share))


if __name__ == "__main__":
    app()
