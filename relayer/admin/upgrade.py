"""Compact by hand, and raise the format of manifests, after which relayers that do not know it refuse to serve (I12).

New kinds of operations and entries are written only where the manifest's format allows them, so that this is the one
moment at which an older relayer is shut out, and it is the operator's to choose.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from relayer.admin.catalogue import UNREADABLE, Finding, Listed, Progress, read_catalogue, unseen
from relayer.domain import namespace
from relayer.errors import NamespaceClosed, StoreUnavailable
from relayer.log.compactor import CompactionLimits, Compactor
from relayer.log.objects import Layout, LogPorts, ManifestView
from relayer.log.replica import Replica
from relayer.ports import Swapped

_ROUNDS = 8


@dataclass(slots=True)
class Upgrade:
    """How many namespaces were raised or had the format already, and which could not be."""

    format: int
    raised: int = 0
    had: int = 0
    findings: list[Finding] = field(default_factory=list)


async def upgrade_store(ports: LogPorts, *, apply: bool, progress: Progress = unseen) -> Upgrade:
    """Give every manifest the format that this version writes."""
    catalogue = await read_catalogue(ports)
    upgrade = Upgrade(namespace.MANIFEST_FORMAT)

    async def work(listed: Listed) -> None:
        raised = await _raise(ports, listed, upgrade.format, apply=apply)
        upgrade.raised += raised
        upgrade.had += not raised

    found = await at_each(catalogue.namespaces, work, progress)
    upgrade.findings = [*catalogue.findings, *found]
    return upgrade


async def at_each(
    namespaces: Sequence[Listed], work: Callable[[Listed], Awaitable[None]], progress: Progress
) -> list[Finding]:
    """Do the work at every namespace that is live; returns which could not be read.

    One that was never finished, or is erased meanwhile, has nothing to be done.
    """
    found = []
    for listed in progress([listed for listed in namespaces if listed.live]):
        try:
            await work(listed)
        except NamespaceClosed:
            continue
        except UNREADABLE as error:
            key, say = Layout.manifest(listed.incarnation), f" (namespace {listed.pointer.name})"
            found.append(Finding.of(error, key, say=say))
    return found


async def _raise(ports: LogPorts, listed: Listed, target: int, *, apply: bool) -> bool:
    """Raise one manifest; False if it has the format already."""
    view = ManifestView(ports, listed.account, listed.incarnation)
    for _ in range(_ROUNDS):
        seen = await view.see()
        if seen.manifest.format >= target:
            return False
        new = msgspec.structs.replace(seen.manifest, format=target)
        if not apply or isinstance(await view.swap(seen, new), Swapped):
            return True
    raise StoreUnavailable(
        "a manifest changed again and again while its format was to be raised; run it again"
    )


async def compact_namespace(ports: LogPorts, listed: Listed, *, entries: int) -> tuple[int, int]:
    """Make segments of the tail, if it has at least ``entries`` entries, and merge small ones until nothing is left to do.

    Returns:
        How many segments were made, and the bytes that were written.

    Raises:
        CorruptNamespace, UpgradeRequired, NamespaceClosed: it cannot be read; nothing was changed.
    """
    replica = Replica(ports, listed.account, listed.incarnation)
    await replica.reload()
    compactor = Compactor(ports, replica, CompactionLimits(entries=entries))
    made = written = 0
    while (compaction := await compactor.run()) is not None:
        made, written = made + compaction.won, written + compaction.written
    return made, written
