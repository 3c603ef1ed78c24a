"""What an object or a namespace is: sizes, times, counts; nothing of what was said."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import msgspec

from relayer.admin.catalogue import Catalogue, Kind, Listed, incarnation_of, kind_of
from relayer.admin.walk import SlotReader, seq_of, walk_log
from relayer.domain.entry import Entry
from relayer.domain.namespace import Manifest
from relayer.domain.operations import Malformed, decode_operation
from relayer.errors import CorruptNamespace, NamespaceClosed, RelayerError, UpgradeRequired
from relayer.log.log_ports import LogPorts
from relayer.log.manifest import ManifestView
from relayer.log.sealed_objects import ObjectSealer
from relayer.log.segments import PackPlace, open_pack
from relayer.ports import Found

Lines = list[tuple[str, str]]


async def describe_namespace(ports: LogPorts, listed: Listed) -> Lines:
    """Describe a namespace and its log.

    Raises:
        StoreError: the store did not answer.
    """
    pointer = listed.pointer
    lines = [
        ("namespace", pointer.name),
        ("account", listed.account),
        ("pointer", listed.key),
        ("objects below", f"ns/{pointer.incarnation.hex()}/"),
        ("custody", pointer.custody.value),
        ("state", pointer.state.value),
        ("generation", str(pointer.generation)),
        ("made", _time(pointer.created_at)),
    ]
    walk = await walk_log(ports, listed.account, listed.incarnation)
    state = walk.state
    statuses = Counter(record.status.value for record in state.records.values())
    lines += [
        ("entries", f"{state.position.seq} ({walk.in_segments} of them in segments), {_size(walk.bytes)}"),
        ("head", state.position.digest.hex()),
        ("last entry", _time(state.last_time)),
        ("memories", _counts(statuses) or "none"),
        ("erased", str(len(state.erased))),
        ("jobs", _counts(Counter(job.state for job in state.jobs.values())) or "none"),
    ]
    if walk.seen is not None:
        lines += _manifest(walk.seen.manifest)
    harmful = [item for item in walk.findings if not item.flaw.harmless]
    return [*lines, ("findings", f"{len(harmful)}: memrelay verify names them" if harmful else "none")]


async def describe_key(ports: LogPorts, catalogue: Catalogue, key: str) -> Lines | None:
    """Describe the object at a key, which is without the store's prefix; None if there is none.

    Raises:
        StoreError: the store did not answer.
    """
    found = await ports.store.get(ports.layout.at(key))
    if not isinstance(found, Found):
        return None
    kind, incarnation = kind_of(key), incarnation_of(key)
    lines: Lines = [("key", key), ("kind", kind.value), ("size", _size(len(found.data)))]
    async for info in ports.store.list(ports.layout.at(key)):
        if info.key == ports.layout.at(key):
            lines.append(("written", _time(info.modified)))
    owner = next((item for item in catalogue.namespaces if item.incarnation == incarnation), None)
    if incarnation is not None:
        lines.append(("namespace", "not known: no pointer names it" if owner is None else owner.pointer.name))
    try:
        if owner is not None:
            lines += await _inside(ports, owner, kind, key, found.data)
        elif kind is Kind.POINTER:
            lines += [
                line
                for item in catalogue.namespaces
                if item.key == key
                for line in (await describe_namespace(ports, item))[:8]
            ]
    except (CorruptNamespace, UpgradeRequired, NamespaceClosed) as error:
        lines.append(("problem", str(error)))
    return lines


async def _inside(ports: LogPorts, owner: Listed, kind: Kind, key: str, data: bytes) -> Lines:
    account, incarnation = owner.account, owner.incarnation
    if kind is Kind.MANIFEST:
        return _manifest(await ManifestView(ports, account, incarnation).read())
    if kind is Kind.ENTRY:
        linked = await SlotReader(ports, account, incarnation).read(seq_of(key))
        return [] if linked is None else [("digest", linked.digest.hex()), *_entry(linked.entry)]
    if kind is Kind.KEYRING:
        keyring = ObjectSealer(ports).unseal_keyring(account, incarnation, key, data)
        return [("epoch", str(keyring.epoch)), ("key id", keyring.key_id.hex())]
    if kind is Kind.SEGMENT:
        return _segment(data, PackPlace(ObjectSealer(ports), account, incarnation, key))
    return []


def _entry(entry: Entry) -> Lines:
    return [
        ("seq", str(entry.seq)),
        ("time", _time(entry.time)),
        ("previous", entry.previous.hex()),
        ("writer", entry.writer.hex()),
        ("operations", _counts(Counter(map(_kind, entry.operations))) or "none"),
    ]


def _segment(data: bytes, place: PackPlace) -> Lines:
    kinds: Counter[str] = Counter()
    numbers = []
    for linked in open_pack(data, place):
        numbers.append(linked.entry.seq)
        kinds.update(map(_kind, linked.entry.operations))
    return [
        ("entries", f"{min(numbers)} to {max(numbers)}" if numbers else "none"),
        ("operations", _counts(kinds) or "none"),
    ]


def _kind(raw: bytes) -> str:
    try:
        operation = decode_operation(raw)
    except RelayerError:
        return "unknown"
    return "malformed" if isinstance(operation, Malformed) else str(msgspec.to_builtins(operation)[0])


def _manifest(manifest: Manifest) -> Lines:
    lines = [
        ("manifest format", str(manifest.format)),
        (
            "segments",
            f"{len(manifest.segments)}, up to entry {manifest.snap_seq}, {_size(manifest.live_bytes)}",
        ),
        (
            "collection",
            f"watermark {manifest.gc_watermark}, moved {manifest.gc_epoch} times, last {_time(manifest.gc_moved_at)}",
        ),
        ("key epoch", str(manifest.key_epoch)),
    ]
    if manifest.index_key:
        lines.append(("index", f"{manifest.index_key}, of entry {manifest.index_seq}"))
    return lines + [
        (f"segment {row.first_seq}-{row.last_seq}", f"{row.key}, {_size(row.size)}")
        for row in manifest.segments
    ]


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if ms else "never"


def _size(count: int) -> str:
    return f"{count:,} bytes"
