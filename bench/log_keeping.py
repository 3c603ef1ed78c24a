"""What a store is given to keep, all told: bytes written for each byte that is kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from bench.log_house import Replica
from bench.report import Lab, Section
from relayer.maintenance.logs import IndexMaintenance, LogMaintenance, LogMaintenanceLimits
from relayer.ports import CreateOutcome, ObjectStore, SwapOutcome
from relayer.testing.local_relayer import RecordingStore

__all__ = ["bytes_written"]

BATCHES = (1, 8, 64)
_MEMORIES = 100_000
_FEW = 20_000
_KINDS = ("wal", "seg", "index", "manifest")


class _Counting(RecordingStore):
    """Counts the bytes of every write by the kind of object."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.written: Counter[str] = Counter()

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """Write and count."""
        self._count(key, data)
        return await super().create(key, data)

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """Write and count."""
        self._count(key, data)
        return await super().swap(key, data, etag)

    def _count(self, key: str, data: bytes) -> None:
        self.calls.clear()
        kind = next((part for part in key.split("/") if part in _KINDS), "others")
        self.written[kind] += len(data)


@dataclass(frozen=True, slots=True)
class _Kept:
    count: int
    batch: int
    written: Counter[str]
    kept: Counter[str]

    @property
    def ratio(self) -> float:
        return sum(self.written.values()) / sum(self.kept.values())


async def bytes_written(lab: Lab, store: ObjectStore, where: str) -> list[Section]:
    """Fill namespaces by entries of few and of many memories, with compaction, collection and indexes going on."""
    found = []
    for batch in BATCHES:
        count = lab.count(_MEMORIES if batch == max(BATCHES) else _FEW, 200)
        found.append(await _filled(lab, store, count, batch))
    rows, data = [], {}
    for one in found:
        kept, written = sum(one.kept.values()), sum(one.written.values())
        rows.append(
            (
                f"{one.count:,} by {one.batch}",
                f"{one.ratio:.2f}",
                f"{kept / one.count:,.0f}",
                *(f"{one.written[kind] / one.count:,.0f}" for kind in _KINDS),
            )
        )
        data[f"{one.count} by {one.batch}"] = {
            "written": dict(one.written),
            "kept": dict(one.kept),
            "bytes": written,
        }
    return [
        Section(
            f"Bytes written for each byte kept, {where}",
            (
                "memories, by entries of",
                "written / kept",
                "kept a memory",
                *(f"{kind} written" for kind in _KINDS),
            ),
            rows,
            data,
            (
                "bytes a memory; kept: segments, index, manifest, and slots that no segment covers yet;",
                "compaction runs whenever it is due, an index is written each time the namespace has doubled.",
            ),
        )
    ]


async def _filled(lab: Lab, inner: ObjectStore, count: int, batch: int) -> _Kept:
    store = _Counting(inner)
    replica = Replica.over(store)
    name = f"keeping-{batch}"
    upkeep = LogMaintenance(
        replica.context.ports,
        replica.context.namespaces,
        LogMaintenanceLimits(collect_after_ms=0, interval=0),
    )
    indexes = IndexMaintenance(replica.context)
    async with replica.use(name) as opened:
        incarnation = opened.namespace.pointer.incarnation
        step = max(batch, 512)
        for start in range(0, count, step):
            lab.say(f"bytes written: {start:,} of {count:,} by {batch}")
            await replica.fill(name, min(step, count - start), seed=start + batch, batch=batch)
            await upkeep.round(_raise)
            await indexes.keep(opened)
        while opened.log.compaction_due(LogMaintenanceLimits().compaction):
            await upkeep.round(_raise)
        manifest = await opened.log.replica.manifest.read()
    await replica.close()
    # As after a collection: what no manifest names, and slots that segments cover, are on their way out.
    named = {row.key for row in manifest.segments} | {manifest.index_key}
    kept: Counter[str] = Counter()
    async for info in inner.list(f"ns/{incarnation.hex()}/"):
        kind = info.key.split("/")[2]
        if info.key in named or kind == "manifest" or (kind == "wal" and _seq(info.key) > manifest.snap_seq):
            kept[kind] += info.size
    return _Kept(count, batch, store.written, kept)


def _seq(key: str) -> int:
    return int(key.rpartition("/")[2])


def _raise(error: BaseException) -> None:
    raise error
