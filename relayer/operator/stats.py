"""Count what a store holds, and how much of it is garbage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from relayer.domain.namespace import Manifest
from relayer.errors import NamespaceClosed
from relayer.lib.work import in_windows
from relayer.log.objects import LogPorts, ManifestView
from relayer.operator.catalogue import (
    UNREADABLE,
    Kind,
    Listed,
    incarnation_of,
    kind_of,
    read_catalogue,
    seq_of,
)

# Object stores charge these calls as writes, and deletes not at all.
_WRITE_CALLS = frozenset({"create", "swap", "list"})
_READ_CALLS = frozenset({"get", "versions"})


@dataclass(slots=True)
class Amount:
    """A number of objects and their bytes."""

    objects: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """Count one more."""
        self.objects += 1
        self.bytes += size


@dataclass(frozen=True, slots=True)
class Traffic:
    """Average store requests for one request to a relayer, split as object stores charge them."""

    writes: float
    reads: float


@dataclass(slots=True)
class Garbage:
    """What collection will delete: slots that segments hold as well, and segments and indexes that no manifest names."""

    covered_slots: Amount = field(default_factory=Amount)
    unnamed: Amount = field(default_factory=Amount)


@dataclass(slots=True)
class Kept:
    """What an account keeps, as its quota counts it."""

    namespaces: int = 0
    memories: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Stats:
    """What a store holds.

    Attributes:
        kinds: objects by the word for their kind.
        entries: of all logs together.
        tail_entries: that no segment holds yet,
        segments: and segments that are named by a manifest.
        unread_manifests: of how many namespaces; verify says why.
        by_account: what each keeps, those that keep most bytes first.
    """

    ALSO = ("total",)

    accounts: int = 0
    namespaces: int = 0
    entries: int = 0
    tail_entries: int = 0
    segments: int = 0
    garbage: Garbage = field(default_factory=Garbage)
    kinds: dict[str, Amount] = field(default_factory=lambda: defaultdict(Amount))
    unread_manifests: int = 0
    by_account: dict[str, Kept] = field(default_factory=lambda: defaultdict(Kept))

    @property
    def total(self) -> Amount:
        """Everything."""
        kinds = self.kinds.values()
        return Amount(sum(item.objects for item in kinds), sum(item.bytes for item in kinds))


@dataclass(slots=True)
class _Log:
    """What the listing shows of one log: sizes by slot, and by key."""

    slots: dict[int, int] = field(default_factory=dict)
    packs: dict[str, int] = field(default_factory=dict)


async def measure(ports: LogPorts, known: Collection[str] = ()) -> Stats:
    """List a store once and read every manifest."""
    stats, logs = Stats(), defaultdict[bytes, _Log](_Log)
    async for info in ports.rows_below(""):
        kind, incarnation = kind_of(info.key), incarnation_of(info.key)
        stats.kinds[kind.value].add(info.size)
        if incarnation is not None and kind is Kind.ENTRY:
            logs[incarnation].slots[seq_of(info.key)] = info.size
        elif incarnation is not None and kind in {Kind.SEGMENT, Kind.INDEX}:
            logs[incarnation].packs[info.key] = info.size
    catalogue = await read_catalogue(ports, known)
    stats.accounts, stats.namespaces = len(catalogue.accounts), len(catalogue.namespaces)

    async def count(listed: Listed) -> None:
        _count(stats, listed, await _manifest(ports, listed), logs[listed.incarnation])

    await in_windows(count, catalogue.namespaces)
    largest = sorted(stats.by_account.items(), key=lambda item: (-item[1].bytes, item[0]))
    stats.by_account = dict(largest)
    return stats


async def _manifest(ports: LogPorts, listed: Listed) -> Manifest | None:
    try:
        return await ManifestView(ports, listed.account, listed.incarnation).read()
    except (*UNREADABLE, NamespaceClosed):
        return None


def _count(stats: Stats, listed: Listed, manifest: Manifest | None, log: _Log) -> None:
    kept = stats.by_account[listed.account]
    kept.namespaces += listed.live
    if manifest is None:
        stats.unread_manifests += bool(log.slots or log.packs)
        return
    head = max([manifest.snap_seq, *log.slots])
    stats.entries += head
    stats.tail_entries += head - manifest.snap_seq
    stats.segments += len(manifest.segments)
    tail = [size for seq, size in log.slots.items() if seq > manifest.snap_seq]
    kept.memories += manifest.live_count + len(tail)
    kept.bytes += manifest.live_bytes + sum(tail)
    for seq, size in log.slots.items():
        if seq <= manifest.snap_seq:
            stats.garbage.covered_slots.add(size)
    named = manifest.named
    for key, size in log.packs.items():
        if not named & {key, key.rpartition("/")[0]}:
            stats.garbage.unnamed.add(size)


def parse_traffic(metrics: str) -> Traffic | None:
    """Return what a relayer's metrics say it asked of its store for each request for memories; None before the first."""
    calls = _sums(metrics, "memrelay_store_requests_total", "call")
    routes = _sums(metrics, "memrelay_http_requests_total", "route")
    requests = sum(value for route, value in routes.items() if route.startswith("/v1/"))
    if not requests:
        return None
    writes, reads = (sum(calls[call] for call in charged) for charged in (_WRITE_CALLS, _READ_CALLS))
    return Traffic(writes / requests, reads / requests)


def _sums(metrics: str, name: str, label: str) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for line in metrics.splitlines():
        if line.startswith(f"{name}{{") and (at := line.find(f'{label}="')) > 0:
            value = line[at + len(label) + 2 :]
            sums[value[: value.index('"')]] += float(line.rpartition(" ")[2])
    return sums
