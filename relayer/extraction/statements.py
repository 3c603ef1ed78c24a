"""The ``statements`` extractor: keeps whole turns that say something, without a model.

A sentence that passes the rules keeps its whole turn, because a memory read months later needs the words around it,
and because facts cut out of their turns lose a quarter of what questions ask for. It leans towards recall: ranking can
push a triviality down, nothing can bring back what was dropped.

English is judged by rules. Any other language, and any text whose language is not clear, is kept unless it only asks
or only exchanges courtesies. What tools and the system say is never kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from relayer.domain.operations import Kind, Role, Trust
from relayer.extraction.language import UNDETERMINED, guess_language
from relayer.extraction.normal_text import normal_text
from relayer.extraction.rules import (
    NOTHING,
    PASSES,
    Verdict,
    judge_assistant_sentence,
    judge_user_sentence,
    says_nothing_in_english,
)
from relayer.extraction.words import (
    Phrases,
    clean,
    has_words,
    is_question,
    mask_non_prose,
    read_text,
    split_sentences,
    words_of,
)

_COURTESIES = Phrases(read_text("courtesies.txt"))

_DENSE_FROM = 0x2E80
_FEWEST_DENSE_CHARACTERS = 4
_FEWEST_WORDS = 2
# Several of them after one another.
_LONGEST_COURTESY = 200


def is_courtesy(sentence: str) -> bool:
    """Whether the sentence is made of known courtesies alone, in any of the listed languages."""
    if len(sentence) > _LONGEST_COURTESY:
        return False
    words = words_of(normal_text(sentence))
    return bool(words) and _COURTESIES.covers(words) == len(words)


def judge_unruled_sentence(sentence: str) -> Verdict:
    """Judge a sentence of a language without rules: it passes unless it asks, greets, or says next to nothing."""
    if is_question(sentence) or is_courtesy(sentence):
        return NOTHING
    # Scripts without spaces between words are counted by character; a Thai sentence is one long "word" too.
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


_BASE_IMPORTANCE: dict[Kind, float] = {
    Kind.DECISION: 0.7,
    Kind.PREFERENCE: 0.7,
    Kind.TASK: 0.55,
    Kind.FACT: 0.55,
    Kind.EVENT: 0.5,
    Kind.STATEMENT: 0.35,
}
_TOO_FEW_TO_TELL = 3
# What of a turn is judged: its beginning, in sentences of so many characters and in so many of them. A turn is kept whole
# or not at all, and one that says nothing worth keeping in three pages is a document.
_READ_CHARACTERS = 8_192
_LONGEST_SENTENCE = 1_000
_MOST_SENTENCES = 250


@dataclass(frozen=True, slots=True)
class _Hit:
    span: tuple[int, int]
    verdict: Verdict


class StatementExtractor:
    """Keeps the turns that state something worth remembering; see the module for the rules' intent."""

    @property
    def name(self) -> str:
        """``statements``."""
        return "statements"

    @property
    def version(self) -> str:
        """Version of the rules."""
        return "2"

    def extract(self, turns: Sequence[Turn]) -> list[Candidate]:
        """Return one candidate for each turn worth keeping, in order."""
        return [candidate for candidate in self.steps(turns) if candidate is not None]

    def steps(self, turns: Sequence[Turn]) -> Iterator[Candidate | None]:
        """Look at one turn after the other; linear in the length of the texts, and bounded for each."""
        present = frozenset(
            part.lower() for turn in turns if turn.speaker for part in turn.speaker.split() if len(part) > 1
        )
        for index, turn in enumerate(turns):
            answering = index > 0 and turns[index - 1].role != Role.TOOL and _asks(turns[index - 1].text)
            yield _candidate(turn, index, present, answering=answering)


def _candidate(turn: Turn, index: int, present: frozenset[str], *, answering: bool) -> Candidate | None:
    if turn.role in {Role.TOOL, Role.SYSTEM}:
        return None
    text = clean(turn.text)
    prose = mask_non_prose(text[:_READ_CHARACTERS])
    if not has_words(prose):
        return None
    lang = guess_language(prose)
    best = _best_sentence(turn, prose, lang, present, answering=answering)
    if best is None:
        return None
    return Candidate(
        text=text,
        kind=best.verdict.kind,
        importance=_importance(best.verdict),
        lang=lang,
        speaker=turn.speaker,
        role=turn.role,
        occurred_at_ms=turn.occurred_at_ms,
        turn_ids=() if turn.turn_id is None else (turn.turn_id,),
        evidence=best.span,
        context_index=index - 1 if index else None,
        trust=Trust.USER if turn.role == Role.USER else Trust.ASSISTANT,
    )


def _best_sentence(
    turn: Turn, prose: str, lang: str, present: frozenset[str], *, answering: bool
) -> _Hit | None:
    """Return the passing sentence with the highest score, the first of equals."""
    best: _Hit | None = None
    for start, end in islice(_sentences(prose), _MOST_SENTENCES):
        verdict = _judge(turn, prose[start:end], lang, present, answering=answering)
        if verdict.passes and (best is None or verdict.score > best.verdict.score):
            best = _Hit((start, end), verdict)
    return best


def _sentences(prose: str) -> Iterator[tuple[int, int]]:
    """Yield sentences; one that does not end in time in pieces, at spaces where it has any."""
    for start, end in split_sentences(prose):
        at = start
        while end - at > _LONGEST_SENTENCE:
            cut = prose.rfind(" ", at + _LONGEST_SENTENCE // 2, at + _LONGEST_SENTENCE)
            cut = at + _LONGEST_SENTENCE if cut < 0 else cut
            yield at, cut
            at = cut
        yield at, end


def _judge(turn: Turn, sentence: str, lang: str, present: frozenset[str], *, answering: bool) -> Verdict:
    """Judge by English rules what is English, and leniently what is not."""
    if lang not in {"en", UNDETERMINED}:
        # Of two or three words the guess is hardly one: "go on" has a word of Polish.
        brief = len(sentence.split()) <= _TOO_FEW_TO_TELL and says_nothing_in_english(sentence, present)
        return NOTHING if brief else judge_unruled_sentence(sentence)
    if turn.role == Role.USER:
        verdict = judge_user_sentence(sentence, present, answering=answering)
    else:
        verdict = judge_assistant_sentence(sentence, present)
    if verdict.passes:
        return verdict
    own_lang = guess_language(sentence)
    if turn.role == Role.ASSISTANT and own_lang == UNDETERMINED and sentence.isascii():
        return verdict  # words without grammar: a list that was asked for, an echo, a name
    if own_lang == "en" or (own_lang == UNDETERMINED and lang == "en"):
        return verdict
    return NOTHING if says_nothing_in_english(sentence, present) else judge_unruled_sentence(sentence)


def _importance(verdict: Verdict) -> float:
    """Between the kind's base and 0.3 above it, by how far the sentence is over the threshold."""
    surplus = min(max(verdict.score - PASSES, 0.0), 0.6)
    return round(_BASE_IMPORTANCE[verdict.kind] + surplus / 2, 3)


def _asks(text: str) -> bool:
    """Whether the last thing a turn says is a question; only its end is looked at."""
    tail = text[-400:]
    spans = split_sentences(tail)
    return bool(spans) and is_question(tail[slice(*spans[-1])])
