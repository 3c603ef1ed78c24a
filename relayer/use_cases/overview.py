"""Overviews that need no query: a profile, the lines for every prompt, the newest memories, and an account's namespaces.

`profile` composes a document from the most important memories for every request and never stores it, so it cannot become stale
and need not be erased. No model is asked, so every line of it was said. The same memories give the same document for every
client and at any time, so that it can be part of a prompt prefix that a provider caches; without a new entry, only the expiry of
a memory changes it.

`standing` selects lines for every prompt of a session from the same memories: what could harm the person or others, how to
respond to them, and who they are. `relayer.search.essentials` says which they are, once while the namespace is open. If
the time of a request is nearly up, it returns what was classified so far, and the next request continues. `newest_days` and
`list_namespaces` return the newest memories by day and a page of namespaces.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Final, NamedTuple

from relayer.access.accounts import Access, Principal
from relayer.domain.namespace import Pointer, PointerState
from relayer.domain.operations import Record
from relayer.errors import Refused
from relayer.extraction.persons import other_person
from relayer.lib.marking_words import Essential
from relayer.lib.work import Deadline
from relayer.log import creation
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.records import OpenedMemory, Wish, is_heard, kept_out_by
from relayer.search.essentials import essential_of
from relayer.search.terms import named_days
from relayer.wire import codec as base64url
from relayer.wire import codec as ulid
from relayer.wire import service as wire
from relayer.wire.codec import Malformed
from relayer.wire.fields import Kind, Trust, one_line
from relayer.wire.labels import PROJECTS, decode_metadata
from relayer.wire.schemas import ContextDay, ContextResponse, with_replaced
from relayer.wire.service import NamespacesResponse, NamespaceView
from relayer.wire.signing import Right
from relayer.writing.merging import said_before
from relayer.writing.present import PAGE_BYTES, encoded_size, page_of, position, show

# Summaries are left out, because a session's memories have lines of their own.
_SECTION_OF: Final[dict[Kind, wire.SectionName]] = {
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
# The same estimate as for a recall's token budget.
_BYTES_PER_TOKEN = 4
# Maximum characters of a memory in a profile, unless it is pinned. The relevant part of a longer text is found by a search.
_LONGEST = 600
# Other tasks run after this many memories.
_AT_ONCE = 100
# The document is full if this many memories in a row do not fit.
_MISSES = 100
# If the log changes during this many attempts, the next attempt reads the namespace without letting other tasks run.
_TRIES = 3


class _Candidate(NamedTuple):
    """A memory that may be part of the profile, without its text, because there may be very many.

    ``place`` is its index in the log. ``rank`` is a sort key whose smallest value is the best; it begins with whether the memory
    is not pinned.
    """

    rank: tuple[bool, float, int, int, int]
    place: int
    record: bytes
    trust: Trust


@dataclass(slots=True)
class _Choice:
    """The selection of memories for a profile.

    Attributes:
        now: in ms since the epoch.
        audiences: only memories for these; empty for all.
        trusts: only memories of these; empty for all.
        outdone: for each memory that others contradict, the most trusted of those, as an index in `_DISTANCE`; 0 is the user.
        wishes: the wishes not to be reminded, which keep memories out.
        retold: the memories that a fact was derived from.
    """

    now: int
    audiences: Collection[str]
    trusts: Collection[str]
    wishes: Sequence[Wish] = ()
    candidates: list[_Candidate] = field(default_factory=list)
    outdone: dict[bytes, int] = field(default_factory=dict)
    retold: set[bytes] = field(default_factory=set)

    def look_at(self, place: int, memory: OpenedMemory | None) -> None:
        """Add a memory if it may be part of the profile, and record which other memories it keeps out."""
        if memory is None or not self._passes(memory):
            return
        record, state = memory.record, memory.state
        if len(record.text) > _LONGEST and not record.pinned:
            return  # A memory that is too long for the profile keeps no other one out.
        # Importance is an estimate. It is rounded to a tenth, so that repetitions decide between about equal ones.
        importance = -round(record.importance, 1)
        rank = (not record.pinned, importance, -state.reinforced, -memory.active_at, -place)
        if not kept_out_by(record, self.wishes):
            self.candidates.append(_Candidate(rank, place, record.id, record.trust))
        self.retold.update(state.sources)
        for other in record.contradicts:
            distance = min(_DISTANCE[record.trust], self.outdone.get(other, len(_DISTANCE)))
            self.outdone[other] = distance

    def best_first(self) -> list[_Candidate]:
        """Return the candidates, best first, without those that a fact or a contradicting memory already represents."""
        return sorted(one for one in self.candidates if not one.rank[0] or self._stands(one))

    def _passes(self, memory: OpenedMemory) -> bool:
        record = memory.record
        if record.suspect or record.kind not in _SECTION_OF or not memory.state.live_at(self.now):
            return False
        begins, ends = record.valid_from, record.valid_to
        if (begins is not None and self.now < begins) or (ends is not None and ends <= self.now):
            return False
        return _is_among(record, self.audiences, self.trusts)

    def _stands(self, one: _Candidate) -> bool:
        # A memory is kept out only by a contradiction of at least its own trust: an assistant cannot overrule the user's words.
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
) -> wire.ProfileResponse:
    """Return the profile of a namespace, within a token budget.

    Memories are chosen by whether they are pinned, by importance, by how often they were repeated, and by how recent they are.
    None is cut. Of two that contradict each other, the newer one is chosen, and a fact replaces the words that it was derived
    from.

    ``max_tokens`` is the budget of the whole document, at four bytes per token. Only memories for the ``audiences`` and of the
    ``trusts`` are chosen; empty for all.
    """
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return wire.ProfileResponse(document="", sections=(), shown=0, total=0)
        await opened.refresh(deadline)
        async with deadline.step("read"):
            found = await _candidates(opened, ctx.clock.now_ms(), audiences, trusts)
        chosen = _choose(opened, found, max_tokens * _BYTES_PER_TOKEN)
        # Group lines into sections, each in the order of the log, so that new lines come after those that a provider has cached.
        lines: dict[wire.SectionName, list[wire.ProfileLine]] = defaultdict(list)
        for _, name, line in sorted(chosen, key=lambda one: one[0]):
            lines[name].append(line)
        sections = tuple(
            wire.ProfileSection(name=name, lines=tuple(lines[name]))
            for name in wire.SECTIONS
            if name in lines
        )
        return wire.ProfileResponse(
            document=wire.render(sections),
            sections=sections,
            shown=len(chosen),
            total=len(found),
            position=position(opened.position),
        )


async def _candidates(
    opened: OpenNamespace, now: int, audiences: Sequence[str], trusts: Sequence[str]
) -> list[_Candidate]:
    """Return the candidates, best first, all as of one position in the log."""
    tries = 0
    while True:
        at, choice = opened.position, _Choice(now, audiences, trusts, opened.wishes(audiences, trusts, now))
        tries += 1
        for place, one in enumerate(opened.ids()):
            if tries <= _TRIES and place % _AT_ONCE == 0:
                # Let other requests run. One of them may append an entry, which starts another attempt.
                await asyncio.sleep(0)
            choice.look_at(place, opened.memory(one))
        if opened.position == at:
            return choice.best_first()


def _choose(
    opened: OpenNamespace, candidates: Iterable[_Candidate], room: int
) -> list[tuple[int, wire.SectionName, wire.ProfileLine]]:
    """Return the lines that fit ``room`` bytes, without repeated texts, each with its index in the log and its section."""
    room -= len(wire.INTRODUCTION.encode())
    chosen: list[tuple[int, wire.SectionName, wire.ProfileLine]] = []
    begun: set[wire.SectionName] = set()
    said: set[tuple[str, str]] = set()
    misses = 0
    for one in candidates:
        memory = opened.memory(one.record)
        text = "" if memory is None else one_line(memory.told)
        if memory is None or not text:
            continue
        name, line = _SECTION_OF[memory.record.kind], _line(memory.record, text)
        words = (line.speaker, text.casefold())
        if words in said:
            continue
        needed = len(wire.item(line).encode()) + (0 if name in begun else len(wire.heading(name).encode()))
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


def _line(record: Record, text: str) -> wire.ProfileLine:
    return wire.ProfileLine(
        id=ulid.render(record.id),
        text=text,
        speaker=one_line(record.source.speaker),
        kind=record.kind,
        audience=record.audience,
        trust=record.trust,
        pinned=record.pinned,
        place=record.source.place,
        sender=record.source.sender,
    )


# Other tasks run after this many memories, which take a few milliseconds.
_AT_ONE_TURN = 20
# Share of the remaining time that classifying memories may take. The rest is for the response.
_SHARE = 0.6
_HARM_TO_OTHERS: Final = "harm to others"
_PERHAPS_HARM: Final = "perhaps harm"
# How many memories of each class come in one turn. The person's own dangers and wishes come before the rest, and of dangers those
# that the form of the text marks as well: newer ones that only a model takes for such must not keep out an allergy.
_TURN: Final = {"harm": 2, _PERHAPS_HARM: 1, "style": 2, "identity": 1, _HARM_TO_OTHERS: 1}


async def standing(
    ctx: Context,
    access: Access,
    *,
    lines: int,
    audiences: Sequence[str],
    trusts: Sequence[str],
    deadline: Deadline,
) -> wire.StandingResponse:
    """Return the lines for every prompt: dangers, wishes about responses, who the person is, and dangers to others.

    The classes take turns in the shares of `_TURN`, so that none fills the prompt alone. Within each, pinned memories come first,
    then the newest ones. A memory is left out if all of its words occur in one line before it.

    There are at most ``lines``, of memories for the ``audiences`` and of the ``trusts``; empty for all.
    """
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return wire.StandingResponse(lines=())
        await opened.refresh(deadline)
        async with deadline.step("read"):
            chosen = await _candidates(opened, ctx.clock.now_ms(), audiences, trusts)
            found, complete = await _look(opened, chosen, deadline)
            wishes = opened.wishes(audiences, trusts, ctx.clock.now_ms())
        return wire.StandingResponse(
            lines=tuple(_distinct(opened, _in_turns(found), {one.record for one in chosen}, wishes))[:lines],
            complete=complete,
            position=position(opened.position),
        )


async def _look(
    opened: OpenNamespace, chosen: Iterable[_Candidate], deadline: Deadline
) -> tuple[dict[str, list[tuple[bytes, Essential]]], bool]:
    """Return the memories of each class, pinned ones first and then newest first, and whether all could be classified in time."""
    found: dict[str, list[tuple[bytes, Essential]]] = {kind: [] for kind in _TURN}
    reserve = deadline.remaining() * (1 - _SHARE)
    for number, one in enumerate(sorted(chosen, key=lambda one: (one.rank[0], -one.place))):
        if number % _AT_ONE_TURN == 0:
            await asyncio.sleep(0)
            if deadline.remaining() < reserve:
                return found, False
        kind = opened.essential(one.record)
        memory = None if kind is None else opened.memory(one.record)
        if kind is not None and memory and PROJECTS not in decode_metadata(memory.record.metadata):
            found[_turn_of(memory, kind)].append((one.record, kind))
    return found, True


def _turn_of(memory: OpenedMemory, kind: Essential) -> str:
    """Return the class of `_TURN` with which a memory takes turns."""
    if kind != "harm":
        return kind
    if other_person(memory.text):
        return _HARM_TO_OTHERS
    return kind if memory.record.pinned or essential_of(memory.text) == kind else _PERHAPS_HARM


def _in_turns(found: Mapping[str, list[tuple[bytes, Essential]]]) -> Iterator[tuple[bytes, Essential]]:
    """Yield the memories of all classes in turns of `_TURN`."""
    left = {kind: deque(found[kind]) for kind in _TURN}
    while any(left.values()):
        for kind, share in _TURN.items():
            yield from (left[kind].popleft() for _ in range(min(share, len(left[kind]))))


def _distinct(
    opened: OpenNamespace,
    ordered: Iterable[tuple[bytes, Essential]],
    allowed: Collection[bytes],
    wishes: Sequence[Wish],
) -> Iterator[wire.StandingLine]:
    said: list[frozenset[str]] = []
    for record, kind in ordered:
        number = opened.key_of(record)
        # Newer memories that may end this one are told before it: no dose is told without the newer one.
        newer = () if number is None else map(opened.id_of_hit, opened.newer_beside(number))
        for record_id in (*(one for one in newer if one in allowed), record):
            memory = opened.memory(record_id)
            text = "" if memory is None else one_line(memory.told)
            words = frozenset(text.casefold().rstrip(".!").split())
            if memory is not None and words and not any(words <= other for other in said):
                said.append(words)
                key = opened.key_of(record_id)
                former = None if key is None else said_before(opened, key)
                if former is not None and not kept_out_by(former.record, wishes):
                    text = one_line(with_replaced(text, (), former.text))
                yield wire.StandingLine(**dict(_line(memory.record, text)), about=kind)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A memory names a coming day if it is today or one of the 27 days after it.
_COMING = timedelta(days=28)
# The number of newest memories in which days ahead are looked for. Reading one that names a day takes about a millisecond.
_LOOKED_THROUGH = 2_000


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
    """Return the newest memories of the newest days, by when they happened or else were stored, and those that name a coming day.

    Days without memories do not count. ``items`` limits the memories of one day, and those that name a coming day.
    ``offset_minutes`` is the offset of the reader's time zone from UTC, which says when a day begins. Empty ``audiences`` and
    ``trusts`` mean all.
    """
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return ContextResponse(days=(), total=0)
        await opened.refresh(deadline)
        place = timezone(timedelta(minutes=offset_minutes))
        by_day: dict[str, list[OpenedMemory]] = defaultdict(list)
        newest_of_all: deque[OpenedMemory] = deque(maxlen=_LOOKED_THROUGH)
        total, now = 0, ctx.clock.now_ms()
        for memory in opened.memories():
            # What a recall returns by default, without what happens later than now.
            record = memory.record
            is_past = record.occurred_at is None or record.occurred_at <= now
            if record.suspect or not is_past or not memory.state.live_at(now):
                continue
            total += 1
            if _is_among(record, audiences, trusts):
                newest_of_all.append(memory)
                said = _EPOCH + timedelta(milliseconds=record.said_at)
                by_day[said.astimezone(place).date().isoformat()].append(memory)
        wishes = opened.wishes(audiences, trusts, now)
        newest: list[str] = []
        for day in sorted(by_day, reverse=True):
            by_day[day] = [one for one in by_day[day] if not kept_out_by(one.record, wishes)]
            newest += [day] if by_day[day] else []
            if len(newest) == days:
                break
            await asyncio.sleep(0)
        at = position(opened.position)
        told = [one for one in newest_of_all if not kept_out_by(one.record, wishes)]
        coming = page_of(map(show, (await _coming(told, now, place, deadline))[:items]), PAGE_BYTES // 2)
        room = PAGE_BYTES - sum(map(encoded_size, coming))
        return ContextResponse(
            days=tuple(_days({day: by_day[day] for day in newest}, items, room)),
            total=total - (len(newest_of_all) - len(told)),
            position=at,
            coming=coming,
        )


async def _coming(
    memories: Sequence[OpenedMemory], now: int, place: timezone, deadline: Deadline
) -> list[OpenedMemory]:
    """Return the memories that name a coming day, the soonest first, of one day the newest first.

    ``memories`` are oldest first; if the time is nearly up, only the newest of them are read. ``now`` is in ms, and ``place``
    the reader's time zone.
    """
    reserve = deadline.remaining() * (1 - _SHARE)
    today = (_EPOCH + timedelta(milliseconds=now)).astimezone(place).date()
    found: list[tuple[date, int, OpenedMemory]] = []
    for number, memory in enumerate(reversed(memories)):
        if number % _AT_ONE_TURN == 0:
            await asyncio.sleep(0)
            if deadline.remaining() < reserve:
                break
        said = (_EPOCH + timedelta(milliseconds=memory.record.said_at)).astimezone(place).date()
        days = [
            day for time in named_days(memory.text, now, said) if (day := time.first_day(said)) is not None
        ]
        found += [(day, number, memory) for day in sorted(days) if today <= day < today + _COMING][:1]
    return [memory for _, _, memory in sorted(found, key=lambda one: one[:2])]


def _days(by_day: Mapping[str, list[OpenedMemory]], items: int, room: int) -> Iterator[ContextDay]:
    """Yield the newest memories of each day that fit ``room`` bytes. If they are full, older memories and days are left out."""
    for day, said in by_day.items():
        # Sorting is stable, so memories of the same time keep the order of the log.
        ordered = sorted(said, key=lambda memory: memory.record.said_at)[-items:]
        newest = page_of(map(show, reversed(ordered)), room)
        yield ContextDay(date=day, memories=newest[::-1], total=len(said))
        room -= sum(map(encoded_size, newest))
        if room <= 0:
            return


# Prefix of the cursors of this listing.
_CURSOR = "tag:"
# Other tasks run after this many records, which take well below a millisecond.
_AT_A_TIME = 256


async def list_namespaces(
    ctx: Context, principal: Principal, *, limit: int, cursor: str | None, deadline: Deadline
) -> NamespacesResponse:
    """List the namespaces that the principal's certificate allows to read, in no meaningful order.

    Only the pointers of the page are read, so a page may have fewer namespaces than ``limit`` if the certificate does not
    cover all of them. Raises `Refused`: ``bad_cursor``.
    """
    try:
        decoded = base64url.decode(cursor).decode("ascii") if cursor is not None else _CURSOR
    except (Malformed, UnicodeDecodeError):
        decoded = ""
    if not decoded.startswith(_CURSOR):
        raise Refused("bad_cursor", "cursor must be the next_cursor of an earlier page")
    after = decoded.removeprefix(_CURSOR)
    async with deadline.step("list"):
        pointers, last = await creation.page_pointers(ctx.ports, principal.account, after=after, limit=limit)
        visible = [
            pointer
            for pointer in sorted(pointers, key=lambda pointer: pointer.name)
            if pointer.state is not PointerState.ERASED and principal.may(pointer.name, Right.READ)
        ]
        views = [await _show(ctx, principal.account, pointer) for pointer in visible]
    next_cursor = base64url.encode((_CURSOR + last).encode()) if last else None
    return NamespacesResponse(namespaces=tuple(views), next_cursor=next_cursor)


async def _show(ctx: Context, account: str, pointer: Pointer) -> NamespaceView:
    opened = ctx.namespaces.peek(account, pointer.name)
    memories, size = (None, None) if opened is None else await _live_namespaces(opened, ctx.clock.now_ms())
    return NamespaceView.model_validate(
        {
            "name": pointer.name,
            "custody": pointer.custody.value,
            "generation": pointer.generation,
            "next_generation": pointer.next_generation or None,
            "state": pointer.state.value,
            "created_at": pointer.created_at,
            "memories": memories,
            "bytes": size,
            "last_used_at": (opened.last_time or None) if opened is not None else None,
        }
    )


async def _live_namespaces(opened: OpenNamespace, now: int) -> tuple[int, int]:
    """Return the number of live memories of an open namespace, and their bytes including those of stored turns.

    Other tasks run in between, because counting a large namespace would block the event loop.
    """
    memories = size = 0
    for number, record in enumerate(opened.ids()):
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)
        one = opened.state(record)
        if one is not None and one.live_at(now):
            memories += not opened.is_turn(record)
            size += one.size
    return memories, size
