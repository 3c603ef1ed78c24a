"""Data that clients encrypted themselves: bytes that the relayer cannot read, and the vector to find them by.

They are stored like dialogues: as records that are excluded from searches and listings of memories, count towards quotas,
and are erased with their namespace. A namespace may hold vectors of several lengths; only vectors of the same length are
compared.
"""

from __future__ import annotations

import array
import asyncio
import base64
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayer.access.accounts import Access
from relayer.domain.namespace import Custody
from relayer.domain.operations import DIALOGUE, Line, Put, Record, Source, Stored, encode_stored
from relayer.fronts.memwal import contract
from relayer.fronts.memwal.contract import CompatError, RecordLocation, TokenKind, bad
from relayer.fronts.memwal.front import CompatCall, reply
from relayer.fronts.memwal.memories import once_free, writing
from relayer.http.routes import Reply
from relayer.log import creation
from relayer.namespaces.records import OpenedMemory
from relayer.wire import codec as ulid
from relayer.wire.fields import DAY_MS, Role, Trust, render_time
from relayer.wire.sealing import SALT_SIZE

# Name of a chat session that no host uses; client-encrypted records are stored under it and found by it.
SESSION = "memwal sealed"
IMPORTANCE = 0.5
_AT_ONCE = 50
_HELD_MS = 60_000
_OCTETS = "application/octet-stream"
_TINY = 1e-12
_NO_KEY, _NO_NONCE = bytes(32), bytes(16)


async def remember(call: CompatCall) -> Reply:
    """Handle ``POST /api/remember/manual``."""
    body = call.body(contract.ManualBody)
    if not body.encrypted_data and not body.blob_id:
        raise bad("encrypted_data must be standard base64 of at least one byte")
    vector = _packed(body.vector)
    access = call.caller.access(body.namespace)
    async with writing(call, access):
        record = await once_free(call.deadline, partial(_store, call, access, body, vector))
    token = call.to.tokens.make(TokenKind.BLOB, access, record)
    shown = {"id": token, "blob_id": body.blob_id or token}
    return reply(shown | {"owner": call.caller.shown, "namespace": body.namespace})


async def _store(call: CompatCall, access: Access, body: contract.ManualBody, vector: bytes) -> bytes:
    context = call.to.context
    record = ulid.make(context.clock.now_ms(), context.randomness.bytes(10))
    data = base64.b64encode(body.encrypted_data or b"").decode()
    sealed_by_client = Record(
        id=record,
        namespace=access.namespace,
        text="",
        trust=Trust.TOOL,
        suspect=True,
        created_at=context.clock.now_ms(),
        source=Source(
            host=body.namespace,
            agent=contract.AGENT,
            session=SESSION,
            transcript=DIALOGUE,
            reference=body.blob_id or "",
        ),
        author=access.principal.author,
        lines=(Line(Role.TOOL, data, message_id=base64.b64encode(vector).decode()),),
    )
    async with context.namespaces.use(access, call.deadline, create=True) as opened:
        keys = opened.keys
        stored = Stored(
            record=record,
            # Two records with the same content are stored separately, because the relayer does not know their content.
            content=keys.content_mac(f"{SESSION} {record.hex()}"),
            sealed=keys.seal_record(
                record, encode_stored(sealed_by_client), salt=context.randomness.bytes(SALT_SIZE)
            ),
            created_at=sealed_by_client.created_at,
        )
        (outcome,) = await opened.append([Put(access.origin(), stored)], call.deadline)
        return outcome.subject


def _packed(vector: Sequence[float]) -> bytes:
    try:
        packed = array.array("f", vector)
    except OverflowError as error:
        raise bad("vector must hold numbers of float32's range") from error
    if not packed or not all(map(math.isfinite, packed)) or not any(packed):
        raise bad("vector must hold at least one number, finite ones only, and not be zero")
    return packed.tobytes()


async def recall(call: CompatCall) -> Reply:
    """Handle ``POST /api/recall/manual``: the nearest by cosine similarity, without decrypting what clients encrypted."""
    body = call.body(contract.ManualRecallBody)
    weights = body.scoring_weights
    if weights is not None:
        weights.check()
    query = _unit(_packed(body.vector))
    access = call.caller.access(body.namespace)
    hits: list[tuple[float, float, dict[str, Any]]] = []
    now = call.to.context.clock.now_ms()
    async with call.to.context.namespaces.use_if_exists(access, call.deadline) as opened:
        if opened is not None:
            await opened.refresh(call.deadline)
            at = opened.last_time
            sealed = (one for one in opened.turns(SESSION) if one.state.live_at(at))
            for place, one in enumerate(sealed):
                if place % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)
                vector = vector_of(one)
                if vector is None or len(vector) != len(query):
                    continue
                distance = round(min(2.0, max(0.0, 1.0 - float(query @ vector))), 6)
                record = one.record
                token = call.to.tokens.make(TokenKind.BLOB, access, record.id)
                shown = {
                    "blob_id": record.source.reference or token,
                    "distance": distance,
                    "created_at": render_time(record.created_at),
                    "importance": IMPORTANCE,
                }
                rank = distance
                if weights is not None and weights.rank:
                    rank = -weights.score(distance, (now - record.created_at) / DAY_MS, IMPORTANCE)
                hits.append((distance, rank, shown))
    limit = min(body.limit, contract.MAX_RESULTS)
    nearest = sorted(hits, key=lambda hit: hit[0])[:limit]
    results = [shown for *_, shown in sorted(nearest, key=lambda hit: hit[1])]
    return reply({"results": results, "total": len(results)})


def vector_of(one: OpenedMemory) -> NDArray[np.float32] | None:
    """Return the vector of a client-encrypted record, of length 1; None for other records."""
    record = one.record
    return _unit(base64.b64decode(record.lines[0].message_id)) if record.is_dialogue else None


def _unit(packed: bytes) -> NDArray[np.float32]:
    vector = np.frombuffer(packed, np.float32).astype(np.float64)
    return (vector / max(_TINY, math.sqrt(float(vector @ vector)))).astype(np.float32)


async def blob(call: CompatCall) -> Reply:
    """Handle ``GET /v1/blobs/{blob_id}``: the bytes, for any client that has their unguessable id; never a memory's text."""
    place = call.to.tokens.read(TokenKind.BLOB, call.parameter)
    data = None if place is None else await _bytes_at(call, place)
    if data is None:
        raise CompatError(404, "Blob not found", rule="no blob")
    return Reply(data, media_type=_OCTETS)


async def _bytes_at(call: CompatCall, place: RecordLocation) -> bytes | None:
    context = call.to.context
    async with call.deadline.step("open"):
        pointer = await creation.find_tagged(context.ports, place.account, place.tag)
    if pointer is None or pointer.custody is not Custody.RELAYER or not contract.is_ours(pointer.name):
        return None
    now = context.clock.now_ms()
    anonymous = contract.principal_of(place.account_key, _NO_KEY, _NO_NONCE, now // 1000, "")
    access = contract.way_into(context.keys, anonymous, pointer.name, now + _HELD_MS)
    async with context.namespaces.use_if_exists(access, call.deadline) as opened:
        if opened is None:
            return None
        await opened.refresh(call.deadline)
        one = opened.turn(place.record)
        record = None if one is None else one.record
        if record is None or not record.is_dialogue or record.source.session != SESSION:
            return None
        return base64.b64decode(record.lines[0].text)
