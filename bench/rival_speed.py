"""How long one who asks waits for five memories, here and at others, by the same vectors, in the same rounds.

    python -m bench.rival_speed --python VENV/bin/python --size 1000 --size 10000

VENV holds chromadb, lancedb and mem0ai, or some of them. The relayer is asked by the plugin's own client (signed, sealed, held
against its proof), and by requests that were signed and sealed before; the others by their clients, in their own process each.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from bench.http_gateway import BenchGateway
from bench.http_servers import Server, started
from bench.material import encoded, items, unit_vectors
from bench.report import Section, show
from bench.rival_asker import LIMIT
from bench.rivals import QUICK_RIVALS
from bench.stats import percentile
from relayer.wire import schemas

__all__ = ["main"]

_ROUNDS, _COUNT, _ASKED = 7, 100, 64
_SEED = 11
_OURS = "memrelay, over HTTP, the plugin's client"
_BARE = "memrelay, over HTTP, requests made before"

# Seconds of so many questions.
Asking = Callable[[int], Awaitable[list[float]]]


def main(
    python: Annotated[Path, typer.Option(help="The Python that the others are installed in.")],
    size: Annotated[list[int] | None, typer.Option(help="Memories; may be repeated.")] = None,
    without: Annotated[list[str] | None, typer.Option(help="What not to ask, as the table calls it.")] = None,
) -> None:
    """Print one table for each size."""
    for memories in size or [1_000]:
        with tempfile.TemporaryDirectory(prefix="memrelay-rivals-") as work:
            show(asyncio.run(_measured(python, memories, Path(work), without or [])), Console(width=120))


async def _measured(python: Path, size: int, work: Path, without: list[str]) -> Section:
    rows, asked = unit_vectors(size, _SEED), unit_vectors(_ASKED, _SEED + 1)
    given = items(rows, _SEED)
    np.save(work / "rows.npy", rows)
    np.save(work / "asked.npy", asked)
    (work / "texts.json").write_text(json.dumps([item["text"] for item in given]), "utf-8")
    found: dict[str, list[float]] = {}
    with ExitStack() as stack:
        arguments = ["serve", "--port", "0", "--data", str(work / "data"), "--rate-limits", "off"]
        server = stack.enter_context(started("relayer", arguments, work))
        gateway = BenchGateway(server, work)
        await gateway.fill(gateway.identity("rivals"), given)
        systems: dict[str, Asking] = {_OURS: partial(_ask_relayer, gateway, itertools.cycle(asked))}
        systems[_BARE] = partial(_ask_prepared, server, gateway, itertools.cycle(asked))
        for name in QUICK_RIVALS:
            if name not in without and _installed(python, name):
                systems[name] = stack.enter_context(_rival(python, name, work))
        server.settle()
        for number in range(-1, _ROUNDS):
            for name, ask in systems.items():
                seconds = await ask(_COUNT)
                found.setdefault(name, []).extend(seconds if number >= 0 else [])
        await gateway.client.aclose()
    table = [
        (name, *(f"{percentile(seconds, share) * 1e3:.2f}" for share in (0.5, 0.95)))
        for name, seconds in found.items()
    ]
    notes = (
        f"{_ROUNDS} rounds of {_COUNT} questions in turns, {LIMIT} hits, one after the other, every client's time included.",
    )
    return Section(f"One question among {size:,} memories", ("system", "p50 ms", "p95 ms"), table, {}, notes)


async def _ask_relayer(gateway: BenchGateway, asked: Iterator[np.ndarray], count: int) -> list[float]:
    identity, seconds = gateway.identity("rivals"), []
    for vector in itertools.islice(asked, count):
        request = schemas.RecallRequest.model_validate(
            {"vector": encoded(vector), "limit": LIMIT, "floor": 0}
        )
        start = time.perf_counter()
        answer = await gateway.client.recall(identity, request)
        seconds.append(time.perf_counter() - start)
        if len(answer.memories) != LIMIT:
            raise RuntimeError(f"{len(answer.memories)} of {LIMIT} were found")
    return seconds


async def _ask_prepared(
    server: Server, gateway: BenchGateway, asked: Iterator[np.ndarray], count: int
) -> list[float]:
    identity = gateway.identity("rivals")
    bodies = [
        {"vector": encoded(vector), "limit": LIMIT, "floor": 0} for vector in itertools.islice(asked, count)
    ]
    requests = [await gateway.request(identity, "/v1/recall", body, sealed=True) for body in bodies]
    return (await server.answer(requests, 1)).load.latencies


def _installed(python: Path, name: str) -> bool:
    command = [str(python), "-c", f"import {QUICK_RIVALS[name][0]}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def _rival(python: Path, name: str, work: Path) -> Iterator[Asking]:
    """A rival, filled, in its own process until the block ends; raises `RuntimeError` where it does not get ready."""
    process = subprocess.Popen(
        [str(python), "-m", "bench.rival_asker", name, str(work)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    reading, writing = process.stdout, process.stdin

    async def ask(count: int) -> list[float]:
        writing.write(f"{count}\n")
        writing.flush()
        seconds: list[float] = json.loads(await asyncio.to_thread(reading.readline))
        return seconds

    try:
        # What a library prints while it starts is none of ours.
        if not any(line == "ready\n" for line in reading):
            raise RuntimeError(f"{name} did not get ready")
        yield ask
    finally:
        writing.close()
        process.wait()


if __name__ == "__main__":
    typer.run(main)
