"""Transcripts: the turns of a session word for word, stored together with the memories that were extracted from them.

`keep_turn` stores a turn only if it has memories, and the log deletes the turn permanently with any of them; otherwise a turn
would be stored that a user has no way to erase. While one of its memories is forgotten, `transcript` does not show the turn
either. `retelling` finds the turns that have to be erased together with some memories because they contain the same text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from relayer.access.accounts import Access
from relayer.domain import operations as ops
from relayer.extraction.normal_text import normal_text
from relayer.extraction.words import clean
from relayer.lib.work import Deadline, weight
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.records import OpenedMemory, is_heard
from relayer.wire.fields import SPOKEN_ROLES, Role, Status, Trust, clip, one_line
from relayer.wire.schemas import AnalyzeRequest, TurnItem
from relayer.wire.sealing import SALT_SIZE
from relayer.wire.service import TranscriptLine, TranscriptRequest, TranscriptResponse
from relayer.writing.drafts import new_id, request_origin
from relayer.writing.present import position

# Operation index of a turn, beyond the indexes of the memories and the jobs of a request.
_INDEX = 20_000
# Maximum characters of a message, and of a tool call, as in `memory_transcript`.
_MOST_SAID = 1000
_MOST_CALLED = 200
_AT_ONCE = 50
_LONG = 8


async def keep_turn(
    ctx: Context,
    opened: OpenNamespace,
    access: Access,
    request: AnalyzeRequest,
    *,
    outcomes: Sequence[ops.Outcome],
    deadline: Deadline,
) -> None:
    """Store a turn word for word if all of its memories were stored. Repeating the request does not store it twice.

    The turn is not stored if it contains a text that was forgotten or erased. Messages that the gateway marked as suspect are
    left out.

    Secrets must have been removed from the request; ``outcomes`` are those of storing its memories. Raises `RelayerError`: the
    log cannot append the turn now; the caller may repeat the request.
    """
    if any(outcome.refusal is not None for outcome in outcomes):
        return
    lines = tuple(_lines(request.turns))
    if not lines:
        return
    texts = [item.text for item in request.turns]
    forms = (normal_text(clean(text)) for text in texts)
    if any(
        opened.was_taken_back(opened.keys.content_mac(form))
        for form in await ctx.texts.make(access.account, forms, weight(texts))
    ):
        return
    memories = tuple(dict.fromkeys(outcome.subject for outcome in outcomes))
    dialogue = ops.Record(
        id=new_id(ctx),
        namespace=access.namespace,
        text="",
        audience=request.audience,
        trust=Trust.TOOL,
        suspect=True,
        created_at=ctx.clock.now_ms(),
        source=ops.Source(
            host=request.host,
            agent=access.principal.certificate.agent,
            session=request.session,
            transcript=ops.DIALOGUE,
            place=request.place,
        ),
        author=access.principal.author,
        lines=lines,
    )
    keys = opened.keys
    # The same for every attempt of one request: if the entry of a second attempt holds the turn too, erasing finds it by this.
    content = keys.content_mac(f"{ops.DIALOGUE} {request.idempotency_key or access.principal.nonce.hex()}")
    stored = ops.Stored(
        record=dialogue.id,
        content=content,
        sealed=keys.seal_record(
            dialogue.id, ops.encode_stored(dialogue), salt=ctx.randomness.bytes(SALT_SIZE)
        ),
        created_at=dialogue.created_at,
        sources=memories,
    )
    origin = request_origin(opened, access, _INDEX, request.idempotency_key)
    await opened.append([ops.Put(origin, stored)], deadline)


async def transcript(
    ctx: Context, access: Access, request: TranscriptRequest, deadline: Deadline
) -> TranscriptResponse:
    """Return lines of a session, without the turns of which a memory is forgotten or expired."""
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return TranscriptResponse(lines=(), total=0)
        await opened.refresh(deadline)
        lines: list[ops.Line] = []
        now = ctx.clock.now_ms()
        for place, turn in enumerate(opened.turns(request.session)):
            among = not request.audiences or is_heard(turn.record, request.audiences)
            if among and may_be_read(opened, turn.state, now):
                lines += turn.record.lines
            if place % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        return TranscriptResponse(
            lines=tuple(map(shown, _around(lines, request))),
            total=len(lines),
            position=position(opened.position),
        )


async def retelling(opened: OpenNamespace, erased: Sequence[bytes]) -> list[bytes]:
    """Return the ids of turns that repeat what is about to be erased, except those that the log erases by itself.

    These are the turns of the memories that an erased memory was derived from, and the turns in which its text occurs. The
    log itself erases turns that have an erased memory among their sources.
    """
    going = frozenset(erased)
    memories = [state for one in erased if (state := opened.state(one)) and not opened.is_turn(one)]
    made_of = {source for memory in memories for source in memory.sources}
    texts = {
        normal_text(clip(one_line(known.text), _MOST_SAID)) for one in erased if (known := opened.record(one))
    }
    # Long texts and non-ASCII ones match anywhere in a line, short ones only as whole words.
    anywhere = [text for text in texts if len(text) >= _LONG or not text.isascii()]
    words = [text for text in texts.difference(anywhere) if text]
    pace = max(1, _AT_ONCE // (1 + len(texts) // 20))
    found = []
    for place, turn in enumerate(opened.turns()):
        if not going.isdisjoint(turn.state.sources):
            continue
        if not made_of.isdisjoint(turn.state.sources) or _tells(turn, anywhere, words):
            found.append(turn.id)
        if place % pace == pace - 1:
            await asyncio.sleep(0)
    return found


def _tells(turn: OpenedMemory, anywhere: Sequence[str], words: Sequence[str]) -> bool:
    lines = [normal_text(line.text) for line in turn.record.lines]
    return any(text in line for line in lines for text in anywhere) or any(
        _has_word(line, text) for line in lines for text in words
    )


def _has_word(line: str, word: str) -> bool:
    """Return whether a line contains a text with no letter, digit or underscore next to it.

    A regular expression would stay in the cache of `re`, and with it a text that is to be erased.
    """
    at = line.find(word)
    while at >= 0:
        around = line[at - 1 : at] + line[at + len(word) : at + len(word) + 1]
        if not any(char.isalnum() or char == "_" for char in around):
            return True
        at = line.find(word, at + 1)
    return False


def _lines(turns: Sequence[TurnItem]) -> Iterator[ops.Line]:
    for item in turns:
        if item.role not in SPOKEN_ROLES or item.suspect:
            continue
        # Cut first, so that a huge text is not normalized as a whole. If most of it is white space, fewer characters are stored.
        text = clip(one_line(item.text[: 4 * _MOST_SAID]), _MOST_SAID)
        if text:
            yield ops.Line(item.role, text, item.occurred_at, item.id or "")
        for name in item.calls:
            called = clip(f"(called {one_line(name) or 'a tool'})", _MOST_CALLED)
            yield ops.Line(Role.ASSISTANT, called, item.occurred_at, item.id or "", call=True)


def may_be_read(opened: OpenNamespace, turn: ops.RecordState, now: int) -> bool:
    """Return whether a stored turn is live and none of its memories is missing, forgotten or expired; ``now`` is in ms."""
    memories = [opened.state(one) for one in turn.sources]
    return turn.live_at(now) and all(
        one is not None
        and one.status is not Status.FORGOTTEN
        and (one.expires_at is None or one.expires_at > now)
        for one in memories
    )


def _around(lines: Sequence[ops.Line], request: TranscriptRequest) -> Sequence[ops.Line]:
    end = len(lines)
    if request.anchor is not None or request.at is not None:
        anchor, at = request.anchor, request.at
        # The first line with the anchor's id, or else the last line up to the time.
        places = [index for index, line in enumerate(lines) if anchor and line.message_id == anchor][:1]
        if not places and at is not None:
            times = enumerate(line.occurred_at for line in lines)
            places = [index for index, time in times if time is not None and time <= at]
        if not places:
            return ()
        end = min(len(lines), places[-1] + request.limit // 2 + 1)
    return lines[max(0, end - request.limit) : end]


def shown(line: ops.Line) -> TranscriptLine:
    """Return a line as the response shows it."""
    return TranscriptLine(
        role="user" if line.role is Role.USER else "assistant",
        text=line.text,
        occurred_at=line.occurred_at,
        id=line.message_id,
        call=line.call,
    )
