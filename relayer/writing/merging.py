"""Decide how a captured memory relates to the memories near it: it repeats one, replaces a statement of one, or is new.

`classify` reads the draft together with the nearest memories of the same voice. Nothing is hidden by a guess: of the memories
near it, only the likelier one of the two nearest may be replaced, and only from `REPLACES_FROM` on; from `FOLLOWS_FROM` on, both are kept, and the
newer one is shown first. People say several things at once: "Cem plays Hamlet, we rehearse on Tuesdays, the play is in June". So a
memory is read clause by clause, each with the others around it, and loses the clause that is over, see
`relayer.namespaces.records.OpenedMemory`. Of two statements of the same form about two things, such as lines of a numbered list,
neither replaces the other (`are_about_two_things`).
Without a reader of relations (`relayer.ports.RelationReader`), memories are never merged.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise, takewhile

import numpy as np
from numpy.typing import NDArray

from relayer.domain.operations import Record
from relayer.errors import EmbedderUnavailable
from relayer.extraction.words import guess_language, is_question, split_sentences
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.records import OpenedMemory
from relayer.ports import RELATIONS, RelationReader
from relayer.search.ranking import Hit
from relayer.search.rows import Vector
from relayer.wire.fields import Audience, Kind, Status, Trust
from relayer.wire.redaction import removed_kinds

LONGEST = 600
"""The number of characters of the longest text that is compared."""
LOOKED_AT = 5
"""The number of live memories, nearest first (`nearest_first`), that a memory is compared with."""
AMONG = 4
"""The number of memories that a search finds for each that is compared."""
SAME_FROM = 0.9
"""The likelihood from which a newer statement says the same as an older one."""
REPLACES_FROM = 0.9
"""The likelihood from which a newer statement replaces an older one."""
CLAUSE_FROM = 0.93
"""The same for a clause of an older one: what is over in a memory makes all of its clauses likelier."""
FOLLOWS_FROM = 0.8
"""The likelihood from which a newer statement is shown before an older one."""

# The ratio of their odds from which the likeliest clause is far likelier than the second one.
_ODDS = 16
# The likelihood that remains if the reader's word is not enough to replace a statement: the newer one is shown first.
_UNCERTAIN = 0.89
# The likelihood that remains for two statements about two things: neither comes first.
_OF_TWO_THINGS = 0.5
# Words that join two statements without a comma, by language.
_AND = {
    "de": "und", "en": "and", "es": "y", "fr": "et", "hi": "और", "it": "e", "nl": "en", "pl": "i", "pt": "e", "ru": "и", "tr": "ve",
}  # fmt: skip
# The most letters with a number that is nothing but a value.
_LETTERS_OF_A_UNIT = 2
# Fewer words on one side of such a word are no statement: "bread and butter".
_FEWEST_WORDS = 3
# The cosine below which a memory is about something else: among a few, any is one of the nearest. Of what statements replace, one in
# a hundred is farther.
_NEAR = 0.25
# The number of the nearest ones of which one may be replaced: what a person corrects is nearest to the correction nearly always, and
# what the reader mistakes mostly is not.
_REPLACED_AMONG = 2
# The number of nearest memories that were forgotten, among which one may say the same.
_PAST_LOOKED_AT = 3
_SAME, _REPLACES = RELATIONS.index("same"), RELATIONS.index("replaces")
# A number with its inner punctuation, a Han character or kana, or a run of other letters.
_TOKEN = re.compile(r"\d+(?:[-:./,]\d+)*|[\u3040-\u30ff\u3400-\u9fff]|[^\W\d_\u3040-\u30ff\u3400-\u9fff]+")
# The number of tokens of a statement that are aligned; the time to align them may grow with its third power.
_MOST_TOKENS = 120
# The number of shared tokens after a number from which it is part of a name rather than an amount: an amount has a unit at most.
_AFTER_A_NAME = 2
_NUMBER = re.compile(r"\d+")
# The end of a clause within a sentence, with the space after it.
_CLAUSE_END = re.compile(
    r"[,;:](?:\s+|(?=[\u3040-\u30ff\u3400-\u9fff]))|\s[-\u2013\u2014]\s|[\u060c\u061b\uff0c\uff1b\u3001]\s*"
)


@dataclass(frozen=True, slots=True)
class Relation:
    """The likelihoods of a newer statement's relations to an older one.

    Attributes:
        same: that the newer statement says the same as the older one.
        replaces: that it says that the older one, or something in it, is over.
        clauses: that it says that each clause of the older one is over.
    """

    same: float = 0.0
    replaces: float = 0.0
    clauses: tuple[float, ...] = ()

    @property
    def likeliest(self) -> float:
        """Return how likely the clause is over that is over most likely."""
        return max(self.clauses) if len(self.clauses) > 1 else self.replaces

    @property
    def is_over(self) -> bool:
        """Return whether the older statement is over, or one of its clauses surely.

        It must be clear which clause: the second likeliest is far less likely, or surely over, too.
        """
        if len(self.clauses) <= 1:
            # Both readings of its only clause must say so: "I moved to Ulm" says it of where a person works by one of them.
            return min((self.replaces, *self.clauses)) >= REPLACES_FROM
        *_, second, first = sorted(self.clauses)
        clear = second >= CLAUSE_FROM or first * (1 - second) >= _ODDS * second * (1 - first)
        return first >= CLAUSE_FROM and clear


@dataclass(frozen=True, slots=True)
class MergeDecision:
    """The records that a draft relates to; at most one of them is set.

    Attributes:
        duplicate_of: the record that says the same.
        replaces: the record that it replaces, or of which it replaces a statement.
        span: the start and the end of that statement in the text of the record; None for all of it.
        follows: the record before which it is shown.
    """

    duplicate_of: bytes = b""
    replaces: bytes = b""
    span: tuple[int, int] | None = None
    follows: bytes = b""


NOTHING_KNOWN = MergeDecision()


async def classify(
    ctx: Context, opened: OpenNamespace, new: Record, vector: Vector | None, *, derived: bool = False
) -> MergeDecision:
    """Return what a captured record does to the memories near it.

    Call it when the index is up to date, and append soon afterwards. Only memories of the same speaker and audience count. Without
    a vector or a reader, or for a text too long for one statement, nothing is merged.

    ``vector`` is that of the text. ``derived`` says that a model made the record of statements that are stored as well, so
    that nothing is lost if it repeats a live memory.
    """
    if vector is None or len(new.text) > LONGEST:
        return NOTHING_KNOWN
    near = [memory async for memory in _nearest(opened, new, vector)]
    # Only what the user said may call an existing memory into question.
    may_replace = new.trust is Trust.USER and not new.suspect
    replaceable = [memory for memory in near if may_replace and _may_be_replaced(memory, new)][
        :_REPLACED_AMONG
    ]
    near = [memory for memory in near if derived or not memory.is_live or memory in replaceable]
    spans = [clauses_of(memory) for memory in near]
    said = [
        [memory.record.text[slice(*span)] for span in own] for memory, own in zip(near, spans, strict=True)
    ]
    found = await relations(ctx.relations, [(clauses, new.text) for clauses in said])
    for memory, relation in sorted(zip(near, found, strict=True), key=lambda pair: -pair[1].same):
        # A statement that repeats a live one is kept, because the reader takes some that differ in a detail for a repetition. The log
        # refuses what repeats a forgotten one.
        if (derived or not memory.is_live) and says_the_same(memory.text, new.text, relation):
            return MergeDecision(duplicate_of=memory.id)
    if not replaceable:
        return NOTHING_KNOWN
    memory, clauses, relation = max(
        (one for one in zip(near, spans, found, strict=True) if one[0] in replaceable),
        key=lambda one: one[2].likeliest,
    )
    if relation.is_over and not memory.record.pinned:
        return MergeDecision(replaces=memory.id, span=_over(memory.record.text, clauses, relation))
    likely = max(relation.replaces, relation.likeliest)
    return MergeDecision(follows=memory.id) if likely >= FOLLOWS_FROM else NOTHING_KNOWN


async def relations(
    reader: RelationReader | None, pairs: Sequence[tuple[Sequence[str], str]]
) -> list[Relation]:
    """Return the relations of newer texts to older ones, given by their clauses; none is likely if there is no reader."""
    if reader is not None and pairs:
        try:
            read = await reader.relations(pairs)
        except EmbedderUnavailable:
            pass
        else:
            return [_relation(*pair, rows) for pair, rows in zip(pairs, read, strict=True)]
    return [Relation()] * len(pairs)


def _relation(clauses: Sequence[str], new: str, read: NDArray[np.float32]) -> Relation:
    """Return what was read, less certain where the reader is known to be wrong.

    It learnt from statements, so it takes some questions for changes of what they ask for. A secret that was removed is a value
    that it cannot see: only a secret of the same kind can take its place.
    """
    likely = [
        min(likely, _most_likely(old, new))
        for old, likely in zip((" ".join(clauses), *clauses), read[:, _REPLACES].tolist(), strict=True)
    ]
    return Relation(float(read[0, _SAME]), likely[0], tuple(likely[1:]))


def _most_likely(old: str, new: str) -> float:
    if are_about_two_things(old, new):
        return _OF_TWO_THINGS
    return _UNCERTAIN if is_question(new) or removed_kinds(old) != removed_kinds(new) else 1.0


def are_about_two_things(old: str, new: str) -> bool:
    """Return whether two statements have the same form and differ in their subject, or in a subject and a value.

    This is so if they begin alike up to numbers in the first half, which number their subjects; if they differ in two numbers,
    and share half of their words; and if one is the other with two or more words exchanged. A statement that
    changes two values of one subject is taken for another subject as well.

    Example:
        >>> are_about_two_things("Room 12 is Anna's", "Room 14 is Ben's")
        True
        >>> are_about_two_things("We meet in room 12", "We meet in room 14")
        False
    """
    before, after = _tokens(old), _tokens(new)
    shorter = min(len(before), len(after))
    alike = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))))
    if alike < shorter and _is_number(before[alike]) and _is_number(after[alike]):
        following = shorter - alike - 1
        same_end = following >= _AFTER_A_NAME and before[alike + 1 :] == after[alike + 1 :]
        if following >= alike or same_end:
            return True
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    steps = matcher.get_opcodes()
    shared = sum(block.size for block in matcher.get_matching_blocks())
    if 2 * shared < max(len(before), len(after)):
        return False
    places = [step for step in steps if step[0] == "replace"]
    numbers = [
        place
        for place in places
        if any(map(_is_number, before[place[1] : place[2]]))
        and any(map(_is_number, after[place[3] : place[4]]))
    ]
    # A word in the place of another one: a change is often told by other words, such as "was moved to" in the place of "is in".
    has_one_form = all(
        step[0] == "equal" or (step[0] == "replace" and step[2] - step[1] == step[4] - step[3] == 1)
        for step in steps
    )
    return len(numbers) > 1 or (has_one_form and len(places) > 1)


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())[:_MOST_TOKENS]


def _is_number(token: str) -> bool:
    return token.isnumeric() or token[0].isdigit()


def says_the_same(old: str, new: str, relation: Relation) -> bool:
    """Return whether the newer text adds nothing to the older one, so that it can be dropped: it has the same numbers, too."""
    return relation.same >= SAME_FROM and Counter(_NUMBER.findall(old)) == Counter(_NUMBER.findall(new))


def _may_be_replaced(memory: OpenedMemory, new: Record) -> bool:
    """Return whether a record may replace a memory: what a model noted about a turn does not replace the turn, or the reverse.

    Old conversations that are captured late replace nothing either.
    """
    old = memory.record
    is_later = (
        new.occurred_at is not None and old.occurred_at is not None and old.occurred_at > new.occurred_at
    )
    return memory.is_live and old.extractor.name in {"", new.extractor.name} and not is_later


def clauses_of(memory: OpenedMemory) -> list[tuple[int, int]]:
    """Return the spans of the clauses of a memory's text, without those that were replaced."""
    return [
        (start, end)
        for start, end in clause_spans(memory.record.text)
        if not any(gone.start < end and start < gone.end for gone in memory.replaced)
    ]


def _over(text: str, spans: Sequence[tuple[int, int]], relation: Relation) -> tuple[int, int] | None:
    """Return the span of the likeliest clause, and of those around it that are surely over as well; None for all of them.

    A bare value that would be left says nothing without the rest: "4471" of "gate code, 4471", "18 km" of "long run, 18 km".
    """
    if len(spans) <= 1:
        return None
    first = last = relation.clauses.index(relation.likeliest)
    while first > 0 and relation.clauses[first - 1] >= CLAUSE_FROM:
        first -= 1
    while last + 1 < len(spans) and relation.clauses[last + 1] >= CLAUSE_FROM:
        last += 1
    left = " ".join(text[slice(*span)] for span in (*spans[:first], *spans[last + 1 :]))
    is_bare = any(map(str.isdigit, left)) and sum(map(str.isalpha, left)) <= _LETTERS_OF_A_UNIT
    return None if not left or is_bare else (spans[first][0], spans[last][1])


def clause_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and the end of each clause of a text, each up to the beginning of the next one of its sentence.

    One ends with a comma or the like, or before an "and" with several words on either side.

    Example:
        >>> [text[slice(*span)] for text in ["we meet on Mondays, bring a pen"] for span in clause_spans(text)]
        ['we meet on Mondays, ', 'bring a pen']
    """
    word = _AND.get(guess_language(text))
    spans = []
    for start, end in split_sentences(text):
        starts = [start, *(found.end() for found in _CLAUSE_END.finditer(text, start, end))]
        for first, last in pairwise([*starts, end]):
            begun = first
            for joint in re.finditer(rf"\s(?={word}\s)", text[first:last]) if word else ():
                at = first + joint.end()
                if min(len(text[begun:at].split()), len(text[at:last].split()) - 1) >= _FEWEST_WORDS:
                    spans.append((begun, at))
                    begun = at
            spans.append((begun, last))
    return spans


async def _nearest(opened: OpenNamespace, new: Record, vector: Vector) -> AsyncIterator[OpenedMemory]:
    """Yield the nearest memories of the same speaker and audience: live ones first, then those that were forgotten.

    A live memory whose validity is over is left out; another memory near the draft may still be valid.
    """
    for past, count in ((False, LOOKED_AT), (True, _PAST_LOOKED_AT)):
        # A search is one step of the event loop, and so is decrypting each memory, since some are long.
        await asyncio.sleep(0)
        found = opened.index(past=past).search(vector, new.text, AMONG * count, floor=0.0).hits
        left = count
        for hit in nearest_first(found):
            if (hit.cosine or 0.0) < _NEAR:
                continue
            await asyncio.sleep(0)
            memory = opened.memory(opened.state_of_hit(hit.key).record)
            # The memory may have been erased since the search.
            if memory is None or len(memory.record.text) > LONGEST or not same_voice(memory.record, new):
                continue
            if memory.state.status is (Status.FORGOTTEN if past else Status.LIVE) and (
                past or memory.state.live_at(opened.last_time)
            ):
                yield memory
                left -= 1
                if not left:
                    break


def nearest_first(hits: Iterable[Hit]) -> list[Hit]:
    """Return the hits of a search for a statement in the order in which it is compared with them.

    A change is told in other words than what it changes, but names it by its rarest ones.
    """
    return sorted(hits, key=lambda hit: -((hit.cosine or 0.0) + hit.covered))


def is_noted(memory: OpenedMemory | None, new: Record) -> bool:
    """Return whether a job's result repeats an earlier result or a forgotten memory.

    A verbatim turn that says the same is no reason to drop the result: the turn has neither a kind nor an importance.
    """
    if memory is None or new.kind is Kind.SUMMARY:
        return False
    return not memory.is_live or memory.record.extractor.name == new.extractor.name


def same_voice(one: Record, other: Record) -> bool:
    """Return whether both were said by the same speaker to the same audience."""
    return (
        one.audience is other.audience
        and one.trust is other.trust
        and one.suspect is other.suspect
        and one.source.speaker == other.source.speaker
        and one.source.place == other.source.place
        and one.source.sender == other.source.sender
        # In a group, messages without a sender's name may be from different people.
        and not (other.audience is Audience.GROUP and not other.source.speaker)
    )
