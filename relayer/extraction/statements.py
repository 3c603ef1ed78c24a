"""The ``statements`` extractor: keeps turns that state something that lasts, without a language model.

A sentence that passes keeps its whole turn, because a memory read months later needs the words around it, and because facts cut
out of their turns lose a quarter of what questions ask for; a long turn is cut to such sentences and their neighbours. The
extractor favours recall: ranking can lower a trivial memory, but nothing restores a dropped one.

Fifteen languages are judged by `relayer.lib.n_grams.read_message`, English by rules as well. Turns in other languages are kept
unless they only ask or only exchange courtesies. Messages of tools and the system are never kept, nor an assistant's repetitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from relayer.domain.operations import Kind, Role, Trust
from relayer.extraction.normal_text import normal_text
from relayer.extraction.rules import (
    NOTHING,
    PASSES,
    Verdict,
    asks_to_recall,
    judge_assistant_sentence,
    judge_user_sentence,
)
from relayer.extraction.words import (
    UNDETERMINED,
    Phrases,
    clean,
    guess_language,
    has_words,
    is_question,
    mask_non_prose,
    read_text,
    split_sentences,
    words_of,
)
from relayer.lib.n_grams import LANGUAGES, UNSPACED, MessageReading, read_message

READ_LANGUAGES = frozenset({*LANGUAGES, UNDETERMINED})
_COURTESIES = Phrases(read_text("courtesies.txt"))

_DENSE_FROM = 0x2E80
_FEWEST_DENSE_CHARACTERS = 4
_FEWEST_WORDS = 2
# Several of them after one another.
_LONGEST_COURTESY = 200


def is_courtesy(sentence: str) -> bool:
    """Return whether the sentence consists of known courtesies alone, in any of the listed languages."""
    if len(sentence) > _LONGEST_COURTESY:
        return False
    words = words_of(normal_text(sentence))
    return bool(words) and _COURTESIES.covers(words) == len(words)


def judge_unruled_sentence(sentence: str) -> Verdict:
    """Judge a sentence of a language without rules: it passes unless it asks, greets, or says next to nothing."""
    if is_question(sentence) or is_courtesy(sentence):
        return NOTHING
    # Scripts without spaces between words are counted by character; a Thai sentence is one long "word", too.
    dense = sum(ord(char) >= _DENSE_FROM and char.isalpha() for char in sentence)
    words = words_of(sentence)
    long_word = any(len(word.shape) >= 12 for word in words)
    if dense >= _FEWEST_DENSE_CHARACTERS or len(words) >= _FEWEST_WORDS or long_word:
        return Verdict(PASSES, Kind.STATEMENT)
    return NOTHING


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
        text: the whole turn, verbatim but for `relayer.extraction.words.clean`.
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


@dataclass(frozen=True, slots=True)
class Left:
    """A turn that is not worth remembering, and the reason.

    Attributes:
        turn: its index in the sequence given to the extractor.
        reason: one word: ``role`` (a tool or the system said it), ``empty`` (it has no words), ``code``, ``echo``,
            ``question``, ``courtesy``, ``hedge``, ``one_off`` (a request or its answer that is of use once), ``reply`` (an
            assistant's, which brings no result) or ``too_short``.
    """

    turn: int
    reason: str


class Extractor(Protocol):
    """The interface of extractors, which choose what of a conversation is worth remembering."""

    @property
    def name(self) -> str:
        """Return the stable name, recorded with every memory that the extractor proposes."""
        ...

    @property
    def version(self) -> str:
        """Return the version, which changes whenever the same turns may give other candidates."""
        ...

    def steps(self, turns: Sequence[Turn]) -> Iterator[Candidate | Left | None]:
        """Process ``turns`` one after the other, in their order; yield None where nothing is decided yet."""
        ...


_BASE_IMPORTANCE: dict[Kind, float] = {
    Kind.DECISION: 0.7,
    Kind.PREFERENCE: 0.7,
    Kind.TASK: 0.55,
    Kind.FACT: 0.55,
    Kind.EVENT: 0.5,
    Kind.STATEMENT: 0.35,
}
# The logits from which a message, or a sentence of several, is worth keeping; `bench.message_reader` measures them.
_WORTH = {Role.USER: -0.5, Role.ASSISTANT: -0.5}
# Below these logits a sentence is dropped even if the English rules let it pass.
_WORTHLESS = {Role.USER: -2.5, Role.ASSISTANT: -3.5}
# Added to that threshold for a question, which may contain a fact, and for what the English rules did not let pass.
_ASKING = 1.0
_RULED = 1.0
# A sentence is enough to keep its message only when it is this certain; so is one of a long text, much of which is no news.
_SURE = 0.7
# Longer turns are cut to their statements: memories of about this many characters, and at most this many of them.
_LONG = 2_000
_PIECE = 1_200
_MOST_PIECES = 20
# The limits of what is judged of a turn, in characters of a sentence and in sentences: all that the protocol lets through.
_LONGEST_SENTENCE = 1_000
_MOST_SENTENCES = 2_000
# The number of sentences between two steps, after each of which the caller checks its time.
_SENTENCES_A_STEP = 2
# An assistant's sentence that repeats this share of what was said shortly before is an echo.
_ECHOED = 0.6
_REMEMBERED_TURNS = 4
_STEM = 5


@dataclass(frozen=True, slots=True)
class _Hit:
    span: tuple[int, int]
    verdict: Verdict
    worth: float


@dataclass(frozen=True, slots=True)
class _Before:
    """The context in which a turn is judged: participants, whether it answers a question, and pieces of earlier words."""

    present: frozenset[str]
    answering: bool
    said: frozenset[str]


class StatementExtractor:
    """The extractor that keeps statements worth remembering; see the module for the intent."""

    @property
    def name(self) -> str:
        """Return ``statements``."""
        return "statements"

    @property
    def version(self) -> str:
        """Return the version of the rules and weights."""
        return "4"

    def extract(self, turns: Sequence[Turn]) -> list[Candidate]:
        """Return candidates, in order: one for each turn worth keeping, several for a long one."""
        return [found for found in self.steps(turns) if isinstance(found, Candidate)]

    def steps(self, turns: Sequence[Turn]) -> Iterator[Candidate | Left | None]:
        """Process one turn after the other; linear in the length of the texts, and bounded for each."""
        present = frozenset(
            part.lower() for turn in turns if turn.speaker for part in turn.speaker.split() if len(part) > 1
        )
        for index, turn in enumerate(turns):
            answering = index > 0 and turns[index - 1].role != Role.TOOL and _asks(turns[index - 1].text)
            earlier = turns[max(0, index - _REMEMBERED_TURNS) : index] if turn.role is Role.ASSISTANT else ()
            said = frozenset[str]().union(*(_pieces(other.text[:_LONG]) for other in earlier))
            yield from _judged(turn, index, _Before(present, answering, said))


def _judged(turn: Turn, index: int, before: _Before) -> Iterator[Candidate | Left | None]:
    if turn.role in {Role.TOOL, Role.SYSTEM}:
        yield Left(index, "role")
        return
    text = clean(turn.text)
    yield None
    prose = mask_non_prose(text)
    yield None
    if not has_words(prose):
        yield Left(index, "code" if has_words(text) else "empty")
        return
    lang = guess_language(prose)
    hits: list[_Hit] = []
    yield None
    spans = list(islice(_sentences(prose), _MOST_SENTENCES))
    yield None
    whole = read_message(prose, turn.role) if len(text) <= _LONG else MessageReading(float("-inf"), "one_off")
    for number, span in enumerate(spans):
        hits.append(_judge(turn, prose, span, lang, before, whole=whole, alone=len(spans) == 1))
        if number % _SENTENCES_A_STEP == _SENTENCES_A_STEP - 1:
            yield None
    passed = [hit for hit in hits if hit.verdict.passes]
    if not passed:
        yield Left(index, _reason(turn, prose, spans, whole, before))
    elif len(text) <= _LONG:
        yield _candidate(turn, index, text, lang, ((0, len(text)), max(passed, key=_rank)))
    else:
        for part in _cut(spans, hits):
            yield _candidate(turn, index, text, lang, part)


def _rank(hit: _Hit) -> tuple[float, float]:
    return hit.verdict.score, hit.worth


def _candidate(turn: Turn, index: int, text: str, lang: str, part: tuple[tuple[int, int], _Hit]) -> Candidate:
    (start, end), hit = part
    return Candidate(
        text=text[start:end],
        kind=hit.verdict.kind,
        importance=_importance(hit.verdict),
        lang=lang,
        speaker=turn.speaker,
        role=turn.role,
        occurred_at_ms=turn.occurred_at_ms,
        turn_ids=() if turn.turn_id is None else (turn.turn_id,),
        evidence=(hit.span[0] - start, hit.span[1] - start),
        context_index=index - 1 if index else None,
        trust=Trust.USER if turn.role == Role.USER else Trust.ASSISTANT,
    )


def _cut(spans: Sequence[tuple[int, int]], hits: Sequence[_Hit]) -> list[tuple[tuple[int, int], _Hit]]:
    """Return the best parts of a long text, in their order, each with its best sentence.

    A part consists of sentences that pass, each with the one before and the one after it.
    """
    parts: list[tuple[int, int, _Hit]] = []
    for number, hit in enumerate(hits):
        if not hit.verdict.passes:
            continue
        start = spans[max(0, number - 1)][0]
        end = spans[min(len(spans) - 1, number + 1)][1]
        if parts and start <= parts[-1][1] and end - parts[-1][0] <= _PIECE:
            begun, _, best = parts.pop()
            parts.append((begun, end, max(best, hit, key=_rank)))
            continue
        start = max(start, parts[-1][1]) if parts else start
        parts.append((min(start, hit.span[0]), end, hit))
    best_parts = sorted(parts, key=lambda part: _rank(part[2]), reverse=True)[:_MOST_PIECES]
    return [
        ((start, max(end, hit.span[1])), hit)
        for start, end, hit in sorted(best_parts, key=lambda part: part[:2])
    ]


def _sentences(prose: str) -> Iterator[tuple[int, int]]:
    """Yield the sentences; one that is too long is split, at spaces where it has any."""
    for start, end in split_sentences(prose):
        at = start
        while end - at > _LONGEST_SENTENCE:
            cut = prose.rfind(" ", at + _LONGEST_SENTENCE // 2, at + _LONGEST_SENTENCE)
            cut = at + _LONGEST_SENTENCE if cut < 0 else cut
            yield at, cut
            at = cut
        yield at, end


def _judge(
    turn: Turn,
    prose: str,
    span: tuple[int, int],
    lang: str,
    before: _Before,
    *,
    whole: MessageReading,
    alone: bool,
) -> _Hit:
    """Judge a sentence by the classifier, applied to its message and to itself, and by the rules if it may be English."""
    sentence = prose[slice(*span)]
    asks = is_question(sentence)
    if is_courtesy(sentence) or (turn.role is Role.ASSISTANT and (asks or _echoes(sentence, before.said))):
        return _Hit(span, NOTHING, 0.0)
    if lang not in READ_LANGUAGES:
        return _Hit(span, judge_unruled_sentence(sentence), 0.0)
    reading = whole if alone else read_message(sentence, turn.role)
    ruled = NOTHING
    if lang in {"en", UNDETERMINED}:
        if turn.role is Role.USER and asks_to_recall(sentence):
            return _Hit(span, NOTHING, 0.0)
        ruled = (
            judge_user_sentence(sentence, before.present, answering=before.answering)
            if turn.role is Role.USER
            else judge_assistant_sentence(sentence, before.present)
        )
    worth = max(whole.worth, reading.worth)
    if ruled.passes and worth > _WORTHLESS[turn.role]:
        return _Hit(span, ruled, reading.worth)
    doubt = (_ASKING if asks else 0.0) + (_RULED if lang == "en" else 0.0)
    if whole.worth >= _WORTH[turn.role] + doubt or (not alone and reading.worth >= _SURE + doubt):
        return _Hit(span, Verdict(max(PASSES, ruled.score), ruled.kind), reading.worth)
    return _Hit(span, NOTHING, reading.worth)


def _reason(
    turn: Turn, prose: str, spans: Sequence[tuple[int, int]], whole: MessageReading, before: _Before
) -> str:
    """Return the reason, in one word, why nothing of a turn is kept."""
    said = [prose[slice(*span)] for span in spans[:_SENTENCES_A_STEP]]
    if all(map(is_courtesy, said)):
        return "courtesy"
    if turn.role is Role.ASSISTANT and any(_echoes(sentence, before.said) for sentence in said):
        return "echo"
    if all(map(is_question, said)):
        return "question"
    return whole.otherwise


def _pieces(text: str) -> frozenset[str]:
    """Return the pieces that are compared to find an echo: beginnings of words, or pairs of characters without spaces."""
    found: set[str] = set()
    for word in words_of(text):
        if UNSPACED.search(word.lower):
            found.update(word.lower[at : at + 2] for at in range(len(word.lower) - 1))
        elif len(word.lower) > 2 or word.lower.isdecimal():
            found.add(word.lower[:_STEM])
    return frozenset(found)


def _echoes(sentence: str, said: frozenset[str]) -> bool:
    pieces = _pieces(sentence)
    return bool(pieces) and len(pieces & said) >= _ECHOED * len(pieces)


def _importance(verdict: Verdict) -> float:
    """Return an importance between the kind's base and 0.3 above it, by how far the score is over the threshold."""
    surplus = min(max(verdict.score - PASSES, 0.0), 0.6)
    return round(_BASE_IMPORTANCE[verdict.kind] + surplus / 2, 3)


def _asks(text: str) -> bool:
    """Return whether the end of a turn is a question; only the last characters are read."""
    tail = text[-400:]
    spans = split_sentences(tail)
    return bool(spans) and is_question(tail[slice(*spans[-1])])
