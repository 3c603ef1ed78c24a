"""Compacts one log by hand, as the relayers do by themselves."""

from __future__ import annotations

from dataclasses import dataclass

from relayer.log.compactor import CompactionLimits, Compactor
from relayer.log.log_ports import LogPorts
from relayer.log.replica import Replica
from relayer.operator.catalogue import Listed

__all__ = ["Compacted", "compact_namespace"]


@dataclass(slots=True)
class Compacted:
    """How many segments were made, their bytes, and how many rows the manifest has now."""

    segments: int = 0
    written: int = 0
    rows: int = 0


async def compact_namespace(ports: LogPorts, listed: Listed, *, entries: int) -> Compacted:
    """Make segments of the tail, if it has at least ``entries`` entries, and merge small ones until nothing is left to do.

    Raises:
        CorruptNamespace, UpgradeRequired, NamespaceClosed: it cannot be read; nothing was changed.
        StoreError: the store did not answer; running again is safe.
    """
    replica = Replica(ports, listed.account, listed.incarnation)
    await replica.reload()
    compactor = Compactor(ports, replica, CompactionLimits(entries=entries))
    done = Compacted()
    while (compaction := await compactor.run()) is not None:
        done.segments += compaction.won
        done.written += compaction.written
    done.rows = len((await replica.manifest.read()).segments)
    return done
