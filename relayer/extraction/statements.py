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

from relayer.domain.record import Kind, Role, Trust
from relayer.extraction.courtesies import judge_unruled_sentence
from relayer.extraction.language import UNDETERMINED, guess_language
from relayer.extraction.prose import clean, has_words, mask_non_prose
from relayer.extraction.rules import (
    NOTHING,
    PASSES,
    Verdict,
    judge_assistant_sentence,
    judge_user_sentence,
    says_nothing_in_english,
)
from relayer.extraction.sentences import is_question, split_sentences
from relayer.extraction.turns import Candidate, Turn

__all__ = ["StatementExtractor"]

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
