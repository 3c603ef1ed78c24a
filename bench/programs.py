"""What `Memory` adds to a call of the bare client, and what filters on tags and metadata add to a search.

Each question is asked in all ways, one after the other, over HTTP, signed and encrypted. The relayer has embedded the questions
before, so that the model's time does not hide the rest. What is compared is the CPU time of the program and the relayer together,
which other programs on the machine change little. What a filter adds is the difference between two searches for the same question
in the same round. The medians of each question's rounds give the median and its confidence interval, so that neither a slow moment
nor an expensive question decides.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

from bench.http_servers import Server, started
from bench.material import items, queries, unit_vectors
from bench.report import Lab, Section
from bench.stats import Spread, likely_median, percentile, ratio, spread
from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.keys.identity import Identity, RootHolder, identify, parse_session_key
from memrelay import AsyncMemory, Memory, RelayerClient, SyncRelayerClient
from relayer.wire import schemas
from relayer.wire.sealing import RootKeys

__all__ = ["memory_of_programs"]

_SIZES = (1_000, 10_000)
_ROUNDS, _QUESTIONS = 7, 32
_LIMIT = 5
_AGENT, _SECRET = "bench", "3d" * 32
_PAGE = 100
_FILTERS: dict[str, dict[str, Any]] = {
    "a tag": {"tags": "tag3"},
    "metadata": {"shop.city": 7},
    "a range": {"ticket": {"gte": 100, "lt": 900}},
    "99 of 100 pass": {"ticket": {"gte": 100}},
    "all three": {"tags": "tag3", "shop.city": {"not": {"in": [1, 2, 3]}}, "ticket": {"lt": 900}},
}
_BARE, _MEMORY = "RelayerClient.recall", "AsyncMemory.search"
_SYNC_BARE, _SYNC_MEMORY = "SyncRelayerClient.recall", "Memory.search"

# For each round the seconds of CPU time of each question, by the way in which it was asked.
_Rounds = dict[str, list[list[float]]]


async def memory_of_programs(lab: Lab) -> list[Section]:
    """Measure `AsyncMemory` and `Memory` next to the clients below them, without and with filters."""
    calls: list[tuple[str, ...]] = []
    filters: list[tuple[str, ...]] = []
    data: dict[str, dict[str, list[float]]] = {}
    differences: dict[str, dict[str, dict[str, float]]] = {}
    for size in _SIZES[: lab.count(len(_SIZES), 1)]:
        measured = await _measured(lab, size)
        rounds = data[f"{size:,}"] = {
            way: [percentile(samples, 0.5) for samples in each] for way, each in measured.items()
        }
        for bare, above in ((_BARE, _MEMORY), (_SYNC_BARE, _SYNC_MEMORY)):
            ms = [f"{spread(rounds[way]).median * 1e3:.2f}" for way in (bare, above)]
            calls.append((f"{size:,}", above, *ms, str(ratio(rounds[above], rounds[bare]))))
        added = {name: added_by(measured[name], measured[_MEMORY]) for name in _FILTERS}
        differences[f"{size:,}"] = {name: asdict(one) for name, one in added.items()}
        cells = (f"{one.median:.2f} ({one.low:.2f}..{one.high:.2f})" for one in added.values())
        filters.append((f"{size:,}", *cells))
    note = f"p50 of {_QUESTIONS} questions with {_LIMIT} hits; median of {_ROUNDS} rounds, the lowest and the highest in brackets."
    columns = ("memories", "call", "bare client", "call", "ratio")
    return [
        Section("A search of a program, CPU time in ms", columns, calls, data, (note,)),
        Section(
            "What a filter adds to AsyncMemory.search, CPU time in ms",
            ("memories", *_FILTERS),
            filters,
            differences,
            (
                f"median of {_QUESTIONS} questions of the median of {_ROUNDS} rounds, its confidence interval of 95 % in brackets.",
            ),
        ),
    ]


def added_by(above: list[list[float]], below: list[list[float]]) -> Spread:
    """Return how many milliseconds one way takes longer than another, from the seconds of the same questions in the same rounds."""
    pairs = zip(above, below, strict=True)
    rounds = [[(one - other) * 1e3 for one, other in zip(*pair, strict=True)] for pair in pairs]
    return likely_median([statistics.median(question) for question in zip(*rounds, strict=True)])


async def _measured(lab: Lab, size: int) -> _Rounds:
    work = lab.work / f"programs-{size}"
    arguments = ["serve", "--port", "0", "--data", str(work / "data"), "--rate-limits", "off"]
    asked = queries(lab.count(_QUESTIONS, 4), lab.seed + 1)
    with started("relayer", arguments, work) as server, ExitStack() as stack:
        environ = {"HOME": str(work)}
        memory = AsyncMemory(agent=_AGENT, url=server.url, secret=_SECRET, environ=environ)
        sync_memory = stack.enter_context(
            Memory(agent=_AGENT, url=server.url, secret=_SECRET, environ=environ)
        )
        trust = TrustStore(work / "trust.json")
        client = RelayerClient(server.url, trust=trust)
        sync_client = stack.enter_context(SyncRelayerClient(server.url, trust=trust))
        holder = RootHolder(RootKeys(bytes.fromhex(_SECRET)))
        identity = identify(holder, parse_session_key(""), default_agent=_AGENT)
        lab.say(f"programs: storing {size:,} memories")
        await _fill(client, identity, size, lab.seed)
        server.settle()

        async def bare(question: str) -> int:
            request = schemas.RecallRequest(query=question, limit=_LIMIT, floor=0)
            return len((await client.recall(identity, request)).memories)

        async def sync_bare(question: str) -> int:
            request = schemas.RecallRequest(query=question, limit=_LIMIT, floor=0)
            return len(sync_client.recall(identity, request).memories)

        async def search(question: str, where: dict[str, Any] | None = None) -> int:
            return len(await memory.search(question, limit=_LIMIT, min_score=0, where=where))

        async def sync_search(question: str) -> int:
            return len(sync_memory.search(question, limit=_LIMIT, min_score=0))

        ways: dict[str, Callable[[str], Awaitable[int]]] = {
            _BARE: bare,
            _MEMORY: search,
            _SYNC_BARE: sync_bare,
            _SYNC_MEMORY: sync_search,
            **{name: partial(search, where=where) for name, where in _FILTERS.items()},
        }
        rounds: _Rounds = {way: [] for way in ways}
        for number in range(-1, lab.count(_ROUNDS, 1)):
            lab.say(f"programs: {size:,} memories, round {number + 1}")
            seconds = await _round(ways, asked, number, server)
            for way, samples in seconds.items():
                rounds[way] += [samples] if number >= 0 else []
        await client.aclose()
        await memory.aclose()
    return rounds


async def _round(
    ways: dict[str, Callable[[str], Awaitable[int]]], asked: list[str], number: int, server: Server
) -> dict[str, list[float]]:
    """Ask each question in all ways, in turns in one order and in the other."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for at, question in enumerate(asked):
        for way, ask in list(ways.items()) if (at + number) % 2 else reversed(ways.items()):
            start = time.process_time() + server.cpu_seconds()
            found = await ask(question)
            seconds[way].append(time.process_time() + server.cpu_seconds() - start)
            if found != _LIMIT:
                raise RuntimeError(f"{found} of {_LIMIT} were found")
    return seconds


async def _fill(client: RelayerClient, identity: Identity, size: int, seed: int) -> None:
    given = items(unit_vectors(size, seed), seed)
    for number, item in enumerate(given):
        item["tags"] = [f"tag{number % 10}"]
        item["metadata"] = {"ticket": number, "shop": {"city": number % 50}}
    for start in range(0, size, _PAGE):
        page = {"items": given[start : start + _PAGE]}
        await client.remember(identity, schemas.RememberRequest.model_validate(page), deadline=120.0)
