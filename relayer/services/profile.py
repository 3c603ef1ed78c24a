"""A profile of the user and their work, chosen from what is live now.

It is made anew for every request and never stored, so there is nothing to erase and nothing to go stale. No model is
asked: what stands in it was said. The same memories give the same document, whoever asks and whenever, so that it can
stand in the part of a prompt that a provider caches; only a memory's end of life changes it without a new entry.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from relayer.domain.record import Kind, Record, Trust
from relayer.domain.standing import RecordState
from relayer.services.access import Access
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.services.finding import fresh
from relayer.services.open_namespace import OpenNamespace
from relayer.services.presentation import position
from relayer.services.selecting import active_at
from relayer.wire import ulid
from relayer.wire.lines import one_line
from relayer.wire.profile import (
    INTRODUCTION,
    SECTIONS,
    ProfileLine,
    ProfileResponse,
    ProfileSection,
    SectionName,
    heading,
    item,
    render,
)

__all__ = ["profile"]

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

_Rank = tuple[bool, float, int, int, int]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A memory that may stand in the profile, without its text: there may be very many."""

    rank: _Rank
    place: int
    record: bytes
    trust: Trust
    pinned: bool


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which memories may stand in a profile, at a time in ms; no audiences or trusts means all."""

    now: int
    audiences: Collection[str]
    trusts: Collection[str]

    def passes(self, record: Record, state: RecordState) -> bool:
        if record.suspect or record.kind not in _SECTION_OF or not state.live_at(self.now):
            return False
        if (record.valid_from is not None and self.now < record.valid_from) or (
            record.valid_to is not None and record.valid_to <= self.now
        ):
            return False
        return (not self.audiences or record.audience in self.audiences) and (
            not self.trusts or record.trust in self.trusts
        )


@dataclass(slots=True)
class _Found:
    """What a namespace has to choose from.

    ``outdone`` holds, of memories that a newer one contradicts, how far from the user the nearest such voice is;
    ``retold`` those that a fact was made from.
    """

    candidates: list[_Candidate] = field(default_factory=list)
    outdone: dict[bytes, int] = field(default_factory=dict)
    retold: set[bytes] = field(default_factory=set)

    def standing(self) -> list[_Candidate]:
        """Return what nothing newer stands for, best first."""
        return sorted((one for one in self.candidates if self._stands(one)), key=lambda one: one.rank)

    def _stands(self, one: _Candidate) -> bool:
        if one.pinned:
            return True
        # What an assistant says against the user's own words does not take them away.
        outdone = self.outdone.get(one.record)
        return one.record not in self.retold and (outdone is None or outdone > _DISTANCE[one.trust])


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

    Args:
        ctx: the relayer.
        access: the way into the namespace.
        max_tokens: of the whole document, at four bytes each.
        audiences: only these; none means all.
        trusts: likewise.
        deadline: of the request.

    Raises:
        RelayerError: as `relayer.services.open_namespaces.OpenNamespaces.use_if_exists` and the log.
    """
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return ProfileResponse(document="", sections=(), shown=0, total=0)
        await fresh(opened, deadline)
        async with deadline.step("read"):
            standing = await _standing(opened, _Wanted(ctx.clock.now_ms(), audiences, trusts))
        chosen = _choose(opened, standing, max_tokens * _BYTES_PER_TOKEN)
        sections = _in_sections(chosen)
        return ProfileResponse(
            document=render(sections),
            sections=sections,
            shown=len(chosen),
            total=len(standing),
            position=position(opened.log.position),
        )


async def _standing(opened: OpenNamespace, wanted: _Wanted) -> list[_Candidate]:
    """Return the memories to choose from, best first, all as of one position of the log."""
    for _ in range(_TRIES):
        at = opened.log.position
        found = _Found()
        for place, state in enumerate(list(opened.log.state.records.values())):
            if place % _AT_ONCE == 0:
                # Other requests go on meanwhile; one of them may bring a newer entry.
                await asyncio.sleep(0)
            _look_at(opened, wanted, found, place, state)
        if opened.log.position == at:
            return found.standing()
    found = _Found()
    for place, state in enumerate(opened.log.state.records.values()):
        _look_at(opened, wanted, found, place, state)
    return found.standing()


def _look_at(opened: OpenNamespace, wanted: _Wanted, found: _Found, place: int, state: RecordState) -> None:
    record = opened.view.get(state.record)
    if record is not None and wanted.passes(record, state):
        _note(found, place, record, state)


def _note(found: _Found, place: int, record: Record, state: RecordState) -> None:
    # Importance to a tenth: it is an estimate, and what was said again should count among about equals.
    rank = (
        not record.pinned,
        -round(record.importance, 1),
        -state.reinforced,
        -active_at(record, state),
        -place,
    )
    if len(record.text) <= _LONGEST or record.pinned:
        found.candidates.append(_Candidate(rank, place, record.id, record.trust, record.pinned))
        # What is too long to stand here takes nothing else away.
        found.retold.update(state.sources)
        for other in record.contradicts:
            distance = min(_DISTANCE[record.trust], found.outdone.get(other, len(_DISTANCE)))
            found.outdone[other] = distance


def _choose(
    opened: OpenNamespace, standing: Iterable[_Candidate], room: int
) -> list[tuple[int, SectionName, ProfileLine]]:
    """Return what fits, each text once, with its place in the log."""
    room -= len(INTRODUCTION.encode())
    chosen: list[tuple[int, SectionName, ProfileLine]] = []
    begun: set[SectionName] = set()
    said: set[tuple[str, str]] = set()
    misses = 0
    for one in standing:
        record = opened.view.get(one.record)
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
