"""Cold openings: from a stored index, from the log alone, and what reading the same bytes takes by itself."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bench.log_house import Replica, WithoutIndexes
from bench.report import Lab, Section
from bench.stats import ratio, spread
from relayer.maintenance.logs import IndexLimits, IndexMaintenance
from relayer.ports import Found, ObjectStore

__all__ = ["cold_openings"]

SIZES = (1_000, 10_000, 100_000)
_ROUNDS = 5
# As the blocks of an index are cut, and sealed.
_BLOCK_BYTES = 512 * 1024
_NONCE = bytes(12)


class _Took(NamedTuple):
    """Seconds that passed, and those in which this process had a core, in all of its threads."""

    passed: float
    busy: float


@dataclass(slots=True)
class _Size:
    """A value for each round."""

    count: int
    index_bytes: int = 0
    raw: list[_Took] = field(default_factory=list)
    decrypted: list[_Took] = field(default_factory=list)
    by_index: list[_Took] = field(default_factory=list)
    by_log: list[_Took] = field(default_factory=list)
    writing: float = 0.0


async def cold_openings(lab: Lab, store: ObjectStore, where: str) -> list[Section]:
    """Measure over one store."""
    measured = []
    for count in SIZES if not lab.quick else (200, 1_200):
        size = _Size(count)
        name = f"opening-{count}"
        lab.say(f"openings, {where}: storing {count:,} memories")
        writer = Replica.over(store)
        await writer.fill(name, count, seed=lab.seed)
        async with writer.use(name) as opened:
            await opened.tidy_indexes()
            keeper = IndexMaintenance(writer.context, IndexLimits(least=1))
            began = time.perf_counter()
            if not await keeper.keep(opened):
                raise RuntimeError("the index was not named")
            size.writing = time.perf_counter() - began
            manifest = await opened.log.replica.manifest.read()
            key, size.index_bytes = manifest.index_key, keeper.bytes_written
        await writer.close()
        del writer, opened
        for number in range(lab.count(_ROUNDS, 1)):
            lab.say(f"openings, {where}: {count:,} memories, round {number + 1}")
            size.raw.append(await _timed(lambda key=key: _read(store, key)))
            size.decrypted.append(await _decrypted(store, key))
            size.by_index.append(await _opened(store, name, by_index=True))
        for _ in range(lab.count(2, 1) if count < max(SIZES) else 1):
            size.by_log.append(await _opened(store, name, by_index=False))
        measured.append(size)
    return [_section(measured, where)]


async def _read(store: ObjectStore, key: str) -> None:
    found = await store.get(key)
    if not isinstance(found, Found):
        raise TypeError("the index is gone")


async def _decrypted(store: ObjectStore, key: str) -> _Took:
    """Read an object, and decrypt as many bytes."""
    found = await store.get(key)
    if not isinstance(found, Found):
        raise TypeError("the index is gone")
    cipher = AESGCM(bytes(32))
    sealed = [
        cipher.encrypt(_NONCE, found.data[at : at + _BLOCK_BYTES], None)
        for at in range(0, len(found.data), _BLOCK_BYTES)
    ]
    del found

    async def work() -> None:
        await _read(store, key)
        for block in sealed:
            cipher.decrypt(_NONCE, block, None)

    return await _timed(work)


async def _opened(store: ObjectStore, name: str, *, by_index: bool) -> _Took:
    replica = Replica.over(store if by_index else WithoutIndexes(store))
    access, deadline = replica.access(name), replica.deadline()

    async def work() -> None:
        async with replica.context.namespaces.use(access, deadline, create=False) as opened:
            if (opened.from_index > 0) != by_index:
                raise RuntimeError("opened otherwise than was asked for")

    took = await _timed(work)
    await replica.close()
    return took


async def _timed(work: Callable[[], Coroutine[Any, Any, None]]) -> _Took:
    # What other rounds left is collected now and not meanwhile; a relayer freezes what start-up made and collects rarely.
    gc.collect()
    gc.freeze()
    await asyncio.sleep(0)
    began, busy = time.perf_counter(), time.process_time()
    await work()
    return _Took(time.perf_counter() - began, time.process_time() - busy)


def _section(measured: list[_Size], where: str) -> Section:
    rows, data = [], {}
    for size in measured:
        to_raw, to_log = (
            ratio(_passed(size.by_index), _passed(size.raw)),
            spread(_passed(size.by_log)).median,
        )
        opened = spread(_passed(size.by_index))
        rows.append(
            (
                f"{size.count:,}",
                f"{size.index_bytes / 2**20:.1f}",
                _ms(spread(_passed(size.raw)).median),
                _ms(spread(_passed(size.decrypted)).median),
                f"{_ms(opened.median)} ({_ms(opened.low)}..{_ms(opened.high)})",
                str(to_raw),
                f"{ratio(_busy(size.by_index), _busy(size.raw)).median:.2f}x",
                f"{to_log * 1000:.0f}",
                f"{size.writing * 1000:.0f}",
            )
        )
        data[str(size.count)] = {
            "index_bytes": size.index_bytes,
            "raw_seconds": size.raw,
            "decrypted_seconds": size.decrypted,
            "by_index_seconds": size.by_index,
            "by_log_seconds": size.by_log,
            "writing_seconds": size.writing,
        }
    return Section(
        f"Cold opening of one namespace, {where}",
        (
            "memories",
            "index MiB",
            "raw read ms",
            "decrypted ms",
            "opening ms",
            "/ raw read",
            "CPU / CPU",
            "by the log ms",
            "writing ms",
        ),
        rows,
        data,
        (
            "raw read: one request for the whole index object, by the same client; nothing is done with it;",
            "decrypted: the same, and AES-GCM over as many bytes; CPU: of this process, of an opening by that of a raw read.",
            "by the log: slots, no segments. The index is complete; the tail that an index lacks is read from the log.",
        ),
    )


def _passed(rounds: list[_Took]) -> list[float]:
    return [took.passed for took in rounds]


def _busy(rounds: list[_Took]) -> list[float]:
    return [took.busy for took in rounds]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}" if seconds < 0.01 else f"{seconds * 1000:.0f}"
