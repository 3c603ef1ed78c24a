"""What people say in any language without saying anything, and the rule for languages that have no rules.

Without rules for a language, a sentence is kept unless it asks, is a known courtesy, or is too short to say anything:
keeping a triviality is the cheaper mistake.
"""

from __future__ import annotations

from relayer.domain.record import Kind
from relayer.extraction.normal_text import normal_text
from relayer.extraction.rules import NOTHING, PASSES, Verdict
from relayer.extraction.sentences import is_question
from relayer.extraction.words import Phrases, read_text, words_of

__all__ = ["is_courtesy", "judge_unruled_sentence"]

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
