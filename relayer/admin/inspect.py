"""What an object or a namespace is: sizes, times, counts; nothing of what was said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from relayer.admin.catalogue import (
    UNREADABLE,
    Catalogue,
    Kind,
    Listed,
    incarnation_of,
    kind_of,
    seq_of,
    sound,
)
from relayer.admin.walk import walk_log
from relayer.domain.namespace import Manifest
from relayer.domain.operations import Entry, Malformed, decode_operation
from relayer.errors import NamespaceClosed, RelayerError
from relayer.log.objects import LogPorts, ManifestView, ObjectSealer, Slots
from relayer.log.segments import PackPlace, open_pack

Lines = list[tuple[str, str]]


async def describe_namespace(ports: LogPorts, listed: Listed) -> Lines:
    """Describe a namespace and its log."""
    walk = await walk_log(ports, listed.account, listed.incarnation)
    state = walk.state
    harmful = sum(not item.flaw.harmless for item in walk.findings)
    return [
        *_pointer(listed),
        ("entries", f"{state.position.seq} ({walk.in_segments} of them in segments), {_size(walk.bytes)}"),
        ("head", state.position.digest.hex()),
        ("last entry", _time(state.last_time)),
        ("memories", _counts(record.status.value for record in state.records.values())),
        ("erased", str(len(state.erased))),
        ("jobs", _counts(job.state for job in state.jobs.values())),
        *(_manifest(walk.seen.manifest) if walk.seen is not None else ()),
        ("findings", "none" if sound(walk.findings) else f"{harmful}: memrelay verify names them"),
    ]


async def describe_key(ports: LogPorts, catalogue: Catalogue, key: str) -> Lines | None:
    """Describe the object at a key; None if there is none."""
    found = await ports.get(key)
    if found is None:
        return None
    kind, incarnation = kind_of(key), incarnation_of(key)
    lines: Lines = [("key", key), ("kind", kind.value), ("size", _size(len(found.data)))]
    async for info in ports.rows_below(key):
        if info.key == key:
            lines.append(("written", _time(info.modified)))
    owner = next((item for item in catalogue.namespaces if item.incarnation == incarnation), None)
    if incarnation is not None:
        lines.append(("namespace", "not known: no pointer names it" if owner is None else owner.pointer.name))
    lines += [line for item in catalogue.namespaces if item.key == key for line in _pointer(item)]
    try:
        return lines + (await _inside(ports, owner, kind, key, found.data) if owner is not None else [])
    except (*UNREADABLE, NamespaceClosed) as error:
        return [*lines, ("problem", str(error))]


async def _inside(ports: LogPorts, owner: Listed, kind: Kind, key: str, data: bytes) -> Lines:
    account, incarnation = owner.account, owner.incarnation
    if kind is Kind.MANIFEST:
        return _manifest(await ManifestView(ports, account, incarnation).read())
    if kind is Kind.ENTRY:
        stored = await Slots(ports, account, incarnation).read_alone(seq_of(key))
        return [] if stored is None else [("digest", stored[1].digest.hex()), *_entry(stored[1].entry)]
    if kind is Kind.KEYRING:
        keyring = ObjectSealer(ports).unseal_keyring(account, incarnation, key, data)
        return [("epoch", str(keyring.epoch)), ("key id", keyring.key_id.hex())]
    if kind is Kind.SEGMENT:
        return _segment(data, PackPlace(ObjectSealer(ports), account, incarnation, key))
    return []


def _pointer(listed: Listed) -> Lines:
    pointer = listed.pointer
    return [
        ("namespace", pointer.name),
        ("account", listed.account),
        ("pointer", listed.key),
        ("objects below", f"ns/{pointer.incarnation.hex()}/"),
        ("custody", pointer.custody.value),
        ("state", pointer.state.value),
        ("generation", str(pointer.generation)),
        ("made", _time(pointer.created_at)),
    ]


def _entry(entry: Entry) -> Lines:
    return [
        ("seq", str(entry.seq)),
        ("time", _time(entry.time)),
        ("previous", entry.previous.hex()),
        ("writer", entry.writer.hex()),
        ("operations", _counts(map(_kind, entry.operations))),
    ]


def _segment(data: bytes, place: PackPlace) -> Lines:
    kinds: list[str] = []
    numbers = []
    for linked in open_pack(data, place):
        numbers.append(linked.entry.seq)
        kinds += map(_kind, linked.entry.operations)
    entries = f"{min(numbers)} to {max(numbers)}" if numbers else "none"
    return [("entries", entries), ("operations", _counts(kinds))]


def _kind(raw: bytes) -> str:
    try:
        operation = decode_operation(raw)
    except RelayerError:
        return "unknown"
    return "malformed" if isinstance(operation, Malformed) else str(msgspec.to_builtins(operation)[0])


def _manifest(manifest: Manifest) -> Lines:
    collection = f"watermark {manifest.gc_watermark}, moved {manifest.gc_epoch} times"
    rows = manifest.segments
    index = f"{manifest.index_key}, of entry {manifest.index_seq}"
    return [
        ("manifest format", str(manifest.format)),
        ("segments", f"{len(rows)}, up to entry {manifest.snap_seq}, {_size(manifest.live_bytes)}"),
        ("collection", f"{collection}, last {_time(manifest.gc_moved_at)}"),
        ("key epoch", str(manifest.key_epoch)),
        *([("index", index)] if manifest.index_key else ()),
        *((f"segment {row.first_seq}-{row.last_seq}", f"{row.key}, {_size(row.size)}") for row in rows),
    ]


def _counts(names: Iterable[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(Counter(names).items())) or "none"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if ms else "never"


def _size(count: int) -> str:
    return f"{count:,} bytes"
