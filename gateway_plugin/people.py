"""People and places of a turn: who speaks, where, and whose memories may be told there.

A person and a place are ids of the host's platform, such as ``telegram:777`` and ``telegram:-100123``. Names that people choose for
themselves are shown, and decide nothing.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from relayer.wire.fields import NOBODY_KNOWN, audience_filters
from relayer.wire.memories import Memory
from relayer.wire.service import ProfileLine

_MAX_ID: Final = 200
_WORD: Final = re.compile(r"\w+")
_SHORTEST_NAME: Final = 2
_SHORTEST_PART: Final = 3
_GROUP: Final = "group"


def platform_id(platform: str, name: str) -> str:
    """Return the id of a person or a chat as memories have it: folded, and without white space or commas."""
    folded = unicodedata.normalize("NFKC", name).strip().casefold()
    known = f"{platform.strip().casefold()}:{quote(folded, safe=':@+!#$*~')}"
    return known if len(known) <= _MAX_ID else f"hashed:{hashlib.sha256(known.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Hearing:
    """Whose memories a turn may be told.

    Attributes:
        audiences: filters of `relayer.wire.fields.AudienceFilter`: what is told anyway.
        named: those of which a memory is told only if the question names its speaker or its place.
        own: ids of the person whose words are the user's.
        private: the agent's owner alone reads the answer.
    """

    audiences: tuple[str, ...]
    named: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()
    private: bool = False

    @classmethod
    def of_group(cls, place: str, owners: Collection[str], *, doubtful: bool = False) -> Hearing:
        """Return what a group hears: what the agent knows, and what was said in this group.

        Args:
            place: the group.
            owners: the ids of the owner.
            doubtful: it may be a direct chat: what is said there is kept as one's, and heard nowhere else.
        """
        itself = (f"direct:{place}",) if doubtful else ()
        return cls(("agent", f"{_GROUP}:", f"{_GROUP}:{place}", *itself), own=frozenset(owners))

    @classmethod
    def of_peer(cls, place: str, person: str) -> Hearing:
        """Return what one of several people hears in a direct chat: what they said there, and in groups."""
        said = {place, person} - {""}
        audiences = ("agent", f"direct:{place}", *(f"{_GROUP}@{one}" for one in sorted(said)))
        return cls(audiences, own=frozenset(said))

    @classmethod
    def of_owner(cls, owners: Collection[str], person: str) -> Hearing:
        """Return what the owner hears: all but what others said, whose words in groups are told where they are asked about."""
        own = {*owners, person} - {""}
        places = (f"direct:{one}" for one in ("", *sorted(own)))
        said = (f"{_GROUP}@{one}" for one in ("", *sorted(own)))
        return cls(("agent", *places, *said), (_GROUP,), frozenset(own), private=True)

    @property
    def lasting(self) -> tuple[str, ...]:
        """Return the audiences of what a prompt shows unasked: only words whose speaker is known."""
        return tuple(one for one in self.audiences if not self.private or one != f"{_GROUP}@")

    @property
    def standing(self) -> tuple[str, ...]:
        """Return the audiences of what stands in every prompt: no group's."""
        return tuple(one for one in self.audiences if not one.startswith(_GROUP))

    def allows(self, memory: Memory, query: str | None = None) -> bool:
        """Return whether a memory may be told in answer to a question; without one, it was asked for by its id or in a list."""
        filters = filters_of(memory)
        asked_for = _meet(filters, self.named) and (query is None or is_named(memory, query))
        return asked_for or _meet(filters, self.audiences)

    def is_own(self, memory: Memory) -> bool:
        """Return whether a memory is the user's own, or nobody else's: not what another person said in a group."""
        return memory.audience != _GROUP or memory.source.sender in self.own


def filters_of(memory: Memory | ProfileLine) -> tuple[str, ...]:
    """Return the audience filters that a memory passes."""
    source = memory if isinstance(memory, ProfileLine) else memory.source
    return audience_filters(memory.audience, source.place, source.sender, source.speaker)


def _meet(filters: Collection[str], audiences: Collection[str]) -> bool:
    return any(one in audiences for one in filters)


def passes(memory: Memory | ProfileLine, audiences: Collection[str]) -> bool:
    """Return whether a memory passes one of the audience filters."""
    return _meet(filters_of(memory), audiences)


def is_named(memory: Memory, query: str) -> bool:
    """Return whether a question names who said a memory, or where: by a word of the name, or of the place's id."""
    asked = unicodedata.normalize("NFKC", query).casefold()
    words = set(_WORD.findall(asked))
    speaker = unicodedata.normalize("NFKC", memory.source.speaker).casefold().strip()
    names = {word for word in _WORD.findall(speaker) if len(word) >= _SHORTEST_NAME}
    parts = {word for word in _WORD.findall(memory.source.place.casefold()) if len(word) >= _SHORTEST_PART}
    # Not every script puts spaces between words.
    written_on = bool(speaker) and not speaker.isascii() and speaker in asked
    return not words.isdisjoint(names | parts) or written_on


def voice(memory: Memory, hearing: Hearing, *, noted: bool) -> str:
    """Return who says a memory, and where; "" for what no person and no assistant said.

    Args:
        memory: what is told.
        hearing: whose words are the user's here.
        noted: a language model wrote it down.
    """
    own, source = hearing.is_own(memory), memory.source
    where = (
        ""
        if memory.audience != _GROUP
        else " in a group"
        if not source.place
        else f" in the group {source.place}"
    )
    person = "the user" if own else source.speaker or "a member"
    if noted:
        return "noted by a model" if own else f"noted by a model of what was said{where}"
    if memory.trust == "user":
        return f"said by {person}{where}"
    if memory.trust == "assistant":
        to = "" if own else f" to {'others' if source.sender in {'', NOBODY_KNOWN} else 'another person'}"
        return f"said by the assistant{to}{where}"
    return "imported" if memory.trust == "imported" else ""
