"""Erases records from a log that nobody serves yet, with every copy of them at once.

A relayer that erases has readers to think of, and leaves what they may still read to collection. Here there are none.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from relayer.domain.operations import Erase, Origin
from relayer.errors import StoreUnavailable
from relayer.log.collector import begun
from relayer.log.compactor import CompactionLimits, Compactor
from relayer.log.destruction import destroy
from relayer.log.layout import Layout
from relayer.log.log_ports import LogPorts
from relayer.log.namespace_log import NamespaceLog
from relayer.log.replica import Replica
from relayer.operator.catalogue import Listed, keys_below
from relayer.ports import Swapped

__all__ = ["erase_records"]

_NONCE_SIZE = 16
_TAIL = CompactionLimits(entries=1)


async def erase_records(ports: LogPorts, listed: Listed, records: Sequence[bytes]) -> int:
    """Erase those of ``records`` that a log holds, and destroy every object that holds one; returns how many there were.

    Nobody else may use the namespace meanwhile. Running it again completes it.

    Raises:
        CorruptNamespace, UpgradeRequired: the log cannot be read.
        StoreError: the store did not answer.
    """
    log = NamespaceLog(ports, listed.account, listed.pointer)
    await log.start()
    try:
        there = [record for record in records if record in log.state.records]
        if there:
            origin = Origin(author=b"", nonce=ports.randomness.bytes(_NONCE_SIZE))
            outcome = (await log.append([Erase(origin, tuple(there))]))[0]
            if outcome.refusal is not None:
                raise StoreUnavailable("the log does not take an erasure; running the restore again is safe")
    finally:
        await log.close()
    await _rewrite(ports, listed)
    return len(there)


async def _rewrite(ports: LogPorts, listed: Listed) -> None:
    """Make segments of all entries without what was erased, and delete everything else that holds entries."""
    replica = Replica(ports, listed.account, listed.incarnation)
    await replica.reload()
    compactor = Compactor(ports, replica, _TAIL)
    while replica.state.position.seq > (seen := await replica.manifest.see()).manifest.snap_seq:
        await compactor.run()
    for number, row in enumerate(seen.manifest.segments):
        seen = await replica.manifest.see()
        done = await compactor.rewrite(replica.state, seen, number, number + 1)
        if done is None or not done.won:
            raise StoreUnavailable(f"{row.key} could not be rewritten; running the restore again is safe")
    seen = await replica.manifest.see()
    # As the first step of a collection: nobody reads what is at or below the watermark, or an index.
    new = begun(msgspec.structs.replace(seen.manifest, index_key="", index_seq=0, index_model=""))
    if not isinstance(await replica.manifest.swap(seen, new), Swapped):
        raise StoreUnavailable("the manifest was not swapped; running the restore again is safe")
    named = {row.key for row in new.segments}
    layout, incarnation = Layout, listed.incarnation
    for start in (layout.entries(incarnation), layout.segments(incarnation), layout.indexes(incarnation)):
        loose = [ports.layout.at(key) for key in await keys_below(ports, start) if key not in named]
        await destroy(ports.store, loose)
