"""Rules that judge one English sentence of an assistant: whether it is worth remembering.

A score is a sum of cues. The weights were set on labelled
transcripts and on the development half of LoCoMo, in favour of recall: a trivial memory costs a little ranking, a dropped fact
is lost. ``bench/extraction.py`` prints the accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence

from relayer.extraction import english as en
from relayer.extraction.words import Word, is_question, words_of

PASSES = 0.4


def judge_assistant_sentence(sentence: str) -> float:
    """Score what an assistant said: decisions, results and commitments count; courtesy, advice and echoes do not.

    Args:
        sentence: the sentence, without markup.

    Returns:
        The score; the sentence is worth keeping from `PASSES` on.
    """
    full = words_of(sentence)
    words = _without_interjections(full)
    if (
        len(words) < 3
        or is_question(sentence)
        or en.OFFERS.length_at(words, 0)
        or en.RESTATEMENTS.length_at(words, 0)
    ):
        return 0.0
    if (
        en.GREETINGS.length_at(words, 0)
        or en.PARTINGS.length_at(words, 0)
        or en.AGREEMENT.length_at(words, 0)
    ):
        return 0.0
    definite = _definiteness(words)
    score = definite
    lowered = {word.lower for word in words}
    first_person = not lowered.isdisjoint(en.FIRST_PERSON)
    work = not lowered.isdisjoint(en.WORK_DONE)
    if work and (first_person or words[0].lower in en.WORK_DONE):
        score += 0.45
    elif work:
        score += 0.15
    if en.FINDINGS.found_in(words):
        score += 0.4
    if en.COMMITMENTS.found_in(words):
        score += 0.35
    if not lowered.isdisjoint(en.MEASURES):
        score += 0.15
    if en.ADVICE_OPENERS.length_at(words, 0):
        score -= 0.5
    return round(score, 3)


def _without_interjections(words: Sequence[Word]) -> list[Word]:
    """Drop leading interjections: "Great, I moved it" becomes "I moved it"."""
    return list(words[en.INTERJECTIONS.covers(words) :])


def _definiteness(words: Sequence[Word]) -> float:
    """Return the score of dates, numbers and names, which make a sentence checkable."""
    score = 0.0
    if en.DATES.found_in(words):
        score += 0.2
    if any(word.lower in en.NUMBER_WORDS or any(map(str.isdigit, word.shape)) for word in words):
        score += 0.2
    if any(_is_name(word) for word in words[1:]):
        score += 0.2
    return score


def _is_name(word: Word) -> bool:
    return len(word.shape) > 1 and any(map(str.isupper, word.shape)) and word.lower not in en.FIRST_PERSON
