"""Appends of sealed records to one log in this process: what sharing entries yields, without HTTP, signatures and search."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.stats import percentile
from relayer.adapters.s3_store import S3Store
from relayer.adapters.system import SystemClock, SystemRandomness
from relayer.crypto import RelayerKeys
from relayer.domain.namespace import Custody
from relayer.domain.operations import OperationResult, Origin, Put, Stored
from relayer.log import creation
from relayer.log.namespace_log import NamespaceLog
from relayer.log.objects import LogPorts

__all__ = ["CommitSample", "Committing"]

_ACCOUNT = "0x" + "5e" * 32
_AUTHOR = secrets.token_bytes(32)
# Bytes of an entry with one record beside what that record sealed.
_FRAME = 332


@dataclass(frozen=True, slots=True)
class CommitSample:
    """One round: seconds for all, latencies in seconds, and how many entries took the records."""

    seconds: float
    latencies: list[float]
    entries: int

    @property
    def rate(self) -> float:
        """Acknowledged records a second."""
        return len(self.latencies) / self.seconds

    @property
    def p50(self) -> float:
        """Median latency of an append in seconds."""
        return percentile(self.latencies, 0.5)


class Committing:
    """A new namespace in a bucket, with its committer running until `close`."""

    def __init__(self, store: S3Store, log: NamespaceLog) -> None:
        self._store = store
        self._log = log

    @classmethod
    async def open(cls, bucket: str, url: str) -> Committing:
        """Make the namespace; credentials come from the environment."""
        clock, randomness = SystemClock(), SystemRandomness()
        store = await S3Store.open(bucket, clock=clock, endpoint_url=url)
        ports = LogPorts(store, clock, randomness, RelayerKeys.derive(secrets.token_bytes(32)))
        wanted = creation.NewNamespace(_ACCOUNT, f"bench/{secrets.token_hex(8)}", Custody.AGENT)
        opened = await creation.open_or_create(ports, wanted, secrets.token_bytes(32))
        log = NamespaceLog(ports, _ACCOUNT, opened.pointer)
        await log.start()
        return cls(store, log)

    async def append(self, size: int, count: int, writers: int) -> CommitSample:
        """Append ``count`` records that come to ``size`` bytes each; a writer waits for its answer before the next.

        Raises:
            RuntimeError: one was not taken.
        """
        records = [_record(size - _FRAME) for _ in range(count)]
        first = self._log.state.position.seq
        latencies: list[float] = []
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for at in range(writers):
                group.create_task(self._write(records[at::writers], latencies))
        return CommitSample(time.perf_counter() - began, latencies, self._log.state.position.seq - first)

    async def close(self) -> None:
        """Stop the committer and let go of the store."""
        await self._log.close()
        await self._store.close()

    async def _write(self, records: Sequence[Put], latencies: list[float]) -> None:
        for record in records:
            began = time.perf_counter()
            [outcome] = await self._log.append([record])
            latencies.append(time.perf_counter() - began)
            if outcome.result is not OperationResult.STORED:
                raise RuntimeError(f"a record was not taken: {outcome.result}")


def _record(sealed: int) -> Put:
    number = secrets.token_bytes(16)
    origin = Origin(_AUTHOR, number, expires=int(time.time() * 1000) + 600_000)
    return Put(
        origin, Stored(record=number, content=secrets.token_bytes(32), sealed=secrets.token_bytes(sealed))
    )
