"""Compact by hand, and raise the format of manifests, after which relayers that do not know it refuse to serve (I12).

New kinds of operations and entries are written only where the manifest's format allows them, so that this is the one
moment at which an older relayer is shut out, and it is the operator's to choose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from relayer.admin.catalogue import Finding, Flaw, Listed, read_catalogue
from relayer.domain import namespace
from relayer.errors import CorruptNamespace, NamespaceClosed, StoreUnavailable, UpgradeRequired
from relayer.log.compactor import CompactionLimits, Compactor
from relayer.log.log_ports import LogPorts
from relayer.log.manifest import ManifestView
from relayer.log.replica import Replica
from relayer.ports import Swapped

_ROUNDS = 8
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Upgrade:
    """How many namespaces were raised or had the format already, and which could not be."""

    format: int
    raised: int = 0
    had: int = 0
    findings: list[Finding] = field(default_factory=list)


async def upgrade_store(
    ports: LogPorts, *, apply: bool, progress: Progress = lambda _done, _total: None
) -> Upgrade:
    """Give every manifest the format that this version writes.

    Raises:
        StoreError: the store did not answer; running again goes on.
    """
    catalogue = await read_catalogue(ports)
    upgrade = Upgrade(namespace.MANIFEST_FORMAT, findings=list(catalogue.findings))
    for done, listed in enumerate(catalogue.namespaces, 1):
        if listed.live:
            await _raise_one(ports, listed, upgrade, apply=apply)
        progress(done, len(catalogue.namespaces))
    return upgrade


async def _raise_one(ports: LogPorts, listed: Listed, upgrade: Upgrade, *, apply: bool) -> None:
    view = ManifestView(ports, listed.account, listed.incarnation)
    try:
        for _ in range(_ROUNDS):
            seen = await view.see()
            if seen.manifest.format >= upgrade.format:
                upgrade.had += 1
                return
            new = msgspec.structs.replace(seen.manifest, format=upgrade.format)
            if not apply or isinstance(await view.swap(seen, new), Swapped):
                upgrade.raised += 1
                return
    except NamespaceClosed:
        return  # never finished, or erased meanwhile: what is made anew has the new format
    except (CorruptNamespace, UpgradeRequired) as error:
        key = ports.layout.manifest(listed.incarnation)
        fix = "update memrelay on this machine" if isinstance(error, UpgradeRequired) else "memrelay repair"
        upgrade.findings.append(Finding(Flaw.of(error), key, str(error), fix))
        return
    raise StoreUnavailable(
        "a manifest changed again and again while its format was to be raised; run it again"
    )


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
