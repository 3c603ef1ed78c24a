"""What goes into an extractor and what comes out of it.

An extractor sees turns in the order in which they were said and answers with candidates for memories. It decides
alone from its arguments: no clock, no randomness, no I/O, so the same turns give the same candidates on every replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from relayer.domain.record import Kind, Role, Trust

__all__ = ["Candidate", "Extractor", "Turn"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation.

    Attributes:
        role: which side said it.
        text: what was said, without the host's envelopes and without injected memories.
        occurred_at_ms: when, in ms since the epoch; None when the host does not say.
        turn_id: the host's id of the message, if it has one.
        speaker: the name of who said it, if known; it is not evidence of anything but of who is addressed.
    """

    role: Role
    text: str
    occurred_at_ms: int | None = None
    turn_id: str | None = None
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory that an extractor proposes.

    Attributes:
        text: the whole turn, verbatim but for `relayer.extraction.prose.clean`.
        kind: what the turn mostly is.
        importance: 0..1; orders memories of one namespace, means nothing across extractors.
        lang: ISO 639 code of the text, ``und`` when the guess would be worthless.
        speaker: as given with the turn.
        role: as given with the turn.
        occurred_at_ms: as given with the turn.
        turn_ids: ids of the turns it came from; empty when the host gave none.
        evidence: start and end, in characters of ``text``, of the sentence that made the turn worth keeping.
        context_index: index, in the sequence given to the extractor, of the turn said just before; None for the
            first. It is a reference: no candidate holds another turn's text.
        trust: how far the text may be believed, by who said it.
    """

    text: str
    kind: Kind
    importance: float
    lang: str
    speaker: str | None
    role: Role
    occurred_at_ms: int | None
    turn_ids: tuple[str, ...]
    evidence: tuple[int, int]
    context_index: int | None
    trust: Trust


class Extractor(Protocol):
    """Chooses what of a conversation is worth remembering."""

    @property
    def name(self) -> str:
        """Stable name, recorded with every memory it proposes."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever the same turns may give other candidates."""
        ...

    def steps(self, turns: Sequence[Turn]) -> Iterator[Candidate | None]:
        """Look at one of ``turns`` after the other, in their order; None for one that is not worth remembering."""
        ...
