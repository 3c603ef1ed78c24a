"""The inspect command: describe a namespace or an object by sizes, times and counts, without any content of memories.

`describe_namespace` and `describe_key` return `Facts`, each with a text for people and a value for programs. `lines_of` and
`row_of_facts` turn them into the lines and the JSON that are printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from relayer.domain.namespace import Manifest
from relayer.domain.operations import Entry, MalformedBody, decode_operation
from relayer.errors import NamespaceClosed, RelayerError
from relayer.log.collector import seq_of
from relayer.log.objects import LogPorts, ManifestView, ObjectSealer, Slots
from relayer.log.segments import open_pack, pack_place
from relayer.operator.catalogue import (
    UNREADABLE,
    Catalogue,
    Listed,
    ObjectKind,
    incarnation_of,
    kind_of,
    sound,
)
from relayer.operator.walk import walk_log
from relayer.wire.fields import render_time

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
    facts += [_time("written", info.modified) async for info in ports.rows_below(key) if info.key == key]
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
