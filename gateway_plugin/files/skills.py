"""Skills that are drawn from memories: ways of working that a user told several times, as `SkillFiles` writes them.

No language model is asked, so every line was said. A memory counts if the owner said it, it has the form of a rule or a procedure
(`gateway_plugin.text.word_lists`), and it would be told in a prompt. Two memories are about one way of working if they share two
words, or one and are near to each other in a search. What was told once in a session of a day counts once; a repetition of the
same text, of which the relayer stores only the number, counts each time. What a newer statement replaced counts as well, but is
not written; what was forgotten does not count.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from gateway_plugin.client import RelayerClient
from gateway_plugin.files.blocks import Skill, SkillFiles
from gateway_plugin.files.notes import is_of_owner, plain_line
from gateway_plugin.keys.identity import Identity
from gateway_plugin.recall.consolidation import SECONDS
from gateway_plugin.recall.formatting import may_be_told, told_at
from gateway_plugin.text.word_lists import Token, is_procedure, tokens_of
from relayer.wire.schemas import Memory, RecallRequest

# Bounds of a run: the newest statements that are compared, the searches, and the results of each.
_MOST_COMPARED: Final = 1000
_MOST_SEARCHES: Final = 200
_NEAREST: Final = 50
# The cosine of two statements from which one shared word is enough, by trial with the default model.
_NEAR: Final = 0.3
_ENOUGH_WORDS: Final = 2.0
# Every session's prompt lists the names of all skills.
_MOST_SKILLS: Final = 20
_MOST_LINES: Final = 30
_TITLE_WORDS: Final = 3
_MOST_WORDS: Final = 8
_LONGEST_SLUG: Final = 48


@dataclass(frozen=True, slots=True)
class _Told:
    """A statement about a way of working, with its text as one line, and its words."""

    memory: Memory
    line: str
    tokens: tuple[Token, ...]

    @property
    def stems(self) -> frozenset[str]:
        return frozenset(token.stem for token in self.tokens)

    @property
    def day(self) -> str:
        return told_at(self.memory).astimezone().date().isoformat()

    @property
    def is_live(self) -> bool:
        return self.memory.state == "live"


async def draw_skills(client: RelayerClient, identity: Identity, least: int) -> list[Skill]:
    """Return the ways of working that were told at least ``least`` times, the most frequent first. Raises as the client does."""
    # Also those that were replaced or forgotten.
    states = ("live", "superseded", "forgotten")
    memories = [one async for one in client.all_memories(identity, states=states)]
    # On a thread, because a turn may be waiting for the event loop meanwhile.
    told = await asyncio.to_thread(lambda: [*islice(_told(memories), _MOST_COMPARED)])
    links = await _links(client, identity, told)
    # The memory that shares the most is the centre of a group; of equal ones, the newest.
    order = sorted(range(len(told)), key=lambda place: (-len(links[place]), place))
    taken: set[int] = set()
    found = []
    for centre in order:
        group = sorted({centre, *links[centre]} - taken)
        members = [told[place] for place in group]
        if centre in taken or _times(members) < least or not any(one.is_live for one in members):
            continue
        taken.update(group)
        found.append(_skill(members))
    return sorted(found, key=lambda skill: -skill.times)[:_MOST_SKILLS]


async def write_skills(
    client: RelayerClient, identity: Identity, folder: Path, least: int
) -> dict[str, Skill]:
    """Draw the skills of a namespace and write them into a folder; return them by the names of their folders.

    Raises:
        GatewayError: as the client does.
        ProfileFileProblem: as `SkillFiles.write` does.
    """
    skills = await draw_skills(client, identity, least)
    return await asyncio.to_thread(SkillFiles(folder, identity.namespace).write, skills)


def _told(memories: Sequence[Memory]) -> Iterator[_Told]:
    """Yield what the owner said about ways of working and was not taken back, newest first."""
    known = {memory.id: memory for memory in memories}
    unmentioned = {word for memory in memories if memory.state == "live" for word in memory.unmentioned}
    for memory in sorted(memories, key=told_at, reverse=True):
        if memory.kind == "event" or not is_of_owner(memory) or not _counts(memory, known):
            continue
        if not is_procedure(memory.text):
            continue
        line = plain_line(memory.text)
        words = unicodedata.normalize("NFKC", line).casefold()
        # Wishes not to be reminded keep what they name out of what was not asked for; they are no procedures themselves.
        if memory.unmentioned or any(word in words for word in unmentioned):
            continue
        if line and may_be_told(line):
            yield _Told(memory, line, tuple(tokens_of(line)))


def _counts(memory: Memory, known: dict[str, Memory]) -> bool:
    """Return whether a memory is live, or was replaced by another statement; an edit of it was not told once more."""
    if memory.state != "superseded":
        return memory.state == "live"
    newer = known.get(memory.superseded_by or "")
    # Consolidation replaces a repetition by a version that expired, which is not listed.
    return newer is None or (newer.source != memory.source and _counts(newer, known))


async def _links(client: RelayerClient, identity: Identity, told: Sequence[_Told]) -> list[set[int]]:
    """Return for each statement the places of those about the same way of working."""
    links, doubtful = await asyncio.to_thread(_linked_by_words, told)
    near: dict[int, frozenset[str]] = {}
    for place in sorted({place for pair in doubtful for place in pair})[:_MOST_SEARCHES]:
        near[place] = await _near(client, identity, told[place])
    for place, other in doubtful:
        nearest = near.get(place, frozenset()), near.get(other, frozenset())
        if told[other].memory.id in nearest[0] or told[place].memory.id in nearest[1]:
            _link(links, place, other)
    return links


def _linked_by_words(told: Sequence[_Told]) -> tuple[list[set[int]], list[tuple[int, int]]]:
    """Return for each statement the places of those with which it shares enough words, and the pairs that share too few."""
    links: list[set[int]] = [set() for _ in told]
    doubtful: list[tuple[int, int]] = []
    stems = [one.stems for one in told]
    for place in range(len(told)):
        for other in range(place):
            both = stems[place] & stems[other]
            # Two Han characters are about half a word.
            shared = sum(0.5 if len(stem) == 2 and stem[0] >= "\u3400" else 1.0 for stem in both)
            if shared >= _ENOUGH_WORDS or told[place].line == told[other].line:
                _link(links, place, other)
            elif shared >= 1:
                doubtful.append((place, other))
    return links, doubtful


def _link(links: list[set[int]], place: int, other: int) -> None:
    links[place].add(other)
    links[other].add(place)


async def _near(client: RelayerClient, identity: Identity, one: _Told) -> frozenset[str]:
    request = RecallRequest(
        query=one.line, limit=_NEAREST, floor=0.0, explain=True, trusts=("user",), include=("superseded",)
    )
    hits = (await client.recall(identity, request, deadline=SECONDS)).memories
    return frozenset(hit.id for hit in hits if hit.evidence and (hit.evidence.cosine or 0.0) >= _NEAR)


def _times(members: Iterable[_Told]) -> int:
    memories = [(one.memory, one.day) for one in members]
    return len({(memory.source.session, day) for memory, day in memories}) + sum(
        memory.reinforced for memory, _ in memories
    )


def _skill(members: Sequence[_Told]) -> Skill:
    live = [one for one in members if one.is_live]
    common = Counter(stem for one in members for stem in one.stems)
    least = 2 if len(members) > 1 else 1
    ranked = sorted(
        (stem for stem in live[0].stems if common[stem] >= least), key=lambda stem: (-common[stem], stem)
    )
    words = [*_phrases(live[0], ranked[:_TITLE_WORDS])]
    more = [one for one in _phrases(live[0], ranked[:_MOST_WORDS]) if one not in words]
    lines = {one.line: one for one in reversed(live)}
    newest_first = [one for one in live if lines[one.line] is one][:_MOST_LINES]
    plain = unicodedata.normalize("NFKD", " ".join(words)).encode("ascii", "ignore").decode().casefold()
    parts = re.findall(r"[a-z0-9]+", plain)
    while len("-".join(parts)) > _LONGEST_SLUG:
        parts.pop()
    return Skill(
        slug="-".join(parts) or f"way-of-working-{live[0].memory.id[-6:]}",
        words=(*words, *more) or (live[0].line[:_LONGEST_SLUG],),
        times=_times(members),
        lines={one.memory.id: (one.day, one.line) for one in newest_first},
        memories=frozenset(known for one in members for known in (one.memory.id, *one.memory.supersedes)),
    )


def _phrases(one: _Told, stems: Sequence[str]) -> Iterator[str]:
    """Yield the words of a statement with these stems, each once, and those that are next to each other as one phrase."""
    seen: set[str] = set()
    start = end = -1
    for token in (*one.tokens, None):
        if token is not None and (token.stem not in stems or token.stem in seen):
            continue
        if (
            token is not None
            and start >= 0
            and (token.start < end or one.line[end : token.start] in {"", " ", "-"})
        ):
            end = token.end
        else:
            if start >= 0:
                yield one.line[start:end].casefold()
            start, end = (token.start, token.end) if token is not None else (-1, -1)
        if token is not None:
            seen.add(token.stem)
