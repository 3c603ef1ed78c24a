"""Frozen bytes of what the log stores: a change of any of them is a change of format."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from relayer.domain.namespace import (
    Custody,
    Keyring,
    Manifest,
    Pointer,
    PointerState,
    SegmentRow,
    decode,
    decode_manifest,
    genesis,
)
from relayer.domain.operations import (
    Close,
    Entry,
    Erase,
    Forget,
    JobAccepted,
    JobFinished,
    MalformedBody,
    Origin,
    Put,
    Restore,
    Stored,
    Supersede,
    VectorSet,
    decode_entry,
    decode_operation,
    encode_stored,
)
from relayer.errors import CorruptNamespace, UpgradeRequired
from relayer.log.segments import Page, PageRow, decode_page
from relayer.wire.codec import UnsealError
from relayer.wire.sealing import ObjectType, SealingKey, context, seal, unseal

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "entries.json").read_text())

INCARNATION = bytes(range(16))
ORIGIN = Origin(b"\xa0" * 32, b"\x0b" * 16, 1, 1_700_000_000_000, b"\x1d" * 32, b"\xbd" * 32)
STORED = Stored(
    record=b"\x01" * 16,
    content=b"\xc0" * 32,
    sealed=b"sealed",
    vector=b"vector",
    context_vector=b"context",
    context_of=b"\x02" * 16,
    created_at=1_700_000_000_001,
    expires_at=1_800_000_000_000,
    sources=(b"\x03" * 16,),
    captured=True,
    likeness=b"\x11" * 32,
    left_out=300,
)
OPERATIONS = {
    "put": Put(ORIGIN, STORED, b"\x05" * 16, b"\x06" * 16),
    "put_defaults": Put(Origin(b"", b"\x0b" * 16), Stored(b"\x01" * 16, b"\xc0" * 32, b"s")),
    "supersede": Supersede(ORIGIN, b"\x02" * 16, STORED),
    "forget": Forget(ORIGIN, b"\x02" * 16),
    "restore": Restore(ORIGIN, b"\x02" * 16, b"\x04" * 16),
    "erase": Erase(ORIGIN, (b"\x02" * 16, b"\x03" * 16)),
    "job_accepted": JobAccepted(ORIGIN, b"\x05" * 16, "extract", (b"\x02" * 16,), b"input"),
    "job_finished": JobFinished(
        b"\x05" * 16,
        vectors=(VectorSet(b"\x02" * 16, b"v", b"w", b"\x03" * 16, "ab" * 32),),
        stored=(STORED,),
        reason="done",
        supersedes=((b"\x01" * 16, b"\x02" * 16),),
    ),
    "close": Close(ORIGIN),
}
ENTRY = Entry(
    version=1,
    seq=7,
    previous=b"\xdd" * 32,
    batch=b"\xba" * 16,
    writer=b"\x77" * 16,
    time=1_700_000_000_002,
    operations=(encode_stored(OPERATIONS["forget"]), encode_stored(OPERATIONS["close"])),
)
SMALL = {
    "manifest": Manifest(
        format=1,
        segments=(SegmentRow(1, 64, "seg/x", b"\xdd" * 32, 4096, 60, 63),),
        index_key="index/x",
        index_seq=64,
        index_model="model",
        snap_seq=64,
        chain_digest=b"\xdd" * 32,
        gc_watermark=32,
        gc_moved_at=1_700_000_000_000,
        gc_epoch=3,
        live_count=60,
        live_bytes=4000,
        last_time=1_700_000_000_002,
        gc_swept=2,
    ),
    "manifest_empty": Manifest(1, chain_digest=genesis(INCARNATION)),
    "pointer": Pointer(
        INCARNATION, Custody.AGENT, PointerState.LIVE, "research/notes", 2, 1_700_000_000_000, b"\x0e" * 16, 3
    ),
    "keyring": Keyring(b"\x5a" * 32, b"\x1d" * 16, b"\xcc" * 32, b"macs"),
}
PAGE = Page(
    format=1,
    previous=b"\xdd" * 32,
    texts_at=10,
    vectors_at=300,
    rows=(
        PageRow(1, 7, 1_700_000_000_002, b"\xee" * 32, (encode_stored(OPERATIONS["put"]), b""), (6, 0, 768)),
        PageRow(1, 8, 1_700_000_000_003, b"\xef" * 32, (encode_stored(OPERATIONS["forget"]),), ()),
    ),
)


def raw(*path: str) -> bytes:
    value: Any = VECTORS
    for step in path:
        value = value[step]
    return bytes.fromhex(value)


def test_every_operation_has_a_vector() -> None:
    assert OPERATIONS.keys() == VECTORS["operations"].keys()
    assert SMALL.keys() == VECTORS["small"].keys()


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_encoded_and_decoded_as_ever(name: str) -> None:
    assert encode_stored(OPERATIONS[name]) == raw("operations", name)
    assert decode_operation(raw("operations", name)) == OPERATIONS[name]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("without_left_out", Put(ORIGIN, replace(STORED, left_out=0))),
        ("put_without_twin", Put(ORIGIN, STORED)),
        ("vectors_without_context_of", (VectorSet(b"\x02" * 16, b"v", b"w"),)),
        ("vectors_without_model", (VectorSet(b"\x02" * 16, b"v", b"w", b"\x03" * 16),)),
    ],
)
def test_what_was_stored_before_a_field_was_added_has_its_default(name: str, meant: object) -> None:
    older = decode_operation(raw("operations_older", name))
    assert (older.vectors if isinstance(older, JobFinished) else older) == meant


def test_a_record_stored_before_likeness_was_known_is_like_every_other_of_its_text() -> None:
    older = decode_operation(raw("operations_older", "without_likeness"))
    assert older == Put(ORIGIN, replace(STORED, likeness=b"", left_out=0))
    assert older.stored.dedupe_key == STORED.content


def test_a_segment_from_before_anything_was_erased_is_reduced_by_nothing() -> None:
    older = decode_manifest(raw("manifests_older", "without_reduced_at"))
    assert older.segments == (SegmentRow(1, 64, "seg/x", b"\xdd" * 32, 4096, 60),)


def test_a_manifest_from_before_there_were_collections_was_never_swept() -> None:
    older = decode_manifest(raw("manifests_older", "without_gc_swept"))
    assert replace(older, segments=SMALL["manifest"].segments) == replace(SMALL["manifest"], gc_swept=0)


def test_a_page_of_a_segment_is_encoded_and_decoded_as_ever() -> None:
    assert encode_stored(PAGE) == raw("page")
    assert decode_page(raw("page")) == PAGE


DECODERS = {
    "pages": decode_page,
    "operations": decode_operation,
    "entries": decode_entry,
    "manifests": decode_manifest,
    "pointers": partial(decode, kind=Pointer),
    "keyrings": partial(decode, kind=Keyring),
}


def rows_of(what: str) -> list[tuple[str, str]]:
    return [(kind, name) for kind in DECODERS for name in VECTORS.get(f"{kind}_{what}", ())]


@pytest.mark.parametrize(("kind", "name"), rows_of("corrupt"))
def test_what_is_none_of_its_kind_is_corruption(kind: str, name: str) -> None:
    with pytest.raises(CorruptNamespace):
        DECODERS[kind](raw(f"{kind}_corrupt", name))


@pytest.mark.parametrize(("kind", "name"), rows_of("newer"))
def test_i12_what_is_newer_asks_for_an_upgrade_whatever_follows_its_version(kind: str, name: str) -> None:
    with pytest.raises(UpgradeRequired):
        DECODERS[kind](raw(f"{kind}_newer", name))


def test_a_field_appended_by_a_newer_version_is_passed_over() -> None:
    assert decode_operation(raw("operations_appended_field")) == OPERATIONS["forget"]


@pytest.mark.parametrize("name", VECTORS["operations_malformed"])
def test_a_malformed_operation_is_known_as_such(name: str) -> None:
    assert decode_operation(raw("operations_malformed", name)) == MalformedBody()


def test_an_entry_is_encoded_and_decoded_as_ever() -> None:
    assert encode_stored(ENTRY) == raw("entry")
    assert decode_entry(raw("entry")) == ENTRY


@pytest.mark.parametrize("name", SMALL)
def test_pointer_keyring_and_manifest_are_encoded_and_decoded_as_ever(name: str) -> None:
    value = SMALL[name]
    assert encode_stored(value) == raw("small", name)
    decoded = (
        decode_manifest(raw("small", name))
        if isinstance(value, Manifest)
        else decode(raw("small", name), type(value))
    )
    assert decoded == value


def test_the_chain_of_an_incarnation_begins_with_the_same_digest_as_ever() -> None:
    assert genesis(raw("genesis", "incarnation")) == raw("genesis", "digest")


def test_an_entry_is_sealed_for_its_slot_as_ever() -> None:
    vector = VECTORS["sealed_entry"]
    key = SealingKey(raw("sealed_entry", "key_id"), raw("sealed_entry", "secret"))
    place = context(ObjectType.ENTRY, vector["account"], INCARNATION, vector["key"])
    sealed = raw("sealed_entry", "sealed")

    assert seal(key, ObjectType.ENTRY, place, raw("entry"), salt=raw("sealed_entry", "salt")) == sealed
    assert unseal(key, ObjectType.ENTRY, place, sealed) == raw("entry")
    next_slot = context(ObjectType.ENTRY, vector["account"], INCARNATION, vector["key"][:-1] + "8")
    with pytest.raises(UnsealError):
        unseal(key, ObjectType.ENTRY, next_slot, sealed)
