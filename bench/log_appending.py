"""Appends at the log's own interface, against a loop that only seals and stores the same entries."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import count

from bench.log_house import Replica
from bench.material import unit_vectors
from bench.report import Lab, Section
from bench.stats import percentile, ratio, spread
from relayer.domain.operations import (
    ENTRY_VERSION,
    Entry,
    Operation,
    Origin,
    Put,
    Record,
    Stored,
    encode_stored,
)
from relayer.log.namespace_log import NamespaceLog
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.projection import encode_vector
from relayer.ports import Created, ObjectStore
from relayer.wire.sealing import SALT_SIZE

__all__ = ["appending", "replicas"]

WRITERS = (1, 16, 64, 256)
_RECORDS = {1: 400, 16: 3_000, 64: 8_000, 256: 12_000}
_ROUNDS = 5
_SEALED = 400
_names = count()


async def appending(lab: Lab, store: ObjectStore, where: str) -> list[Section]:
    """Measure with 1 to 256 writers that wait for each other's entries."""
    rates: dict[int, list[float]] = defaultdict(list)
    bare: dict[int, list[float]] = defaultdict(list)
    waits: dict[int, list[float]] = defaultdict(list)
    per_entry: dict[int, list[float]] = defaultdict(list)
    replica = Replica.over(store)
    for number in range(lab.count(_ROUNDS, 1)):
        for writers in WRITERS:
            lab.say(f"appends, {where}: {writers} writers, round {number + 1}")
            puts = _puts(lab.count(_RECORDS[writers], 2 * writers))
            log = await _new_log(replica)
            seconds, latencies, batches = await _append(log, puts, writers)
            rates[writers].append(len(puts) / seconds)
            waits[writers] += latencies
            per_entry[writers].append(len(puts) / len(batches))
            bare[writers].append(len(puts) / await _bare(log, puts, batches, store))
            await log.close()
    sealing = await _sealing(replica, lab.count(2_000, 50))
    await replica.close()
    rows, data = [], {}
    for writers in WRITERS:
        share = ratio(rates[writers], bare[writers])
        rows.append(
            (
                str(writers),
                f"{share.median:.0%} ({share.low:.0%}..{share.high:.0%})",
                f"{spread(rates[writers]).median:,.0f}",
                f"{spread(bare[writers]).median:,.0f}",
                f"{spread(per_entry[writers]).median:.1f}",
                f"{percentile(waits[writers], 0.5) * 1000:.1f}",
                f"{percentile(waits[writers], 0.99) * 1000:.1f}",
            )
        )
        data[str(writers)] = {
            "rates": rates[writers],
            "bare": bare[writers],
            "records_per_entry": per_entry[writers],
        }
    return [
        Section(
            f"Appends to one log, {where}",
            (
                "writers",
                "of the bare loop's rate",
                "records/s",
                "bare/s",
                "records an entry",
                "p50 ms",
                "p99 ms",
            ),
            rows,
            data | {"sealing_us": sealing * 1e6},
            (
                f"records of {_SEALED} sealed bytes; the bare loop encodes, seals and creates the same entries, one after",
                "the other, and knows no state;",
                f"apart from that, a record takes {sealing * 1e6:.0f} us to be sealed with its vector, and what HTTP",
                "takes stands in the table of writes (make bench).",
            ),
        )
    ]


async def replicas(lab: Lab, store: ObjectStore, where: str) -> list[Section]:
    """Measure 64 writers over 8 namespaces, with one, two and three replicas, routed by namespace and not."""
    found: dict[tuple[int, bool], list[float]] = defaultdict(list)
    for number in range(lab.count(_ROUNDS, 1)):
        for how_many in (1, 2, 3):
            for routed in (True, False):
                lab.say(f"replicas, {where}: {how_many}, round {number + 1}")
                found[how_many, routed].append(await _spread_out(lab, store, how_many, routed=routed))
    rows, data = [], {}
    for how_many in (1, 2, 3):
        routed, random = found[how_many, True], found[how_many, False]
        share = ratio(random, routed)
        rows.append(
            (
                str(how_many),
                f"{spread(routed).median:,.0f}",
                f"{spread(random).median:,.0f}",
                f"{share.median:.0%} ({share.low:.0%}..{share.high:.0%})",
            )
        )
        data[str(how_many)] = {"routed": routed, "random": random}
    return [
        Section(
            f"Appends through several replicas, {where}",
            ("replicas", "routed/s", "at random/s", "random of routed"),
            rows,
            data,
            (
                "64 writers over 8 namespaces; routed: a namespace's writes all go to one replica, as a balancer that",
                "hashes on memory-route has it; the replicas share this process and its core.",
            ),
        )
    ]


async def _spread_out(lab: Lab, store: ObjectStore, how_many: int, *, routed: bool) -> float:
    everybody = [Replica.over(store) for _ in range(how_many)]
    names = [f"spread-{next(_names)}" for _ in range(8)]
    logs: dict[tuple[int, int], NamespaceLog] = {}
    for at, name in enumerate(names):
        for number, replica in enumerate(everybody):
            async with replica.use(name) as opened:
                logs[at, number] = opened.log
    puts = _puts(lab.count(6_400, 128))

    async def write(writer: int) -> None:
        for step, put in enumerate(puts[writer::64]):
            at = writer % len(names)
            number = at % how_many if routed else (writer + step) % how_many
            await logs[at, number].append([put])

    began = time.perf_counter()
    await asyncio.gather(*(write(writer) for writer in range(64)))
    seconds = time.perf_counter() - began
    for replica in everybody:
        await replica.close()
    return len(puts) / seconds


async def _new_log(replica: Replica) -> NamespaceLog:
    """Open a new namespace and return a log of it that no view follows."""
    async with replica.use(f"append-{next(_names)}") as opened:
        found = opened.namespace
    log = NamespaceLog(replica.context.ports, found.account, found.pointer)
    await log.start()
    return log


async def _append(
    log: NamespaceLog, puts: Sequence[Put], writers: int
) -> tuple[float, list[float], list[int]]:
    """Append and return the seconds, the latencies and how many records each entry took."""
    latencies: list[float] = []
    batches: list[int] = []
    log.replica.subscribe(lambda applied: batches.append(len(applied)), lambda _: None)

    async def write(mine: Sequence[Put]) -> None:
        for put in mine:
            began = time.perf_counter()
            await log.append([put])
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(write(puts[at::writers]) for at in range(writers)))
    return time.perf_counter() - began, latencies, batches


async def _bare(
    log: NamespaceLog, puts: Sequence[Operation], batches: Sequence[int], store: ObjectStore
) -> float:
    """Store the same records in as many entries, and nothing else; return the seconds."""
    slots, seq = log.replica.slots, log.state.position.seq + 1_000_000
    began = time.perf_counter()
    start = 0
    for size in batches:
        operations = tuple(encode_stored(put) for put in puts[start : start + size])
        entry = Entry(ENTRY_VERSION, seq, bytes(32), secrets.token_bytes(16), bytes(16), 0, operations)
        if not isinstance(await store.create(slots.key(seq), slots.seal(entry)), Created):
            raise TypeError("an entry was not stored")
        start, seq = start + size, seq + 1
    return time.perf_counter() - began


async def _sealing(replica: Replica, how_many: int) -> float:
    """Return the seconds that sealing one record and its vector takes."""
    async with replica.use(f"append-{next(_names)}") as opened:
        vector = encode_vector(unit_vectors(1, 1)[0])
        began = time.perf_counter()
        for _ in range(how_many):
            _seal(opened, vector)
        return (time.perf_counter() - began) / how_many


def _seal(opened: OpenNamespace, vector: bytes) -> None:
    record = secrets.token_bytes(16)
    text = encode_stored(Record(record, "bench", "Ada lent the camera near the office in March (note 17)"))
    opened.keys.seal_record(record, text, salt=secrets.token_bytes(SALT_SIZE))
    opened.keys.seal_vector(record, "own", vector, salt=secrets.token_bytes(SALT_SIZE))


def _puts(how_many: int) -> list[Put]:
    expires = int(time.time() * 1000) + 600_000
    author = secrets.token_bytes(32)
    made = []
    for _ in range(how_many):
        record = secrets.token_bytes(16)
        origin = Origin(author, secrets.token_bytes(16), expires=expires)
        made.append(
            Put(
                origin,
                Stored(record=record, content=secrets.token_bytes(32), sealed=secrets.token_bytes(_SEALED)),
            )
        )
    return made
