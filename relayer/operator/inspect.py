"""Descriptions of a namespace, an object, a store and an account, by sizes, times and counts.

`describe_namespace` and `describe_key` return `Facts`, each with a text for people and a value for programs. `lines_of` and
`row_of_facts` turn them into the lines and the JSON that are printed. `measure` lists the store once and reads every manifest, to
count its objects and bytes by kind and account, and how many of them are garbage; `parse_traffic` reads from a relayer's metrics
how many store requests one request to the relayer causes.

`read_namespace` walks the log of one namespace for the export of an account: what a relayer's operator can say of it without the
keys of its agents. The texts of memories are included only under custody ``relayer``, where the relayer key and the store open
them anyway; nothing else here shows any content.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from relayer.crypto import NamespaceKeys
from relayer.domain.namespace import Custody, Manifest
from relayer.domain.operations import Entry, MalformedBody, Stored, decode_operation, decode_record, stored_in
from relayer.errors import NamespaceClosed, RelayerError, UpgradeRequired
from relayer.lib.work import in_windows
from relayer.log.collector import seq_of
from relayer.log.objects import LinkedEntry, LogPorts, ManifestView, ObjectSealer, Slots
from relayer.log.segments import open_pack, pack_place
from relayer.namespaces.records import OpenedMemory
from relayer.operator.catalogue import (
    UNREADABLE,
    Catalogue,
    Defect,
    Flaw,
    Listed,
    ObjectKind,
    Walk,
    incarnation_of,
    kind_of,
    read_catalogue,
    sound,
    walk_log,
)
from relayer.operator.verify import keys_of
from relayer.use_cases.memories import kept_turn
from relayer.wire.codec import UnsealError
from relayer.wire.fields import render_time
from relayer.writing.present import show

Lines = list[tuple[str, str]]
"""Lines for people, each a word and the text about it."""


class Property(NamedTuple):
    """A named property: its name, the text for people, and the value for programs."""

    word: str
    text: str
    value: object


Facts = list[Property]


def lines_of(facts: Facts) -> Lines:
    """Return facts as lines for people."""
    return [(fact.word, fact.text) for fact in facts]


def row_of_facts(facts: Facts) -> dict[str, object]:
    """Return facts as JSON for programs: sizes in bytes, times in RFC 3339, and None for times of what never happened."""
    return {fact.word.replace(" ", "_"): fact.value for fact in facts}


async def describe_namespace(ports: LogPorts, listed: Listed) -> Facts:
    """Describe a namespace and its log."""
    walk = await walk_log(ports, listed.account, listed.incarnation)
    state = walk.state
    harmful = sum(not item.flaw.harmless for item in walk.findings)
    return [
        *_pointer(listed),
        Property(
            "entries",
            f"{state.position.seq} ({walk.in_segments} of them in segments), {_size(walk.bytes)}",
            {"count": state.position.seq, "in_segments": walk.in_segments, "bytes": walk.bytes},
        ),
        _plain("head", state.position.digest.hex()),
        _time("last entry", state.last_time),
        _counts("memories", (record.status.value for record in state.records.values())),
        _plain("erased", len(state.erased)),
        _counts("jobs", (job.state for job in state.jobs.values())),
        *(_manifest(walk.seen.manifest) if walk.seen is not None else ()),
        Property(
            "findings", "none" if sound(walk.findings) else f"{harmful}: memrelay verify names them", harmful
        ),
    ]


async def describe_key(ports: LogPorts, catalogue: Catalogue, key: str) -> Facts | None:
    """Describe the object at a key; return None if there is none."""
    found = await ports.get(key)
    if found is None:
        return None
    kind, incarnation = kind_of(key), incarnation_of(key)
    size = len(found.data)
    facts = [_plain("key", key), _plain("kind", kind.value), Property("size", _size(size), size)]
    facts += [_time("written", info.modified) async for info in ports.store.list(key) if info.key == key]
    owner = next((item for item in catalogue.namespaces if item.incarnation == incarnation), None)
    if incarnation is not None:
        name = owner and owner.pointer.name
        facts.append(Property("namespace", name or "unknown: no pointer refers to it", name))
    facts += [fact for item in catalogue.namespaces if item.key == key for fact in _pointer(item)]
    try:
        return facts + (await _inside(ports, owner, kind, key, found.data) if owner is not None else [])
    except (*UNREADABLE, NamespaceClosed) as error:
        return [*facts, _plain("problem", str(error))]


async def _inside(ports: LogPorts, owner: Listed, kind: ObjectKind, key: str, data: bytes) -> Facts:
    account, incarnation = owner.account, owner.incarnation
    if kind is ObjectKind.MANIFEST:
        return _manifest(await ManifestView(ports, account, incarnation).read())
    if kind is ObjectKind.ENTRY:
        stored = await Slots(ports, account, incarnation).read_alone(seq_of(key))
        return [] if stored is None else [_plain("digest", stored[1].digest.hex()), *_entry(stored[1].entry)]
    if kind is ObjectKind.KEYRING:
        keyring = ObjectSealer(ports).unseal_keyring(account, incarnation, key, data)
        return [_plain("key id", keyring.key_id.hex())]
    if kind is ObjectKind.SEGMENT:
        place = pack_place(ObjectSealer(ports), account, incarnation, key)
        kinds: list[str] = []
        numbers = []
        for linked in open_pack(data, place):
            numbers.append(linked.entry.seq)
            kinds += map(_kind, linked.entry.operations)
        span = [min(numbers), max(numbers)] if numbers else []
        text = " to ".join(map(str, span)) or "none"
        return [Property("entries", text, span), _counts("operations", kinds)]
    return []


def _pointer(listed: Listed) -> Facts:
    pointer = listed.pointer
    return [
        _plain("namespace", pointer.name),
        _plain("account", listed.account),
        _plain("pointer", listed.key),
        _plain("objects below", f"ns/{pointer.incarnation.hex()}/"),
        _plain("custody", pointer.custody.value),
        _plain("state", pointer.state.value),
        _plain("generation", pointer.generation),
        _time("made", pointer.created_at),
    ]


def _entry(entry: Entry) -> Facts:
    return [
        _plain("seq", entry.seq),
        _time("time", entry.time),
        _plain("previous", entry.previous.hex()),
        _plain("writer", entry.writer.hex()),
        _counts("operations", map(_kind, entry.operations)),
    ]


def _kind(raw: bytes) -> str:
    try:
        operation = decode_operation(raw)
    except RelayerError:
        return "unknown"
    return "malformed" if isinstance(operation, MalformedBody) else str(msgspec.to_builtins(operation)[0])


def _manifest(manifest: Manifest) -> Facts:
    rows, moved = manifest.segments, _time("last", manifest.gc_moved_at)
    collection = f"watermark {manifest.gc_watermark}, moved {manifest.gc_epoch} times, last {moved.text}"
    size, index = _size(manifest.live_bytes), manifest.index_key
    return [
        _plain("manifest format", manifest.format),
        Property(
            "segments",
            f"{len(rows)}, up to entry {manifest.snap_seq}, {size}",
            {"count": len(rows), "up_to_entry": manifest.snap_seq, "bytes": manifest.live_bytes},
        ),
        Property(
            "collection",
            collection,
            {"watermark": manifest.gc_watermark, "moved": manifest.gc_epoch, "last": moved.value},
        ),
        *(
            [
                Property(
                    "index",
                    f"{index}, of entry {manifest.index_seq}",
                    {"key": index, "entry": manifest.index_seq},
                )
            ]
            if index
            else ()
        ),
        *(
            Property(
                f"segment {row.first_seq}-{row.last_seq}",
                f"{row.key}, {_size(row.size)}",
                {"key": row.key, "bytes": row.size},
            )
            for row in rows
        ),
    ]


def _plain(word: str, value: str | int) -> Property:
    return Property(word, str(value), value)


def _counts(word: str, names: Iterable[str]) -> Property:
    counts = dict(sorted(Counter(names).items()))
    return Property(word, ", ".join(f"{count} {name}" for name, count in counts.items()) or "none", counts)


def _time(word: str, ms: int) -> Property:
    if not ms:
        return Property(word, "never", None)
    text = datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Property(word, text, render_time(ms))


def _size(count: int) -> str:
    return f"{count:,} bytes"


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
    async for info in ports.store.list(""):
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
        # An erased namespace cannot be opened either, and its objects wait for collection.
        stats.unread_manifests += listed.live and bool(log.slots or log.packs)
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


@dataclass(frozen=True, slots=True)
class ExportedNamespace:
    """A namespace of an export.

    Attributes:
        row: its name, custody, state, times, counts and sizes, for JSON.
        memories: its memories and kept turns, oldest first, for JSON; empty under custody ``agent``.
        findings: what could not be read.
    """

    row: dict[str, Any]
    memories: list[dict[str, Any]] = field(repr=False)
    findings: list[Defect]


class _Bodies:
    """A visitor of log entries that keeps the sealed records, by id. A record that is stored again replaces the earlier one."""

    def __init__(self) -> None:
        self.stored: dict[bytes, Stored] = {}

    def __call__(self, linked: LinkedEntry) -> None:
        for raw in linked.entry.operations:
            try:
                operation = decode_operation(raw)
            except UpgradeRequired:
                continue  # the walk has a finding about it
            self.stored |= {item.record: item for item in stored_in(operation) if item.sealed}


async def read_namespace(ports: LogPorts, listed: Listed) -> ExportedNamespace:
    """Read one namespace for an export. Relayers may use the store meanwhile."""
    pointer = listed.pointer
    row: dict[str, Any] = {
        "account": listed.account,
        "name": pointer.name,
        "custody": pointer.custody.value,
        "state": pointer.state.value,
        "created_at": render_time(pointer.created_at),
    }
    if not listed.live:
        return ExportedNamespace(row, [], [])
    bodies: list[_Bodies] = []

    def new_visit() -> _Bodies:
        bodies.append(_Bodies())
        return bodies[-1]

    keys, problem = await keys_of(ports, listed) if pointer.custody is Custody.RELAYER else (None, None)
    if keys is None:
        walk = await walk_log(ports, listed.account, listed.incarnation)
    else:
        walk = await walk_log(ports, listed.account, listed.incarnation, new_visit)
    findings = [*([problem] if problem else []), *walk.findings]
    records = walk.state.records.values()
    row |= {
        "memories": len(records),
        "bytes": walk.bytes,
        "last_entry_at": render_time(walk.state.last_time) if walk.state.last_time else None,
    }
    if keys is None:
        return ExportedNamespace(row, [], findings)
    opened = _opened(keys, walk, bodies[-1].stored, listed, findings)
    return ExportedNamespace(row, opened, findings)


def _opened(
    keys: NamespaceKeys, walk: Walk, stored: dict[bytes, Stored], listed: Listed, findings: list[Defect]
) -> list[dict[str, Any]]:
    """Return the records that have a text, for JSON; add a finding about each that does not open."""
    rows = []
    for state in sorted(walk.state.records.values(), key=lambda one: (one.created_at, one.record)):
        item = stored.get(state.record)
        if item is None:
            continue
        try:
            record = decode_record(keys.unseal_record(item.record, item.sealed))
        except (UnsealError, msgspec.MsgspecError):
            said = f"a memory of entry {state.seq}: its text cannot be opened and is not in the export"
            fix = "memrelay verify names what is damaged"
            findings.append(Defect(Flaw.WRONG_SEAL, listed.key, said, fix, state.seq, state.seq))
            continue
        memory = OpenedMemory(record, state, bool(item.vector))
        shown = (
            {"type": "turn", **kept_turn(memory).model_dump(mode="json")}
            if record.is_dialogue
            else {"type": "memory", **show(memory).model_dump(mode="json")}
        )
        rows.append({"namespace": listed.pointer.name, **shown})
    return rows
