"""Restores: what the first recall of a restored namespace waits for, with the stored index and with the log alone."""

from __future__ import annotations

import base64
import time

from bench.log_house import STORE_KEY, Replica, WithoutIndexes
from bench.material import unit_vectors
from bench.report import Lab, Section
from relayer.access.accounts import Accounts
from relayer.access.store_keys import create_store_key
from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.local_key import LocalKey
from relayer.adapters.system import SystemClock
from relayer.operator.backup import back_up
from relayer.operator.backup_store import BackupStore
from relayer.operator.restore import restore
from relayer.ports import ObjectStore
from relayer.use_cases.recall import recall
from relayer.wire.schemas import RecallRequest

__all__ = ["restores"]

SIZES = (10_000, 100_000)


async def restores(lab: Lab, store: ObjectStore, where: str) -> list[Section]:
    """Measure over one store, a backup of it and a restore of that."""
    rows, data = [], {}
    for count in SIZES if not lab.quick else (200,):
        lab.say(f"restores, {where}: storing {count:,} memories")
        name = f"restoring-{count}"
        writer = Replica.over(store)
        ports = writer.context.ports
        await create_store_key(ports, LocalKey(bytes(32), ports.randomness), STORE_KEY)
        await Accounts(writer.context.ports).make(writer.access(name).account)
        await writer.fill(name, count, seed=lab.seed)
        async with writer.use(name) as opened:
            await opened.tidy_indexes()
            await opened.write_index()
        await writer.close()
        kept, restored = [
            await DirectoryStore.open(lab.work / f"{name}-{part}", clock=SystemClock())
            for part in ("backup", "restored")
        ]
        backup, target = Replica.over(kept).context.ports, Replica.over(restored).context.ports
        copied = (await back_up(writer.context.ports, BackupStore(backup))).bytes
        began = time.perf_counter()
        await restore(BackupStore(backup), target)
        took = time.perf_counter() - began
        by_index = await _first_recall(restored, name)
        by_log = await _first_recall(WithoutIndexes(restored), name)
        rows.append(
            (
                f"{count:,}",
                f"{copied / 2**20:.0f} MiB",
                f"{took:.1f} s",
                f"{by_index:.2f} s",
                f"{by_log:.2f} s",
            )
        )
        data[str(count)] = {"bytes": copied, "restore": took, "by_index": by_index, "by_log": by_log}
        await kept.close()
        await restored.close()
    head = ("memories", "backup so far", "restored in", "first recall", "from the log alone")
    return [Section(f"Restores, {where}", head, rows, data=data)]


async def _first_recall(store: ObjectStore, name: str) -> float:
    replica = Replica.over(store)
    vector = base64.b64encode(unit_vectors(1, 5)[0].astype("<f4").tobytes()).decode()
    began = time.perf_counter()
    await recall(replica.context, replica.access(name), RecallRequest(vector=vector), replica.deadline())
    took = time.perf_counter() - began
    await replica.close()
    return took
