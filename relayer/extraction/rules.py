"""Rules that judge one English sentence: whether it is worth remembering, and what kind of statement it is.

A score is a sum of cues; 1.0 is a plain personal statement with something definite in it. The weights were set on labelled
transcripts and on the development half of LoCoMo, in favour of recall: a trivial memory costs a little ranking, a dropped fact
is lost. ``bench/extraction.py`` prints the accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relayer.domain.operations import Kind
from relayer.extraction import english as en
from relayer.extraction.words import Word, is_question, words_of

PASSES = 0.4


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a sentence: it passes from `PASSES` on; ``kind`` has a meaning only then."""

    score: float
    kind: Kind

    @property
    def passes(self) -> bool:
        """Return whether the sentence makes its turn worth keeping."""
        return self.score >= PASSES


NOTHING = Verdict(0.0, Kind.STATEMENT)


def judge_user_sentence(sentence: str, addressees: frozenset[str], *, answering: bool = False) -> Verdict:
    """Judge what a person said.

    Args:
        sentence: the sentence, without markup.
        addressees: the lower-case names of the people present.
        answering: whether the turn before asked something; then a bare answer ("Two, Max and Daisy") is informative.
    """
    full = words_of(sentence)
    words = _without_interjections(full, addressees)
    if en.MEMORY_CUES.found_in(full):
        return Verdict(1.0, _kind(words, sentence)) if len(words) >= 3 else NOTHING
    if not words or _is_small_talk(words):
        return NOTHING
    if is_question(sentence):
        return _judge_question(words)
    definite = _definiteness(words, addressees)
    substance = _substance(words, addressees)
    score = definite + substance + _personal(words) + (0.25 if answering else 0.0)
    if en.DECISIONS.found_in(words):
        score += 0.3
    if en.NAMING.found_in(words):
        score += 0.15
    if en.PREFERENCES.found_in(words):
        score += 0.2
    if _instructs(words):
        score += 0.35
    if words[0].lower in en.COMMANDS and not en.INSTRUCTIONS.found_in(words):
        score -= 0.5
    return Verdict(round(score, 3), _kind(words, sentence))


def judge_assistant_sentence(sentence: str, addressees: frozenset[str]) -> Verdict:
    """Judge what an assistant said: decisions, results and commitments count; courtesy, advice and echoes do not."""
    full = words_of(sentence)
    words = _without_interjections(full, addressees)
    if len(words) < 3 or is_question(sentence) or en.OFFERS.at(words, 0) or en.RESTATEMENTS.at(words, 0):
        return NOTHING
    if en.GREETINGS.at(words, 0) or en.PARTINGS.at(words, 0) or en.AGREEMENT.at(words, 0):
        return NOTHING
    definite = _definiteness(words, addressees)
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
    if en.ADVICE_OPENERS.at(words, 0):
        score -= 0.5
    return Verdict(round(score, 3), _kind(words, sentence))


def asks_to_recall(sentence: str) -> bool:
    """Return whether the sentence asks for a memory: "Remind me where I parked, please." contains nothing to remember."""
    words = _without_interjections(words_of(sentence), frozenset())
    opened = en.REQUEST_OPENERS.covers(words)
    return ":" not in sentence and en.RECALL_REQUESTS.at(words, opened) > 0


def _without_interjections(words: Sequence[Word], addressees: frozenset[str]) -> list[Word]:
    """Drop leading interjections and names of addressees: "Oh wow, Sam, I moved" becomes "I moved"."""
    position = 0
    while position < len(words):
        taken = en.INTERJECTIONS.at(words, position)
        if not taken and words[position].lower in addressees:
            taken = 1
        if not taken:
            break
        position += taken
    return list(words[position:])


def _is_small_talk(words: Sequence[Word]) -> bool:
    """Return whether the words are a greeting, a parting, or an agreement without further content."""
    if en.GREETINGS.at(words, 0) or en.PARTINGS.at(words, 0):
        return len(words) <= 12
    return en.AGREEMENT.at(words, 0) > 0 and len(words) <= 14 and not en.DATES.found_in(words)


def _judge_question(words: Sequence[Word]) -> Verdict:
    """Judge a question, which is informative only if it opens with a statement: "I moved to Ulm in May, know a good baker?"."""
    opener = words[0].lower
    tells = opener in en.FIRST_PERSON_SUBJECT or (
        opener in en.ELIDED_FIRST_PERSON and en.DATES.found_in(words)
    )
    if not tells or len(words) < 8:
        return NOTHING
    return Verdict(PASSES, Kind.STATEMENT) if _substance(words, frozenset()) >= 0.15 else NOTHING


def _personal(words: Sequence[Word]) -> float:
    """Return the score of cues that the sentence is about the speaker, less those that it is about the listener."""
    lowered = [word.lower for word in words]
    score = 0.0
    if any(word in en.FIRST_PERSON for word in lowered) and not _only_hedged(words):
        score += 0.25
    elif lowered[0] in en.ELIDED_FIRST_PERSON:
        score += 0.2
    elif en.THIRD_PERSON_SUBJECT.at(words, 0):
        score += 0.15
    if lowered[0] in en.FIRST_PERSON_SUBJECT:
        score += 0.1
    if any(word in en.POSSESSIVES for word in lowered):
        score += 0.1
    if en.PRAISE_OPENERS.at(words, 0):
        score -= 0.2
    if en.AGREEMENT.at(words, 0):
        score -= 0.15
    return score


def _only_hedged(words: Sequence[Word]) -> bool:
    """Return whether the first person occurs only in formulas such as "let me know"."""
    uses = sum(word.lower in en.FIRST_PERSON for word in words)
    formulas = sum(en.HEDGED_FIRST_PERSON.at(words, position) > 0 for position in range(len(words)))
    return formulas >= uses


def _definiteness(words: Sequence[Word], addressees: frozenset[str]) -> float:
    """Return the score of dates, numbers and names, which make a sentence checkable."""
    score = 0.0
    if en.DATES.found_in(words):
        score += 0.2
    if any(word.lower in en.NUMBER_WORDS or any(map(str.isdigit, word.shape)) for word in words):
        score += 0.2
    if any(_is_name(word, addressees) for word in words[1:]):
        score += 0.2
    return score


def _is_name(word: Word, addressees: frozenset[str]) -> bool:
    return (
        len(word.shape) > 1
        and any(map(str.isupper, word.shape))
        and word.lower not in addressees
        and word.lower not in en.FIRST_PERSON
    )


def _substance(words: Sequence[Word], addressees: frozenset[str]) -> float:
    """Return the score of what is left without function words and praise."""
    content = sum(word.lower not in en.EMPTY_WORDS and word.lower not in addressees for word in words)
    if content >= 5:
        return 0.25
    if content >= 3:
        return 0.15
    return 0.05 if content >= 2 else -0.1


def _instructs(words: Sequence[Word]) -> bool:
    return en.INSTRUCTIONS.at(words, 0) > 0 or any(word.lower in {"always", "never"} for word in words[:4])


def _kind(words: Sequence[Word], sentence: str) -> Kind:
    """Return the first kind whose cue occurs, the most specific first."""
    if en.DECISIONS.found_in(words):
        return Kind.DECISION
    if en.PREFERENCES.found_in(words) or (bool(words) and _instructs(words)):
        return Kind.PREFERENCE
    if en.TASKS.found_in(words):
        return Kind.TASK
    if en.DATES.found_in(words):
        return Kind.EVENT
    states = any(word.lower in {"is", "are", "was", "has", "have", "runs", "uses", "i'm"} for word in words)
    definite = any(map(str.isdigit, sentence)) or any(_is_name(word, frozenset()) for word in words[1:])
    return Kind.FACT if states and definite else Kind.STATEMENT
