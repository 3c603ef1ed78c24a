"""What there is to know at a glance: a profile, what should stand in every prompt, the newest memories, an account's namespaces.

A profile is made anew for every request and never stored, so there is nothing to erase and nothing to go stale. No model
is asked: what stands in it was said. The same memories give the same document, whoever asks and whenever, so that it can
stand in the part of a prompt that a provider caches; only a memory's end of life changes it without a new entry.

What should stand in every prompt of a session is made likewise, of the same memories: what could harm the person, how to answer
them, who they are. What a memory says of this is told by its form alone (`relayer.search.essentials`), once while the namespace is
open, newest first; a request whose time is nearly up answers with what was looked at, and the next goes on.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from itertools import chain
from typing import Final, NamedTuple

from relayer.access.accounts import Access, Principal
from relayer.domain.namespace import Pointer, PointerState
from relayer.domain.operations import Kind, Record, Trust
from relayer.errors import Refused
from relayer.lib.work import Deadline
from relayer.log import creation
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.records import Memory, is_heard
from relayer.search.essentials import CLASSES, Essential
from relayer.wire import codec as base64url
from relayer.wire import codec as ulid
from relayer.wire import schemas
from relayer.wire.errors import Malformed
from relayer.wire.fields import clip, one_line
from relayer.wire.memories import ContextDay, ContextResponse
from relayer.wire.service import (
    INTRODUCTION,
    SECTIONS,
    ProfileLine,
    ProfileResponse,
    ProfileSection,
    SectionName,
    StandingLine,
    StandingResponse,
    heading,
    item,
    render,
)
from relayer.wire.signing import Right
from relayer.writing.present import PAGE_BYTES, encoded_size, page_of, position, show

# A summary tells of a session, whose memories stand for themselves.
_SECTION_OF: Final[dict[Kind, SectionName]] = {
    Kind.PROFILE: "user",
    Kind.FACT: "user",
    Kind.PREFERENCE: "preferences",
    Kind.DECISION: "decisions",
    Kind.TASK: "tasks",
    Kind.EVENT: "events",
    Kind.STATEMENT: "notes",
    Kind.IMPORTED: "notes",
}
_DISTANCE: Final = {trust: place for place, trust in enumerate(Trust)}
_BYTES_PER_TOKEN = 4  # as in a recall's budget
# A longer text is a page, of which a search finds what is needed; one that somebody pinned may be as long as fits.
_LONGEST = 600
_AT_ONCE = 100
# So many that do not fit, one after the other, and the document is full.
_MISSES = 100
# A namespace that is written to this fast is read in one go in the end.
_TRIES = 3


class _Candidate(NamedTuple):
    """A memory that may stand in the profile, without its text: there may be very many.

    ``place`` is the one in the log; ``rank`` begins with what is not pinned, and the smallest is the best.
    """

    rank: tuple[bool, float, int, int, int]
    place: int
    record: bytes
    trust: Trust


@dataclass(slots=True)
class _Choice:
    """What a namespace has for a profile at a time in ms; no audiences or trusts means all.

    ``outdone`` holds, of memories that a newer one contradicts, how far from the user the nearest such voice is;
    ``retold`` those that a fact was made from.
    """

    now: int
    audiences: Collection[str]
    trusts: Collection[str]
    candidates: list[_Candidate] = field(default_factory=list)
    outdone: dict[bytes, int] = field(default_factory=dict)
    retold: set[bytes] = field(default_factory=set)

    def look_at(self, place: int, memory: Memory | None) -> None:
        """Take a memory in, if it may stand in the profile or keeps another one out of it."""
        if memory is None or not self._passes(memory):
            return
        record, state = memory.record, memory.state
        if len(record.text) > _LONGEST and not record.pinned:
            return  # what is too long to stand here takes nothing else away
        # Importance to a tenth: it is an estimate, and what was said again should count among about equals.
        importance = -round(record.importance, 1)
        rank = (not record.pinned, importance, -state.reinforced, -memory.active_at, -place)
        self.candidates.append(_Candidate(rank, place, record.id, record.trust))
        self.retold.update(state.sources)
        for other in record.contradicts:
            distance = min(_DISTANCE[record.trust], self.outdone.get(other, len(_DISTANCE)))
            self.outdone[other] = distance

    def best_first(self) -> list[_Candidate]:
        """Return what nothing newer stands for, best first."""
        return sorted(one for one in self.candidates if not one.rank[0] or self._stands(one))

    def _passes(self, memory: Memory) -> bool:
        record = memory.record
        if record.suspect or record.kind not in _SECTION_OF or not memory.state.live_at(self.now):
            return False
        if (record.valid_from is not None and self.now < record.valid_from) or (
            record.valid_to is not None and record.valid_to <= self.now
        ):
            return False
        return _is_among(record, self.audiences, self.trusts)

    def _stands(self, one: _Candidate) -> bool:
        # What an assistant says against the user's own words does not take them away.
        outdone = self.outdone.get(one.record)
        return one.record not in self.retold and (outdone is None or outdone > _DISTANCE[one.trust])


def _is_among(record: Record, audiences: Collection[str], trusts: Collection[str]) -> bool:
    return (not audiences or is_heard(record, audiences)) and (not trusts or record.trust in trusts)


async def profile(
    ctx: Context,
    access: Access,
    *,
    max_tokens: int,
    audiences: Sequence[str],
    trusts: Sequence[str],
    deadline: Deadline,
) -> ProfileResponse:
    """Return the profile of a namespace, within a budget.

    Memories are chosen by pinned, importance, how often they were said again, and how lately; each goes in whole or not
    at all. Of two that contradict each other the newer stands, and a fact stands for the words it was taken from.

    The budget is of the whole document, at four bytes a token; no audiences or trusts means all.

    Raises:
        RelayerError: as `relayer.namespaces.cache.OpenNamespaces.use_if_exists` and the log.
    """
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return ProfileResponse(document="", sections=(), shown=0, total=0)
        await opened.refresh(deadline)
        async with deadline.step("read"):
            found = await _candidates(opened, ctx.clock.now_ms(), audiences, trusts)
        chosen = _choose(opened, found, max_tokens * _BYTES_PER_TOKEN)
        sections = _in_sections(chosen)
        return ProfileResponse(
            document=render(sections),
            sections=sections,
            shown=len(chosen),
            total=len(found),
            position=position(opened.position),
        )


async def _candidates(
    opened: OpenNamespace, now: int, audiences: Sequence[str], trusts: Sequence[str]
) -> list[_Candidate]:
    """Return the memories to choose from, best first, all as of one position of the log."""
    tries = 0
    while True:
        at, choice = opened.position, _Choice(now, audiences, trusts)
        tries += 1
        for place, one in enumerate(opened.ids()):
            if tries <= _TRIES and place % _AT_ONCE == 0:
                # Other requests go on meanwhile; one of them may bring a newer entry.
                await asyncio.sleep(0)
            choice.look_at(place, opened.memory(one))
        if opened.position == at:
            return choice.best_first()


def _choose(
    opened: OpenNamespace, candidates: Iterable[_Candidate], room: int
) -> list[tuple[int, SectionName, ProfileLine]]:
    """Return what fits, each text once, with its place in the log."""
    room -= len(INTRODUCTION.encode())
    chosen: list[tuple[int, SectionName, ProfileLine]] = []
    begun: set[SectionName] = set()
    said: set[tuple[str, str]] = set()
    misses = 0
    for one in candidates:
        record = opened.record(one.record)
        text = "" if record is None else one_line(record.text)
        if record is None or not text:
            continue
        name, line = _SECTION_OF[record.kind], _line(record, text)
        words = (line.speaker, text.casefold())
        if words in said:
            continue
        needed = len(item(line).encode()) + (0 if name in begun else len(heading(name).encode()))
        if needed > room:
            misses += 1
            if misses == _MISSES:
                break
            continue
        misses = 0
        room -= needed
        begun.add(name)
        said.add(words)
        chosen.append((one.place, name, line))
    return chosen


def _line(record: Record, text: str) -> ProfileLine:
    return ProfileLine(
        id=ulid.render(record.id),
        text=text,
        speaker=one_line(record.source.speaker),
        kind=record.kind.value,
        audience=record.audience.value,
        trust=record.trust.value,
        pinned=record.pinned,
        place=record.source.place,
        sender=record.source.sender,
    )


def _in_sections(chosen: Iterable[tuple[int, SectionName, ProfileLine]]) -> tuple[ProfileSection, ...]:
    """Group lines, each section in the order of the log: what is added stands at its end, after what a cache knows."""
    lines: dict[SectionName, list[tuple[int, ProfileLine]]] = defaultdict(list)
    for place, name, line in chosen:
        lines[name].append((place, line))
    return tuple(
        ProfileSection(
            name=name, lines=tuple(line for _, line in sorted(lines[name], key=lambda one: one[0]))
        )
        for name in SECTIONS
        if name in lines
    )


_LONGEST_LINE = 120
# Looked at between two turns of the others: a few milliseconds.
_AT_ONE_TURN = 20
# Of the time that is left when looking begins; the rest is for the answer.
_SHARE = 0.6


async def standing(
    ctx: Context,
    access: Access,
    *,
    lines: int,
    audiences: Sequence[str],
    trusts: Sequence[str],
    deadline: Deadline,
) -> StandingResponse:
    """Return what should stand in every prompt: dangers first, then wishes about answers, then who the person is.

    Of each kind what is pinned comes first, then what is newest; a text that says no word that a line before it does not say is
    left out.

    Args:
        ctx: the relayer.
        access: the way into the namespace.
        lines: how many at most.
        audiences: only these; none means all.
        trusts: likewise.
        deadline: of the request.

    Raises:
        RelayerError: as `relayer.namespaces.cache.OpenNamespaces.use_if_exists` and the log.
    """
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return StandingResponse(lines=())
        await opened.refresh(deadline)
        async with deadline.step("read"):
            chosen = await _candidates(opened, ctx.clock.now_ms(), audiences, trusts)
            found, complete = await _look(opened, chosen, deadline)
        ordered = chain.from_iterable(found[kind] for kind in CLASSES[1:])
        return StandingResponse(
            lines=tuple(_distinct(opened, ordered))[:lines],
            complete=complete,
            position=position(opened.position),
        )


async def _look(
    opened: OpenNamespace, chosen: Iterable[_Candidate], deadline: Deadline
) -> tuple[dict[str, list[tuple[bytes, Essential]]], bool]:
    """Return by class what matters, pinned first and then newest first, and whether everything was looked at."""
    found: dict[str, list[tuple[bytes, Essential]]] = {kind: [] for kind in CLASSES}
    reserve = deadline.remaining() * (1 - _SHARE)
    for number, one in enumerate(sorted(chosen, key=lambda one: (one.rank[0], -one.place))):
        if number % _AT_ONE_TURN == 0:
            await asyncio.sleep(0)
            if deadline.remaining() < reserve:
                return found, False
        kind = opened.essential(one.record)
        if kind is not None:
            found[kind].append((one.record, kind))
    return found, True


def _distinct(opened: OpenNamespace, ordered: Iterable[tuple[bytes, Essential]]) -> Iterator[StandingLine]:
    said: list[frozenset[str]] = []
    for record_id, kind in ordered:
        record = opened.record(record_id)
        line = None if record is None else _standing_line(record, kind)
        words = frozenset() if line is None else frozenset(line.text.casefold().rstrip(".!").split())
        if line is not None and words and not any(words <= other for other in said):
            said.append(words)
            yield line


def _standing_line(record: Record, about: Essential) -> StandingLine:
    return StandingLine(
        id=ulid.render(record.id),
        text=clip(one_line(record.text), _LONGEST_LINE),
        speaker=one_line(record.source.speaker),
        kind=record.kind.value,
        audience=record.audience.value,
        trust=record.trust.value,
        pinned=record.pinned,
        place=record.source.place,
        sender=record.source.sender,
        about=about,
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def newest_days(
    ctx: Context,
    access: Access,
    *,
    days: int,
    items: int,
    offset_minutes: int,
    audiences: Sequence[str],
    trusts: Sequence[str],
    deadline: Deadline,
) -> ContextResponse:
    """Return the newest memories of the newest days, by when they happened or else were stored.

    Of each of so many ``days`` that have memories so many ``items``; ``offset_minutes``, of the reader's clock from UTC, says
    where a day begins. No audiences or trusts means all.
    """
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return ContextResponse(days=(), total=0)
        await opened.refresh(deadline)
        place = timezone(timedelta(minutes=offset_minutes))
        by_day: dict[str, list[Memory]] = defaultdict(list)
        total = 0
        for memory in _live(opened, ctx.clock.now_ms()):
            record = memory.record
            total += 1
            if _is_among(record, audiences, trusts):
                said = _EPOCH + timedelta(milliseconds=record.said_at)
                by_day[said.astimezone(place).date().isoformat()].append(memory)
        newest = sorted(by_day, reverse=True)[:days]
        return ContextResponse(
            days=tuple(_days({day: by_day[day] for day in newest}, items)),
            total=total,
            position=position(opened.position),
        )


def _live(opened: OpenNamespace, now: int) -> Iterator[Memory]:
    """Yield what recall could return without being asked for more; what lies ahead is no news yet."""
    for memory in opened.memories():
        record = memory.record
        is_past = record.occurred_at is None or record.occurred_at <= now
        if is_past and memory.state.live_at(now) and not record.suspect:
            yield memory


def _days(by_day: Mapping[str, list[Memory]], items: int) -> Iterator[ContextDay]:
    """Show the newest of each day, as far as one answer has room for them: of the oldest day the oldest ones are left out."""
    room = PAGE_BYTES
    for day, said in by_day.items():
        # Sorted by time alone: what was said in one instant keeps the log's order.
        ordered = sorted(said, key=lambda memory: memory.record.said_at)[-items:]
        newest = page_of(map(show, reversed(ordered)), room)
        yield ContextDay(date=day, memories=newest[::-1], total=len(said))
        room -= sum(map(encoded_size, newest))
        if room <= 0:
            return


# What a cursor of this listing begins with.
_CURSOR = "tag:"
# Records counted between two turns of the others: well below a millisecond.
_AT_A_TIME = 256


async def list_namespaces(
    ctx: Context, principal: Principal, *, limit: int, cursor: str | None, deadline: Deadline
) -> schemas.NamespacesResponse:
    """List the namespaces that the certificate lets its holder read, in no order that means anything.

    Only the pointers of the page are opened: it has fewer namespaces where others lie among them that are not covered.

    Raises:
        Refused: ``bad_cursor``.
    """
    after = _parse_cursor(cursor)
    async with deadline.step("list"):
        pointers, last = await creation.page_pointers(ctx.ports, principal.account, after=after, limit=limit)
        visible = [
            pointer
            for pointer in sorted(pointers, key=lambda pointer: pointer.name)
            if pointer.state is not PointerState.ERASED and principal.may(pointer.name, Right.READ)
        ]
        views = [await _show(ctx, principal.account, pointer) for pointer in visible]
    next_cursor = base64url.encode((_CURSOR + last).encode()) if last else None
    return schemas.NamespacesResponse(namespaces=tuple(views), next_cursor=next_cursor)


async def _show(ctx: Context, account: str, pointer: Pointer) -> schemas.NamespaceView:
    opened = ctx.namespaces.peek(account, pointer.name)
    memories, size = (None, None) if opened is None else await _live_namespaces(opened, ctx.clock.now_ms())
    return schemas.NamespaceView.model_validate(
        {
            "name": pointer.name,
            "custody": pointer.custody.value,
            "generation": pointer.generation,
            "state": pointer.state.value,
            "created_at": pointer.created_at,
            "memories": memories,
            "bytes": size,
            "last_used_at": (opened.last_time or None) if opened is not None else None,
        }
    )


async def _live_namespaces(opened: OpenNamespace, now: int) -> tuple[int, int]:
    """Count an open namespace's live memories and their bytes, in steps: it may have more than one turn of the loop takes."""
    memories = size = 0
    for number, record in enumerate(opened.ids()):
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)
        one = opened.state(record)
        if one is not None and one.live_at(now):
            memories += not opened.is_turn(record)
            size += one.size
    return memories, size


def _parse_cursor(cursor: str | None) -> str:
    try:
        decoded = base64url.decode(cursor).decode("ascii") if cursor is not None else _CURSOR
    except (Malformed, UnicodeDecodeError):
        decoded = ""
    if not decoded.startswith(_CURSOR):
        raise Refused("bad_cursor", "cursor must be the next_cursor of an earlier page")
    return decoded.removeprefix(_CURSOR)
