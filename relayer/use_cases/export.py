"""Export: a namespace's memories as lines of JSON, and its kept turns if they are asked for, made while they are sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import chain

from pydantic import BaseModel

from relayer.access.accounts import Access
from relayer.domain.operations import Dialogue
from relayer.lib.work import Deadline
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.records import Memory
from relayer.use_cases.transcripts import lines_of, may_be_read, shown
from relayer.wire import codec as ulid
from relayer.wire.service import ExportEnd, ExportHead, ExportLine, ExportRequest, ExportTurn, KeptTurn
from relayer.writing.present import position, show

_CHUNK_BYTES = 64 * 1024


async def export(
    ctx: Context, access: Access, request: ExportRequest, deadline: Deadline
) -> AsyncIterator[bytes]:
    """Choose what is exported, and return what makes its lines: a head, the memories, oldest first, and an end.

    What is stored later is not in it, what is erased meanwhile is left out.

    Raises:
        RelayerError: as `relayer.namespaces.cache.OpenNamespaces.use`; nothing after the first line.
    """
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return _nothing(ExportHead(namespace=access.namespace, memories=0))
        await opened.refresh(deadline)
        now = ctx.clock.now_ms()
        chosen = [
            memory.id
            for memory in opened.memories(request)
            if memory.state.status in request.states
            and (memory.state.expires_at is None or memory.state.expires_at > now)
        ]
        turns = [
            turn.id
            for turn in (opened.select_turns(request) if request.transcripts else ())
            if may_be_read(opened, turn.state, now)
        ]
        at = position(opened.position)
        head = ExportHead(namespace=access.namespace, memories=len(chosen), position=at)
        return _lines(opened, chosen, turns, head)


async def _nothing(head: ExportHead) -> AsyncIterator[bytes]:
    yield _line(head) + _line(ExportEnd(memories=0, turns=0))


async def _lines(
    opened: OpenNamespace, chosen: Sequence[bytes], turns: Sequence[bytes], head: ExportHead
) -> AsyncIterator[bytes]:
    buffer = bytearray(_line(head))
    told = turns_told = 0
    memories = (opened.memory(record) for record in chosen)
    kept = (opened.turn(record) for record in turns)
    for one in chain(memories, kept):
        if one is None:
            continue  # erased meanwhile
        is_turn = isinstance(one.record, Dialogue)
        buffer += _line(ExportTurn(turn=_turn(one)) if is_turn else ExportLine(memory=show(one)))
        told += 1
        turns_told += is_turn
        if len(buffer) >= _CHUNK_BYTES:
            yield bytes(buffer)
            buffer.clear()
            # Others get a turn, also where the reader is as fast as we are.
            await asyncio.sleep(0)
    yield bytes(buffer + _line(ExportEnd(memories=told - turns_told, turns=turns_told)))


def _turn(turn: Memory) -> KeptTurn:
    source = turn.record.source
    return KeptTurn(
        session=source.session,
        host=source.host,
        audience=turn.record.audience.value,
        created_at=turn.record.created_at,
        memories=tuple(map(ulid.render, turn.state.sources)),
        lines=tuple(map(shown, lines_of(turn))),
    )


def _line(value: BaseModel) -> bytes:
    return value.__pydantic_serializer__.to_json(value) + b"\n"
