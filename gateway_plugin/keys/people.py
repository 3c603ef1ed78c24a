"""People and places of a turn: who speaks, where, and which memories may be disclosed there.

People and places are ids of the host's platform, such as ``telegram:777`` and ``telegram:-100123``. `Hearing` says which
memories the readers of a turn may see: it is sent to the relayer as audience filters, and applied again to what the
relayer returns. Display names, which people choose themselves, are shown but never decide about access.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any, Final
from urllib.parse import quote

from relayer.wire.fields import NOBODY_KNOWN, audience_filters
from relayer.wire.labels import PROJECTS
from relayer.wire.memories import Memory
from relayer.wire.service import ProfileLine

_MAX_ID: Final = 200
_WORD: Final = re.compile(r"\w+")
_SHORTEST_NAME: Final = 2
_SHORTEST_PART: Final = 3
_GROUP: Final = "group"
PROJECTS_APART: Final = "; "
# The host keeps four of a session.
_MOST_PROJECTS: Final = 4


def platform_id(platform: str, name: str) -> str:
    """Return the id of a person or a chat as it is stored with memories: normalized, without white space or commas.

    Example:
        >>> platform_id("Telegram", "777")
        'telegram:777'
    """
    folded = unicodedata.normalize("NFKC", name).strip().casefold()
    known = f"{quote(platform.strip().casefold())}:{quote(folded, safe=':@+!#$*~')}"
    return known if len(known) <= _MAX_ID else f"hashed:{hashlib.sha256(known.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Hearing:
    """The memories that may be disclosed in a turn, depending on who reads its answer.

    Attributes:
        audiences: audience filters, see `relayer.wire.fields.AudienceFilter`. A memory that passes one of them may be
            disclosed.
        named: further audience filters. A memory that passes one of them may be disclosed only if the query names its
            speaker or its place.
        own: the ids of the person whose words count as the user's own.
        private: whether the agent's owner is the only reader.
        projects: the repositories in which the session works; None if the host does not say. It decides what is told without
            being searched for.
    """

    audiences: tuple[str, ...]
    named: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()
    private: bool = False
    projects: frozenset[str] | None = None

    @classmethod
    def of_group(cls, place: str, owners: Collection[str], *, doubtful: bool = False) -> Hearing:
        """Return what may be disclosed in a group: what the agent knows, and what was said in this group.

        If it may be a direct chat, what is said there is stored as said in one, and disclosed in this chat only.
        """
        itself = (f"direct:{place}",) if doubtful else ()
        return cls(("agent", f"{_GROUP}:", f"{_GROUP}:{place}", *itself), own=frozenset(owners))

    @classmethod
    def of_peer(cls, place: str, person: str) -> Hearing:
        """Return what may be disclosed to a person other than the owner in a direct chat: what they said there and in groups."""
        said = {place, person} - {""}
        audiences = ("agent", f"direct:{place}", *(f"{_GROUP}@{one}" for one in sorted(said)))
        return cls(audiences, own=frozenset(said))

    @classmethod
    def of_owner(cls, owners: Collection[str], person: str) -> Hearing:
        """Return what may be disclosed to the agent's owner in a direct chat.

        That is everything except what other people said. What others said in groups is disclosed if the query names its
        speaker or its place.
        """
        own = {*owners, person} - {""}
        places = (f"direct:{one}" for one in ("", *sorted(own)))
        said = (f"{_GROUP}@{one}" for one in ("", *sorted(own)))
        return cls(("agent", *places, *said), (_GROUP,), frozenset(own), private=True)

    @property
    def lasting(self) -> tuple[str, ...]:
        """Return the filters for memories that are shown without a query.

        The owner's leave out words from groups that name neither a sender nor a speaker.
        """
        return tuple(one for one in self.audiences if not self.private or one != f"{_GROUP}@")

    @property
    def standing(self) -> tuple[str, ...]:
        """Return the filters for the standing block, which is in every prompt: no memories of groups."""
        return tuple(one for one in self.audiences if not one.startswith(_GROUP))

    @property
    def without_groups(self) -> Hearing:
        """Return the same without memories of groups."""
        return replace(self, audiences=self.standing, named=())

    def allows(self, memory: Memory, query: str | None = None) -> bool:
        """Return whether a memory may be disclosed.

        ``query`` is None for a memory that was requested by its id or in a list.
        """
        filters = filters_of(memory)
        asked_for = _meet(filters, self.named) and (query is None or is_named(memory, query))
        return asked_for or _meet(filters, self.audiences)

    def is_of_project(self, memory: Memory) -> bool:
        """Return whether a memory is noted for no repository, or only for such in which the session works."""
        noted = memory.metadata.get(PROJECTS)
        if self.projects is None or not isinstance(noted, str):
            return True
        return self.projects.issuperset(noted.split(PROJECTS_APART))

    @property
    def project_filter(self) -> dict[str, Any]:
        """Return a filter that memories pass of which `is_of_project` is true; {} for none."""
        if self.projects is None:
            return {}
        several = sorted(self.projects)[:_MOST_PROJECTS]
        sets = chain.from_iterable(combinations(several, count) for count in range(1, len(several) + 1))
        named = {PROJECTS: {"in": [PROJECTS_APART.join(keys) for keys in sets]}}
        return {"or": [{"not": {PROJECTS: {"gte": ""}}}, named]}

    def is_own(self, memory: Memory) -> bool:
        """Return whether a memory counts as the user's own: it is not from a group, or the user said it there."""
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
    """Return whether a query names the speaker or the place of a memory, by a word of the name or of the place's id."""
    asked = unicodedata.normalize("NFKC", query).casefold()
    words = set(_WORD.findall(asked))
    speaker = unicodedata.normalize("NFKC", memory.source.speaker).casefold().strip()
    names = {word for word in _WORD.findall(speaker) if len(word) >= _SHORTEST_NAME}
    parts = {word for word in _WORD.findall(memory.source.place.casefold()) if len(word) >= _SHORTEST_PART}
    # Some scripts put no spaces between words, so the name is looked for as a substring, too.
    written_on = bool(speaker) and not speaker.isascii() and speaker in asked
    return not words.isdisjoint(names | parts) or written_on


OWN_VOICE: Final = "said by the user"
"""The label of what the user said outside of groups."""


def voice(memory: Memory, hearing: Hearing, *, noted: bool, user: str = "the user") -> str:
    """Return a label that says who said a memory and where; "" if neither a person nor an assistant said it.

    ``noted`` says that a language model wrote the memory.
    """
    own, source = hearing.is_own(memory), memory.source
    where = (
        ""
        if memory.audience != _GROUP
        else " in a group"
        if not source.place
        else f" in the group {source.place}"
    )
    person = user if own else source.speaker or "a member"
    if noted:
        return "noted by a model" if own else f"noted by a model of what was said{where}"
    if memory.trust == "user":
        return f"said by {person}{where}"
    if memory.trust == "assistant":
        to = "" if own else f" to {'others' if source.sender in {'', NOBODY_KNOWN} else 'another person'}"
        return f"said by the assistant{to}{where}"
    return "imported" if memory.trust == "imported" else ""
