"""The stats command: count the objects and bytes of a store, by kind and account, and how many of them are garbage.

`measure` lists the store once and reads every manifest. `parse_traffic` reads from a relayer's metrics how many store requests
one request to the relayer causes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from relayer.domain.namespace import Manifest
from relayer.errors import NamespaceClosed
from relayer.lib.work import in_windows
from relayer.log.collector import seq_of
from relayer.log.objects import LogPorts, ManifestView
from relayer.operator.catalogue import UNREADABLE, Listed, ObjectKind, incarnation_of, kind_of, read_catalogue

# Object stores charge these calls as writes, and do not charge deletes.
_WRITE_CALLS = frozenset({"create", "swap", "list"})
_READ_CALLS = frozenset({"get", "versions"})


@dataclass(slots=True)
class Amount:
    """A number of objects and their bytes."""

    objects: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """Count one more object of ``size`` bytes."""
        self.objects += 1
        self.bytes += size


@dataclass(frozen=True, slots=True)
class Traffic:
    """Average store requests for one request to a relayer, split as object stores charge them."""

    writes: float
    reads: float


@dataclass(slots=True)
class Garbage:
    """The objects that collection will delete.

    Attributes:
        covered_slots: log entries that a segment contains too.
        unnamed: segments and indexes that no manifest names.
    """

    covered_slots: Amount = field(default_factory=Amount)
    unnamed: Amount = field(default_factory=Amount)


@dataclass(slots=True)
class Kept:
    """The amounts that an account stores, as its quota counts them."""

    namespaces: int = 0
    memories: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Stats:
    """The amounts in a store.

    Attributes:
        entries: number of log entries of all namespaces.
        tail_entries: number of entries that no segment contains yet.
        segments: number of segments that a manifest names.
        kinds: objects and bytes by kind, see `relayer.operator.catalogue.ObjectKind`.
        unread_manifests: number of namespaces whose manifest cannot be read; the verify command says why.
        by_account: the amounts of each account, those with the most bytes first.
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
        """The amount of all kinds together."""
        kinds = self.kinds.values()
        return Amount(sum(item.objects for item in kinds), sum(item.bytes for item in kinds))


@dataclass(slots=True)
class _Log:
    """The objects of one log in the listing: sizes of entries by sequence number, and of segments and indexes by key."""

    slots: dict[int, int] = field(default_factory=dict)
    packs: dict[str, int] = field(default_factory=dict)


async def measure(ports: LogPorts, known: Collection[str] = ()) -> Stats:
    """Return the amounts in a store. This lists it once and reads every manifest; ``known`` is for `read_catalogue`."""
    stats, logs = Stats(), defaultdict[bytes, _Log](_Log)
    async for info in ports.rows_below(""):
        kind, incarnation = kind_of(info.key), incarnation_of(info.key)
        stats.kinds[kind.value].add(info.size)
        if incarnation is not None and kind is ObjectKind.ENTRY:
            logs[incarnation].slots[seq_of(info.key)] = info.size
        elif incarnation is not None and kind in {ObjectKind.SEGMENT, ObjectKind.INDEX}:
            logs[incarnation].packs[info.key] = info.size
    catalogue = await read_catalogue(ports, known)
    stats.accounts, stats.namespaces = len(catalogue.accounts), len(catalogue.namespaces)

    async def count(listed: Listed) -> None:
        manifest = None
        with suppress(*UNREADABLE, NamespaceClosed):
            manifest = await ManifestView(ports, listed.account, listed.incarnation).read()
        _count(stats, listed, manifest, logs[listed.incarnation])

    await in_windows(count, catalogue.namespaces)
    largest = sorted(stats.by_account.items(), key=lambda item: (-item[1].bytes, item[0]))
    stats.by_account = dict(largest)
    return stats


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
    """Return the average store requests per request to the routes under ``/v1/``; None if there was no such request.

    ``metrics`` is a relayer's metrics page in the text format of Prometheus.
    """
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
