"""Decide how a captured memory relates to the memories near it: it repeats one, replaces a statement of one, or is new.

`classify` reads the draft together with the nearest memories of the same voice. Nothing is hidden by a guess: of the memories
near it, only the likelier one of the two nearest may be replaced, and only from `REPLACES_FROM` and `SURE_FROM` on; from `FOLLOWS_FROM` on, both are kept, and the
newer one is shown first. People say several things at once: "Cem plays Hamlet, we rehearse on Tuesdays, the play is in June". So a
memory is read clause by clause, each with the others around it, and loses the clause that is over, see
`relayer.namespaces.records.OpenedMemory`. Of two statements of the same form about two things, such as lines of a numbered list,
neither replaces the other (`are_about_two_things`).
Without a reader of relations (`relayer.ports.RelationReader`), memories are never merged.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import SequenceMatcher
from functools import cache
from importlib.resources import files
from itertools import chain, pairwise, product, takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayer.domain import operations as ops
from relayer.domain.operations import Record
from relayer.errors import EmbedderUnavailable
from relayer.extraction.llm.polarity import insists
from relayer.extraction.requests import says_unchanged
from relayer.extraction.words import function_words, guess_language, is_question, split_sentences
from relayer.lib.marking_words import marked
from relayer.lib.n_grams import UNSPACED
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.records import OpenedMemory
from relayer.ports import RELATIONS, RelationReader
from relayer.search.ranking import Hit
from relayer.search.rows import Vector
from relayer.search.terms import EPOCH, NamedTime, named_times, terms
from relayer.wire.fields import Audience, Kind, Status, Trust
from relayer.wire.redaction import removed_kinds

LONGEST = 600
"""The number of characters of the longest text that is compared."""
LOOKED_AT = 5
"""The number of live memories, nearest first (`nearest_first`), that a memory is compared with."""
AMONG = 4
"""The number of memories that a search finds for each that is compared."""
LONGEST_BEFORE = 240
"""The maximum length in characters of a replaced text that is told with the newer one."""
SAME_FROM = 0.9
"""The likelihood from which a newer statement says the same as an older one."""
REPLACES_FROM = 0.9
"""The likelihood, as it was read, from which a newer statement may replace an older one, or the likeliest clause of it."""
SURE_FROM = 0.75
"""The likelihood, all things weighed (`likely_over`), from which it does."""
CLAUSE_SURE_FROM = 0.67
"""The same for a clause of several: the rest of the memory stays."""
FOLLOWS_FROM = 0.8
"""The likelihood, as it was read, from which a newer statement is shown before an older one."""

# Likelihoods nearer to 0 or 1 count as that one.
_LEAST = 1e-4
# The likelihood from which the clauses around the one that is over go with it.
_GOES_WITH_FROM = 0.96
# The likelihood below which one of several things stays, so that all of them are shown.
_STAYS_BELOW = 0.5
# Words that join two statements without a comma, by language.
_AND = {
    "de": "und", "en": "and", "es": "y", "fr": "et", "hi": "और|aur", "it": "e", "nl": "en", "pl": "i", "pt": "e", "ru": "и", "tr": "ve",
}  # fmt: skip
# The same in scripts without a word of its own for it.
_JOINED = re.compile(
    r"\s\u0648(?=\w)|[和跟与與]|以及|(?<=[\u30a0-\u30ff\u4e00-\u9fff])[とや](?=[\u30a0-\u30ff\u4e00-\u9fff])|(?<=\w)(?:이?랑|하고|와|과)\s"
)
# The same in a text whose language is not known.
_ANY_AND = "and|aur|e|et|und|ve|y|и|और"
# The number of letters from which a term tells a thing from another one.
_DISTINCTIVE = 3
# What begins a statement that two words make, by language: "soy Marisol y vivo en Valencia".
_I_AM = {
    "de": "bin|ich bin", "en": "i'?m|i\u2019m|i am", "es": "soy|estoy", "fr": "je suis", "it": "sono", "nl": "ik ben", "pl": "jestem", "pt": "sou", "tr": "ben",
}  # fmt: skip
# The number of terms from which what is left of a text says more than what changed; in scripts without spaces a word is several.
_SAYS_MORE, _SAYS_MORE_UNSPACED = 3, 7
# The most letters with a number that is nothing but a value.
_LETTERS_OF_A_UNIT = 2
# Fewer words on one side of such a word are no statement: "bread and butter".
_FEWEST_WORDS = 3
# The cosine below which a memory is about something else: among a few, any is one of the nearest. Of what statements replace, one in
# a hundred is farther.
_NEAR = 0.25
# The number of the nearest ones of which one may be replaced: what a person corrects is nearest to the correction nearly always, and
# what the reader mistakes mostly is not.
REPLACED_AMONG = 2
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
# A month or a day without a year that is farther away is one of the past: "since September" in December.
_TO_COME = timedelta(days=183)
# The end of a clause within a sentence, with the space after it.
_CLAUSE_END = re.compile(
    r"[,;:](?:\s+|(?=[\u3040-\u30ff\u3400-\u9fff]))|\s[-\u2013\u2014]\s|[\u060c\u061b\uff0c\uff1b\u3001]\s*"
    # A space is one where words are not separated: people type it instead of a comma.
    r"|(?<=[\u3040-\u30ff\u3400-\u9fff])\s+(?=[\u3040-\u30ff\u3400-\u9fff])"
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
Replaced = dict[bytes, list[tuple[int, int]]]
"""The parts of memories that records of an entry replace, which is not yet in the log: the start and the end of each."""


class _Near(NamedTuple):
    """A memory near a draft, with the cosine of the two, and the share of the draft's terms that the memory has."""

    memory: OpenedMemory
    cosine: float
    covered: float


async def classify(
    ctx: Context,
    opened: OpenNamespace,
    new: Record,
    vector: Vector | None,
    *,
    derived: bool = False,
    over: Replaced | None = None,
) -> MergeDecision:
    """Return what a captured record does to the memories near it.

    Call it when the index is up to date, and append soon afterwards. Only memories of the same speaker and audience count. Without
    a vector or a reader, or for a text too long for one statement, nothing is merged.

    ``vector`` is that of the text. ``derived`` says that a model made the record of statements that are stored as well, so
    that nothing is lost if it repeats a live memory. ``over`` is what other records of the same entry replace, to which what this one
    replaces is added.
    """
    if vector is None or len(new.text) > LONGEST:
        return NOTHING_KNOWN
    over = {} if over is None else over
    near = [
        one async for one in _nearest(opened, new, vector) if ops.WHOLE not in over.get(one.memory.id, ())
    ]
    # Only what the user said may call an existing memory into question.
    told = without_unchanged(new.text)
    may_replace = new.trust is Trust.USER and not new.suspect and told != ""
    replaceable = [one for one in near if may_replace and _may_be_replaced(one.memory, new)][:REPLACED_AMONG]
    # Those that may be replaced come first.
    near = replaceable + [
        one for one in near if one not in replaceable and (derived or not one.memory.is_live)
    ]
    spans = [clauses_of(one.memory, over.get(one.memory.id, ())) for one in near]
    said = [
        [one.memory.record.text[slice(*span)] for span in own] for one, own in zip(near, spans, strict=True)
    ]
    read = [told if one in replaceable else new.text for one in near]
    found = await relations(ctx.relations, list(zip(said, read, strict=True)))
    same = sorted(zip(near, found, read, strict=True), key=lambda each: -each[1].same)
    for (memory, *_), relation, text in same:
        # A statement that repeats a live one is kept, because the reader takes some that differ in a detail for a repetition. The log
        # refuses what repeats a forgotten one.
        repeats = text == new.text and says_the_same(memory.text, text, relation)
        if repeats and (derived or not memory.is_live):
            return MergeDecision(duplicate_of=memory.id)
    if not replaceable:
        return NOTHING_KNOWN
    candidates = [
        Candidate(relation, one.cosine, one.covered)
        for one, relation in zip(replaceable, found, strict=False)
    ]
    weighed = likely_over(candidates, told)
    best = int(np.argmax(weighed))
    memory, relation = replaceable[best].memory, without_kept(found[best], said[best], new.text)
    likeliest = max(relation.replaces, relation.likeliest)
    needed = CLAUSE_SURE_FROM if len(spans[best]) > 1 else SURE_FROM
    if likeliest >= REPLACES_FROM and weighed[best] >= needed and not memory.record.pinned:
        part = part_over(memory.record.text, spans[best], relation)
        gone = memory.record.text[slice(*part)] if part else memory.text
        danger = "" if part else memory.record.essential
        hidden = hides_harm(new, gone, danger) or names_one_of_several(new.text, gone)
        stays = hidden or not can_end(new.text, gone) or is_true_until_then(new, gone)
        ends = spans[best] if part is None else [part]
        if not stays and not await leaves_some(ctx.relations, memory.record.text, ends, told):
            over.setdefault(memory.id, []).append(part or ops.WHOLE)
            return MergeDecision(replaces=memory.id, span=part)
    return MergeDecision(follows=memory.id) if likeliest >= FOLLOWS_FROM else NOTHING_KNOWN


def without_unchanged(text: str) -> str:
    """Return a newer text without the clauses that say that something stays as it is; the reader takes these for changes of it.

    Example:
        >>> without_unchanged("Swimming is on Mondays now, same time. Flute stays.")
        'Swimming is on Mondays now,'
    """
    clauses = [text[slice(*span)].strip() for span in clause_spans(text)]
    kept = [clause for clause in clauses if not says_unchanged(clause)]
    return text if len(kept) == len(clauses) else " ".join(kept)


def without_kept(relation: Relation, clauses: Sequence[str], new: str) -> Relation:
    """Return a relation without the clauses of the older text of which the newer one says that they stay: "callout stays as it is"."""
    spoken = [text for span in clause_spans(new) if says_unchanged(text := new[slice(*span)].strip())]
    stays = [any(_share_a_term(clause, text) for text in spoken) for clause in clauses]
    if not any(stays):
        return relation
    kept = tuple(0.0 if stays[at] else likely for at, likely in enumerate(relation.clauses))
    return replace(relation, replaces=0.0 if all(stays) else relation.replaces, clauses=kept)


def _share_a_term(one: str, other: str) -> bool:
    return any(map(_are_alike, product(_distinctive(one), _distinctive(other))))


class Candidate(NamedTuple):
    """A memory that a newer statement may replace.

    Attributes:
        relation: of the newer statement to it.
        cosine: of the two.
        covered: the share of the newer statement's terms that the memory has, weighted by how rare they are.
    """

    relation: Relation
    cosine: float
    covered: float


def likely_over(candidates: Sequence[Candidate], new: str) -> NDArray[np.float64]:
    """Return for each memory how likely it is that a newer text ends it, or the likeliest clause of it, all things weighed.

    What the reader says of pairs counts for more or less by the circumstances: how near the memory is, what is said of the other
    one, whether a second clause seems to be over, too. The weights are learnt from people's weeks of chats by `bench.replacing`.

    Args:
        candidates: the nearest memories that may be replaced, nearest first.
        new: the newer text.
    """
    rows = np.array([features(candidates, rank, new) for rank in range(len(candidates))])
    likely: NDArray[np.float64] = 1 / (1 + np.exp(-(rows @ _weights()[:-1] + _weights()[-1])))
    return likely


FEATURES = (
    "whole", "clause", "second clause", "one clause", "rank", "other", "length", "same", "cosine", "covered",
)  # fmt: skip
"""What is weighed of a candidate; the likelihoods as logits."""


def features(candidates: Sequence[Candidate], rank: int, new: str) -> list[float]:
    """Return the `FEATURES` of one of the candidates, by its rank."""
    relation, cosine, covered = candidates[rank]
    clauses = sorted(map(_logit, relation.clauses or (relation.replaces,)), reverse=True)
    others = [other.relation for at, other in enumerate(candidates) if at != rank]
    return [
        _logit(relation.replaces),
        clauses[0],
        clauses[min(1, len(clauses) - 1)],
        len(clauses) == 1,
        rank,
        _logit(max((max(other.replaces, other.likeliest) for other in others), default=0.0)),
        math.log(len(new)),
        _logit(relation.same),
        cosine,
        covered,
    ]


def _logit(likely: float) -> float:
    likely = min(max(likely, _LEAST), 1 - _LEAST)
    return math.log(likely / (1 - likely))


@cache
def _weights() -> NDArray[np.float64]:
    """Return the weights of `FEATURES`, the constant last."""
    stored = json.loads((files("relayer.writing") / "data" / "replacing.json").read_text("utf-8"))
    return np.array([stored[name] for name in (*FEATURES, "constant")])


def can_end(new: str, old: str) -> bool:
    """Return whether a newer text may end an older statement, whatever was read.

    The reader learnt from statements, so it takes some questions for changes of what they ask for, and "never release without the smoke
    tests" for the end of these tests. A secret that was removed is a value that it cannot see: only a secret of the same kind can take
    its place.
    """
    return not (is_question(new) or insists(new)) and removed_kinds(old) == removed_kinds(new)


def hides_harm(new: Record, old: str, read: str = "") -> bool:
    """Return whether a danger to someone would disappear by a newer record that speaks of none: then both are shown.

    The reader may mistake news of one thing for a change of all that was said with it, and a danger that is not shown does more
    damage than one that is over. One in sixty of what people end is concerned. ``read`` is which of `relayer.lib.n_grams.ESSENTIALS` a model took the
    older statement for.
    """
    speaks_of_one = new.essential == "harm" or "harm" in marked(new.text)
    return not speaks_of_one and (read == "harm" or "harm" in marked(old))


def names_one_of_several(new: str, old: str) -> bool:
    """Return whether a newer text names one of several things that an older statement joins with "and", and not another one.

    The reader does not tell them apart, so both texts are shown: what is said of the others stays true.

    Example:
        >>> names_one_of_several("lithium's 900 now", "on lithium 600 and lamotrigine 100")
        True
        >>> names_one_of_several("quit both", "on lithium 600 and lamotrigine 100")
        False
    """
    word = _AND.get(guess_language(old), _ANY_AND)
    parts = re.split(rf"\s(?:{word})\s|{_JOINED.pattern}", old)
    told = _distinctive(new)
    named = [any(map(_are_alike, product(own, told))) for own in map(_distinctive, parts) if own]
    return any(named) and not all(named)


def said_before(opened: OpenNamespace, key: int) -> OpenedMemory | None:
    """Return the memory that a captured one replaced as a whole, if it says more than what changed; the newer one by its key.

    "The doctor put the Eutirox up to 100" replaces "Eutirox 75, before breakfast", and when it is taken is still true. A reader who sees
    both can tell. What a person changed themselves is said as they left it.
    """
    old = opened.key_of(opened.state_of_hit(key).supersedes)
    if old is None or not opened.holds(old):
        return None
    record, former = opened.hit(key).record, opened.hit(old)
    is_told = record.extractor.name and len(former.text) <= LONGEST_BEFORE
    return former if is_told and says_more(former.text, record.text) else None


def says_more(old: str, new: str) -> bool:
    """Return whether an older text says more than what a newer one changes, so that some of it may still be true.

    Example:
        >>> says_more("Eutirox 75 before breakfast, for the thyroid", "Eutirox is 100 now")
        True
        >>> says_more("My phone number is 555-0171", "I have a new number: 555-0188")
        False
    """
    told = {*_distinctive(new), *_NUMBER.findall(new)}
    left = {
        one
        for one in (*_distinctive(old), *_NUMBER.findall(old))
        if not any(_are_alike((one, other)) for other in told)
    }
    return len(left) >= (_SAYS_MORE_UNSPACED if UNSPACED.search(old) else _SAYS_MORE)


def _distinctive(text: str) -> list[str]:
    """Return the terms of a text that tell a thing from another one."""
    little = _little_terms(guess_language(text))
    return [
        term
        for term in terms(text)
        if (len(term) >= _DISTINCTIVE or UNSPACED.search(term)) and term not in little
    ]


@cache
def _little_terms(lang: str) -> frozenset[str]:
    return frozenset(chain.from_iterable(map(terms, function_words(lang))))


def _are_alike(pair: tuple[str, str]) -> bool:
    shorter, longer = sorted(pair, key=len)
    # Arabic articles and prepositions are written together with the word.
    return longer.startswith(shorter) or (len(shorter) > _DISTINCTIVE and shorter in longer)


async def leaves_some(
    reader: RelationReader | None, text: str, parts: Sequence[tuple[int, int]], new: str
) -> bool:
    """Return whether a newer text ends only some of the things that parts of an older text name, given by start and end.

    A clause is read as one statement. Of the things that it joins with "and" (`thing_spans`), each is read by itself before it is over.
    """
    spans = thing_spans(text)
    within = [
        at
        for at, (first, last) in enumerate(spans)
        if any(start <= first and last <= end for start, end in parts) and not _is_bare(text[first:last])
    ]
    if len(within) <= 1:
        return False
    (found,) = await relations(reader, [([text[slice(*span)] for span in spans], new)])
    return min(found.clauses[at] for at in within) < _STAYS_BELOW


def is_true_until_then(new: Record, old: str) -> bool:
    """Return whether a newer text tells of what will be, so that both are shown: it names a month or a day that is to come, the older one none.

    "From March on I'll work at Bosch" does not end yet where someone works. An appointment that is moved does: both name a day.
    """
    said = (EPOCH + timedelta(milliseconds=new.said_at)).date()
    times = [
        time for time in named_times(new.text, new.said_at) if isinstance(time, NamedTime) and time.month
    ]
    days = [day for time in times if (day := time.first_day(said)) is not None]
    return any(said < day <= said + _TO_COME for day in days) and not named_times(old, new.said_at)


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
            return [relation_of(*pair, rows) for pair, rows in zip(pairs, read, strict=True)]
    return [Relation()] * len(pairs)


def relation_of(clauses: Sequence[str], new: str, read: NDArray[np.float32]) -> Relation:
    """Return what was read; of two statements about two things, neither replaces the other or comes first."""
    apart = [are_about_two_things(old, new) for old in clauses]
    whole, *likely = read[:, _REPLACES].tolist()
    return Relation(
        float(read[0, _SAME]),
        0.0 if apart and all(apart) else whole,
        tuple(0.0 if is_apart else one for is_apart, one in zip(apart, likely, strict=True)),
    )


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


def clauses_of(memory: OpenedMemory, over: Sequence[tuple[int, int]] = ()) -> list[tuple[int, int]]:
    """Return the spans of the clauses of a memory's text, without those that were replaced, and those that are ``over``."""
    gone = [(start, end) for start, end, _ in memory.replaced] + [*over]
    return [
        (start, end)
        for start, end in clause_spans(memory.record.text)
        if not any(first < end and start < last for first, last in gone)
    ]


def part_over(text: str, spans: Sequence[tuple[int, int]], relation: Relation) -> tuple[int, int] | None:
    """Return the span of the likeliest clause, and of those around it that are surely over as well; None for all of them.

    A bare value that would be left says nothing without the rest: "4471" of "gate code, 4471", "18 km" of "long run, 18 km".
    """
    if len(spans) <= 1:
        return None
    first = last = relation.clauses.index(relation.likeliest)
    while first > 0 and relation.clauses[first - 1] >= _GOES_WITH_FROM:
        first -= 1
    while last + 1 < len(spans) and relation.clauses[last + 1] >= _GOES_WITH_FROM:
        last += 1
    left = " ".join(text[slice(*span)] for span in (*spans[:first], *spans[last + 1 :]))
    return None if not left or _is_bare(left) else (spans[first][0], spans[last][1])


def _is_bare(text: str) -> bool:
    """Return whether a text is nothing but a value."""
    return any(map(str.isdigit, text)) and sum(map(str.isalpha, text)) <= _LETTERS_OF_A_UNIT


def clause_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and the end of each clause of a text, each up to the beginning of the next one of its sentence.

    One ends with a comma or the like, or before an "and" with several words on either side.

    Example:
        >>> [text[slice(*span)] for text in ["we meet on Mondays, bring a pen"] for span in clause_spans(text)]
        ['we meet on Mondays, ', 'bring a pen']
    """
    lang = guess_language(text)
    word, i_am = _AND.get(lang), re.compile(rf"(?:{_I_AM.get(lang, '(?!)')})\s", re.IGNORECASE)
    spans = []
    for start, end in split_sentences(text):
        starts = [start, *(found.end() for found in _CLAUSE_END.finditer(text, start, end))]
        for first, last in pairwise([*starts, end]):
            begun = first
            for joint in re.finditer(rf"\s(?=(?:{word})\s)", text[first:last]) if word else ():
                at = first + joint.end()
                first_words = len(text[begun:at].split()) + bool(i_am.match(text, begun))
                if min(first_words, len(text[at:last].split()) - 1) >= _FEWEST_WORDS:
                    spans.append((begun, at))
                    begun = at
            spans.append((begun, last))
    return spans


def thing_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and the end of each thing that a text joins with commas or "and".

    Example:
        >>> [text[slice(*span)] for text in ["on lithium 600 and lamotrigine 100"] for span in thing_spans(text)]
        ['on lithium 600 ', 'and lamotrigine 100']
    """
    word = _AND.get(guess_language(text), _ANY_AND)
    joint = re.compile(rf"\s(?=(?:{word})\s)|{_JOINED.pattern}", re.IGNORECASE)
    spans: list[tuple[int, int]] = []
    for start, end in clause_spans(text):
        starts = [start, *(found.end() for found in joint.finditer(text, start + 1, end - 1))]
        spans += pairwise([*starts, end])
    return spans


async def _nearest(opened: OpenNamespace, new: Record, vector: Vector) -> AsyncIterator[_Near]:
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
                yield _Near(memory, hit.cosine or 0.0, hit.covered)
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
