"""From text to terms: the text that is searched, its words folded and shortened, and which of them are names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from relayer.lib.n_grams import UNSPACED
from relayer.wire.fields import stream_safe

# Runs of letters and digits; an apostrophe inside a word ends it ("Maria's" is about Maria).
WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
LONGEST = 40
# As how many terms a text is searched, and from how many characters for each of them, before and after compatibility
# forms are folded: by its first 6,144 characters. It may be ten times as long, and is indexed in one step of the loop.
MOST_TERMS = 512
CHARACTERS = 12
_MOST_STEMS = 4_096

# By how many characters the compatibility form of one is longer, of all that have longer ones: up to seventeen.
GROWTH = {
    char: length - 1
    for first, last in (
        *((0xA8, 0x385), (0x587, 0x678), (0x958, 0xB5D), (0xE33, 0xFB9), (0x1E9A, 0x2230), (0x2469, 0x24B5)),
        *((0x2A0C, 0x2ADC), (0x309B, 0x33FF), (0xFB00, 0xFFE3), (0x1D15E, 0x1D1C0), (0x1F100, 0x1F248)),
    )
    for char in map(chr, range(first, last + 1))
    if (length := len(unicodedata.normalize("NFKC", char))) > 1
}
GROWING = re.compile(f"[{''.join(map(re.escape, GROWTH))}]")

# Words that carry no topic: a match on them alone is no evidence.
TOPICLESS = """
a about after all also am an and any are as at be because been before being but by can could did do does
doing done for from had has have having he her hers him his how i if in into is it its just me mine more
most must my no nor not now of off on once only or other our ours out over own s shall she should so
some such t than that the their theirs them then there these they this those to too under until up us
very was we were what when where which while who whom whose why will with would you your yours
"""
FUNCTION_WORDS = frozenset(TOPICLESS.split())
# Indexed texts write a month with three letters (`relayer.search.terms`), questions write it out.
_MONTH_WORDS = {
    month: month[:3]
    for month in (
        *("january", "february", "march", "april", "june", "july", "august"),
        *("sept", "september", "october", "november", "december"),
    )
}


class Stems(dict[str, str | None]):
    """Terms by word, worked out once: most words of a text stood in the ones before it.

    Words are what texts are made of: this belongs to one namespace, and is cleared with what goes from it.
    """

    def __missing__(self, word: str) -> str | None:
        if len(self) >= _MOST_STEMS:
            self.clear()
        stem = self[word] = _stem(word)
        return stem


def terms(text: str, most: int = MOST_TERMS, stems: Stems | None = None) -> list[str]:
    """Terms of a text's beginning, in order, repeated as often as they occur; at most ``most``, of twelve characters each."""
    folded = _folded(text, most * CHARACTERS)
    stems = Stems() if stems is None else stems
    if folded.isascii():  # most are: no word of theirs is without spaces
        return [stem for word in WORD.findall(folded) if (stem := stems[word[:LONGEST]]) is not None][:most]
    found: list[str] = []
    for match in WORD.finditer(folded):
        if len(found) >= most:
            break
        word = match.group()[:LONGEST]
        # Of scripts without spaces every character is a term, and so is every pair of neighbours.
        if UNSPACED.search(word):
            found += list(word)
            found += [word[at : at + 2] for at in range(len(word) - 1)]
        elif (stem := stems[word]) is not None:
            found.append(stem)
    return found[:most]


def _folded(text: str, characters: int) -> str:
    """The compatibility form of a text's beginning, without case; less of a text that grows by it."""
    text = text[:characters]
    if text.isascii():
        return text.casefold()
    room = characters // 4
    for found in GROWING.finditer(text):
        room -= GROWTH[found.group()]
        if room < 0:
            text = text[: found.start()]
            break
    return unicodedata.normalize("NFKC", stream_safe(text))[:characters].casefold()


def _stem(word: str) -> str | None:
    word = re.split("['\u2019]", word)[0]
    if not word or word in FUNCTION_WORDS:
        return None
    if word in _MONTH_WORDS:
        return _MONTH_WORDS[word]
    if not word.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c)) or word
    else:
        plain = word
    return _without_ending(plain) if plain.isascii() and plain.isalpha() else plain


def _without_ending(word: str) -> str:
    """A light English stem: plural, past and progressive endings, and a final e or y, made alike."""
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-2] if word.endswith(("sses", "shes", "ches", "xes", "zes")) else word[:-1]
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 2 and any(vowel in stem for vowel in "aeiouy"):
            word = stem[:-1] if stem[-1] == stem[-2] and stem[-1] not in "lsz" else stem
            break
    if len(word) > 3 and word.endswith("e"):
        return word[:-1]
    return word[:-1] + "i" if len(word) > 2 and word.endswith("y") else word


# English on purpose and independent of the machine's locale: the text must be the same on every replica.
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# About 100 tokens: an embedding model that reads 256 still sees what follows.
CONTEXT_CHARACTERS = 400


def indexed_text(speaker: str | None, occurred_at: int | None, text: str) -> str:
    """What is embedded and indexed for a memory: ``"Speaker (8 May 2023): text"``.

    Args:
        speaker: who said it, if known.
        occurred_at: when, in ms since the epoch, if known; the day is that of UTC. A time that no calendar
            holds counts as unknown.
        text: the memory's text.
    """
    day = _day(occurred_at)
    if speaker and day:
        return f"{speaker} ({day}): {text}"
    if speaker:
        return f"{speaker}: {text}"
    return f"({day}) {text}" if day else text


def context_text(previous: str, own: str) -> str:
    """A memory's indexed text after the indexed text of the turn before it, whose end counts more than its start."""
    return f"{previous[-CONTEXT_CHARACTERS:]}\n{own}"


def _day(occurred_at: int | None) -> str | None:
    if occurred_at is None:
        return None
    try:
        date = EPOCH + timedelta(milliseconds=occurred_at)
    except OverflowError:
        return None
    return f"{date.day} {MONTHS[date.month - 1]} {date.year}"


# What `indexed_text` puts before a text that has a day.
_HEADER = re.compile(r"[^\n]{0,80}?\(\d{1,2} [A-Z][a-z]{2} \d{4}\):? ")
_SENTENCE = re.compile("[^.!?\u061f\u3002\uff01\uff1f\n]+[.!?\u061f\u3002\uff01\uff1f]*")
_QUESTION = re.compile("[?\u061f\uff1f]")
# A statement has one or two of them, and a text that is written to be near every question has many.
_QUESTION_WORD = re.compile(
    r"\b(?:what|where|when|who|whose|whom|which|why|how|was|wo|wann|wer|wie|warum|welche[rs]?|wessen|qué|quién|cuándo|dónde|cuál|cómo"
    r"|quoi|qui|quand|où|quel(?:le)?|comment|pourquoi|cosa|chi|quando|dove|quale|perché)\b|什么|哪里|哪儿|谁|什么时候|为什么|怎么|多少",
    re.IGNORECASE,
)
_MANY_QUESTION_WORDS = 5
_MANY_QUESTIONS = 4
# Of its characters: a story has many of them, too, among others.
_QUESTION_SHARE = 0.1
# A text of as many terms repeats itself if fewer than this share of them are different: of ordinary ones half are.
_REPETITIVE_TERMS = 256
_LEAST_DISTINCT = 0.15
# A turn with as many terms tells as much as any: more would put short facts behind long turns (docs/adr/0025). As many are
# read, and questions are looked for in as many characters.
TOLD_TERMS = 4
_TOLD_READ = 16
_TOLD_CHARACTERS = 1_000


def told(indexed: str, stems: Stems | None = None) -> int:
    """How many terms an indexed text has outside of its header and of its questions, at most `TOLD_TERMS`; -1 for a list of questions."""
    header = _HEADER.match(indexed)
    start = header.end() if header else 0
    statements = indexed[start : start + _TOLD_CHARACTERS]
    asked = [word.casefold() for word in _QUESTION_WORD.findall(statements)]
    if len(set(asked)) >= _MANY_QUESTION_WORDS and sum(map(len, asked)) >= _QUESTION_SHARE * len(statements):
        return -1
    if _QUESTION.search(statements):
        sentences = _SENTENCE.findall(statements)
        told_ones = [one for one in sentences if not _QUESTION.search(one)]
        statements = " ".join(told_ones)
        if len(sentences) - len(told_ones) >= _MANY_QUESTIONS and not terms(statements, 1, stems):
            return -1
    return min(TOLD_TERMS, len(terms(statements, _TOLD_READ, stems)))


def variety(counts: Mapping[str, float]) -> float:
    """Return 1, or of a text that repeats itself the share of its terms that are different, by how often each occurs."""
    total = sum(counts.values())
    distinct = len(counts) / total if total >= _REPETITIVE_TERMS else 1.0
    return distinct if distinct < _LEAST_DISTINCT else 1.0


NAME_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
APOSTROPHE = re.compile("['\u2019]")
# Ends of sentences, and what may open one: the first word after it is capitalised for that alone.
STARTS = re.compile(r"(?:^|[.?!:;\n])[\s\"'\u201c\u2018(\[*-]*$")
# English function words that are German, too, do not show that a query is English.
ENGLISH = FUNCTION_WORDS - frozenset(
    ["am", "also", "an", "do", "has", "her", "in", "me", "no", "on", "s", "so", "t", "was", "will"]
)
# A title, or a headline, capitalises nearly everything.
MOST_CAPITALISED = 0.5
# Times are matched as terms; that a day occurs in no memory says nothing about who is asked for.
CALENDAR = frozenset(
    [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
        "christmas",
        "easter",
    ]
)
LONGEST_QUERY = 2_000


def names(query: str) -> tuple[str, ...]:
    """Words of an English query that are spelt like names, as they stand there; none for any other query."""
    found: list[str] = []
    words = 0
    english = False
    text = query[:LONGEST_QUERY]
    for match in NAME_WORD.finditer(text):
        # "Maria's" is about Maria, and "I'm" names nobody.
        word = APOSTROPHE.split(match.group())[0]
        words += 1
        english = english or word.casefold() in ENGLISH
        if (
            word[0].isupper()
            and len(word) > 1
            and not STARTS.search(text[max(0, match.start() - 8) : match.start()])
        ):
            found.append(word)
    if not english or len(found) > MOST_CAPITALISED * words:
        return ()
    return tuple(
        name for name in found if name.casefold() not in CALENDAR and name.casefold() not in FUNCTION_WORDS
    )
