"""Export: a namespace's memories as lines of JSON, and its kept turns if they are asked for, made while they are sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from pydantic import BaseModel

from relayer.access.principal import Access
from relayer.domain.record import Dialogue, Record
from relayer.domain.standing import RecordState
from relayer.lib.deadline import Deadline
from relayer.namespaces.context import Context
from relayer.namespaces.finding import fresh, select, select_turns
from relayer.namespaces.namespace import OpenNamespace
from relayer.use_cases.transcripts import may_be_read, shown
from relayer.wire import codec as ulid
from relayer.wire.service import ExportEnd, ExportHead, ExportLine, ExportRequest, ExportTurn, KeptTurn
from relayer.writing.present import position, show

_CHUNK_BYTES = 64 * 1024

_Chosen = list[tuple[Record, RecordState]]
_Turns = list[tuple[bytes, int]]


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
            return _lines(None, [], [], ExportHead(namespace=access.namespace, memories=0))
        await fresh(opened, deadline)
        now = ctx.clock.now_ms()
        chosen = [
            (record, state)
            for record, state in select(opened, request)
            if state.standing in request.states and (state.expires_at is None or state.expires_at > now)
        ]
        head = ExportHead(
            namespace=access.namespace, memories=len(chosen), position=position(opened.log.position)
        )
        turns = [
            (turn.id, number)
            for turn, _ in (select_turns(opened, request) if request.transcripts else ())
            if may_be_read(opened, turn.id, now)
            and (number := opened.view.dialogues.number_of(turn.id)) is not None
        ]
        return _lines(opened, chosen, sorted(turns, key=lambda turn: turn[1]), head)


async def _lines(
    opened: OpenNamespace | None, chosen: _Chosen, turns: _Turns, head: ExportHead
) -> AsyncIterator[bytes]:
    buffer = bytearray(_line(head))
    count = told = 0
    for record, state in chosen:
        if opened is None or opened.view.get(record.id) is None:
            continue
        searchable = record.id not in opened.view.without_vector
        buffer += _line(ExportLine(memory=show(record, state, searchable=searchable)))
        count += 1
        if len(buffer) >= _CHUNK_BYTES:
            yield bytes(buffer)
            buffer.clear()
            # Others get a turn, also where the reader is as fast as we are.
            await asyncio.sleep(0)
    for turn in _kept(opened, turns):
        buffer += _line(ExportTurn(turn=turn))
        told += 1
        if len(buffer) >= _CHUNK_BYTES:
            yield bytes(buffer)
            buffer.clear()
            await asyncio.sleep(0)
    yield bytes(buffer + _line(ExportEnd(memories=count, turns=told)))


def _kept(opened: OpenNamespace | None, turns: _Turns) -> Iterator[KeptTurn]:
    if opened is None:
        return
    for record, number in turns:
        turn, state = opened.view.known(number), opened.log.state.records.get(record)
        # Gone if it was erased meanwhile.
        if isinstance(turn, Dialogue) and state is not None:
            yield KeptTurn(
                session=turn.source.session,
                host=turn.source.host,
                audience=turn.audience.value,
                created_at=turn.created_at,
                memories=tuple(map(ulid.render, state.sources)),
                lines=tuple(map(shown, turn.lines)),
            )


def _line(value: BaseModel) -> bytes:
    return value.__pydantic_serializer__.to_json(value) + b"\n"
