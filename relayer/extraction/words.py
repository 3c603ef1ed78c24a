"""Texts as sentences and words, the prose among them, sets of phrases, and a guess of the language.

Rules look words up in sets instead of running regular expressions over the text: this takes one dictionary lookup per word, so
that no text can make it slow.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

# Vowel signs and accents that Unicode counts as marks belong to the letter before them; `\w` leaves them out.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0903\u093a-\u094f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
_LETTERS = rf"(?:[^\W_]|[{_MARKS}])++"
_WORD = re.compile(rf"{_LETTERS}(?:['’_.-]{_LETTERS})*+")  # noqa: RUF001 - the typographic apostrophe is the point
_APOSTROPHES = str.maketrans("’", "'")  # noqa: RUF001 - the typographic apostrophe is the point


@dataclass(frozen=True, slots=True)
class Word:
    """One word: ``lower`` with a plain apostrophe for lookups, ``shape`` as written."""

    lower: str
    shape: str


def words_of(sentence: str) -> list[Word]:
    """Return the words of ``sentence``; inner apostrophes, hyphens, dots and underscores do not split a word."""
    return [Word(found.translate(_APOSTROPHES).lower(), found) for found in _WORD.findall(sentence)]


def read_text(name: str) -> str:
    """Return a list from a file in ``data``."""
    return (files("relayer.extraction") / "data" / name).read_text("utf-8")


def read_data(name: str) -> dict[str, Any]:
    """Return lists by their names, from a TOML file in ``data``."""
    return tomllib.loads(read_text(name))


def word_set(listing: str) -> frozenset[str]:
    """Return the words of a listing separated by whitespace."""
    return frozenset(listing.split())


class Phrases:
    """A set of phrases of one or more lower-case words, found by their first one or two words."""

    def __init__(self, lines: str) -> None:
        """Take phrases separated by ``,`` or line ends."""
        self._words: set[str] = set()
        self._longer: dict[str, dict[str, list[tuple[str, ...]]]] = {}
        for phrase in (part for line in lines.splitlines() for part in line.split(",")):
            first, *rest = phrase.split() or [""]
            if rest:
                by_second = self._longer.setdefault(first, {})
                by_second.setdefault(rest[0], []).append(tuple(rest))
            elif first:
                self._words.add(first)
        for by_second in self._longer.values():
            for known in by_second.values():
                known.sort(key=len, reverse=True)

    def length_at(self, words: Sequence[Word], position: int) -> int:
        """Return how many words the longest phrase starting at ``position`` has; 0 when none does."""
        if position >= len(words):
            return 0
        first = words[position].lower
        by_second = self._longer.get(first)
        # Most first words begin many phrases, and most second words none of them.
        if by_second is not None and position + 1 < len(words):
            for rest in by_second.get(words[position + 1].lower, ()):
                if position + len(rest) < len(words) and all(
                    words[position + offset].lower == part for offset, part in enumerate(rest, 1)
                ):
                    return 1 + len(rest)
        return 1 if first in self._words else 0

    def found_in(self, words: Sequence[Word]) -> bool:
        """Return whether any phrase occurs in ``words``."""
        return any(self.length_at(words, position) for position in range(len(words)))

    def covers(self, words: Sequence[Word]) -> int:
        """Return how many leading words phrases of this set cover, one after the other."""
        position = 0
        while taken := self.length_at(words, position):
            position += taken
        return position


# A run of terminators may start only where no terminator precedes it, and never gives characters back: every character
# is looked at a bounded number of times, whatever the text.
_BOUNDARY = re.compile(
    r"(?<![.!?…؟۔।])[.!?…؟۔।]++[\"'”’»)\]*_]*+(?=\s|$)"  # noqa: RUF001 - typographic quotes are the point
    r"|(?<![。！？])[。！？]++[」』”’）]*+"  # noqa: RUF001 - full-width marks are the point
    r"|\n"
)
_CLOSERS = "\"'”’»)]*_ 」』）"  # noqa: RUF001 - typographic quotes are the point
_ASKING = ("?", "？", "؟")  # noqa: RUF001 - the full-width form is the point
_ABBREVIATIONS = {name: word_set(listing) for name, listing in read_data("abbreviations.toml").items()}
_ABBREVIATED = re.compile(r"[^\s(\"'’«„]+$")  # noqa: RUF001 - the typographic apostrophe is the point
# What comes after the dot of one: a number, a word with a number ("Sok. No: 5"), or one letter ("Dpto. B, Rosario").
_NUMBERED = re.compile(r" (?:[+(#]?\d|[^\W\d_]{1,8}[.:]? ?\d|[^\W\d_](?:[,;.)\n]|$))")
_UNIT = re.compile(r"\d \w$")
# The first letter of a name, before the rest of it: "J. Kowalski", but not "So do I. Thanks".
_INITIAL = re.compile(r"(?<![^\W_])(?![IЯ])[^\W\d_]$")
# A number of one to three digits, with the word before it: dates, floors and streets have a dot in German and other languages.
_ORDINAL = re.compile(r"(\w*) (\d{1,3})$")
_SURE_DIGITS = 2
_LONGEST_FOLLOWING = 24
_SHORTEST_NAME = 3
_BEFORE_A_DATE = frozenset(
    {"am", "vom", "zum", "ab", "seit", "bis", "den", "der", "dem", "im", "ins", "die", "dnia", "od", "do"}
)
# A number after one of these is an hour: "freitags schon um 14. abholen darf auch oma".
_BEFORE_AN_HOUR = frozenset({"um", "at", "om", "à", "às", "las"})
_DATE = re.compile(r"(?<![\d.])\d{1,2}\.\s?\d{1,2}$")
# Signs that need no space after them, and those that do.
LIST_MARK = r"(?:[・•●○■□▪◦‣☐☑✓✔①-⑳❶-❿][ \t]*+|(?:[-*•]|\d{1,3}[.)])[ \t]++)"
"""What an item of a list begins with, as a pattern."""
_BULLET = re.compile(rf"\s*+(?:[-*•>#]++\s++|(?P<number>\d{{1,3}}\.)\s++|{LIST_MARK})")
_MARKED_LINE = re.compile(rf"[ \t]*+{LIST_MARK}")
_MARKED_BELOW = re.compile(rf"[^\n]*+\n(?:[ \t]*+\n)?+[ \t]*+{LIST_MARK}")


def split_sentences(text: str) -> list[tuple[int, int]]:
    """Return the ``(start, end)`` of each sentence of ``text``, without surrounding whitespace and list bullets.

    Line ends always end a sentence: chat and lists have no other. Spans are in order, not empty, and do not overlap.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for boundary in _BOUNDARY.finditer(text):
        if boundary.group() == "." and _goes_on(text, start, boundary.start()):
            continue
        _append(spans, text, start, boundary.end())
        start = boundary.end()
    _append(spans, text, start, len(text))
    return spans


def is_question(sentence: str) -> bool:
    """Return whether the sentence ends as a question."""
    return sentence.rstrip(_CLOSERS + "!").endswith(_ASKING)


def _goes_on(text: str, start: int, dot: int) -> bool:
    """Return whether the dot belongs to an abbreviation, to the number of a list item, to a date or an ordinal ("am 1. Mai")."""
    if dot - start <= 12 and text[start:dot].strip().isdecimal():
        return True
    begin, after = max(start, dot - 12), text[dot + 1 : dot + 3]
    goes_on = after[:1] == " " and (after[1:].islower() or after[1:].isdecimal())
    if _DATE.search(text, begin, dot) and goes_on:
        return True
    following = _WORD.match(text, dot + 2, dot + 2 + _LONGEST_FOLLOWING) if after[:1] == " " else None
    if (ordinal := _ORDINAL.search(text, begin, dot)) and following is not None:
        return _is_ordinal(ordinal, following[0])
    found = _ABBREVIATED.search(text, begin, dot)
    if found is None:
        return False
    word, next_word = found[0], following[0] if following is not None else ""
    is_initial = _INITIAL.match(word) is not None and word.isupper()
    looks_like_name = next_word[:1].isupper() and len(next_word) >= _SHORTEST_NAME
    # What comes after the first letter of a name may be the rest of it.
    if (
        is_initial
        and looks_like_name
        and not any(next_word.lower() in known for known in _FUNCTION_WORDS.values())
    ):
        return True
    # A word in capitals before one that is not ends a sentence: "I work in PR. My boss is Ida".
    next_is_plain = next_word[:1].isalpha() and (len(next_word) == 1 or not next_word.isupper())
    is_acronym = len(word) > 1 and word.isupper() and next_is_plain
    return not is_acronym and _is_abbreviation(text, found, goes_on=goes_on)


def _is_ordinal(number: re.Match[str], following: str) -> bool:
    """Return whether a number before a dot counts what follows: "2. pietro", "310. sokak", "am 1. Mai"."""
    lower = following.lower()
    if lower in _ABBREVIATIONS["after_ordinals"]:
        return True
    if len(number[2]) > _SURE_DIGITS:
        # "The rent is 800. it goes up" is no ordinal.
        return False
    if number[1].lower() in _BEFORE_AN_HOUR:
        return lower == "uhr"
    return following[0].islower() or (number[1].lower() in _BEFORE_A_DATE and following[0].isalpha())


def _is_abbreviation(text: str, found: re.Match[str], *, goes_on: bool) -> bool:
    """Return whether a word before a dot is an abbreviation there."""
    word, dot = found[0], found.end()
    known = {word, word.lower()}
    if known & _ABBREVIATIONS["followed"] and not _UNIT.search(text, max(0, dot - 3), dot):
        return True
    # German and Dutch names of streets end with this one.
    may_end = known & (_ABBREVIATIONS["followed"] | _ABBREVIATIONS["last"]) or word.lower().endswith("str")
    if may_end and goes_on:
        return True
    if (may_end or known & _ABBREVIATIONS["numbered"]) and _NUMBERED.match(text, dot + 1):
        return True
    following = _WORD.match(text, dot + 2, dot + 2 + _LONGEST_FOLLOWING)
    stacked = bool(may_end or known & _ABBREVIATIONS["stacked"])
    return (
        stacked
        and following is not None
        and text[following.end() : following.end() + 1] == "."
        and following[0].lower() in _ABBREVIATIONS["followed"] | _ABBREVIATIONS["last"]
    )


def _append(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    bullet = _BULLET.match(text, start, end)
    if bullet and (bullet["number"] is None or _has_item_next_to(text, start, bullet.end())):
        start = bullet.end()
    sentence = text[start:end].strip()
    if any(map(str.isalnum, sentence)):
        start = text.index(sentence, start)
        spans.append((start, start + len(sentence)))


def _has_item_next_to(text: str, start: int, marked: int) -> bool:
    """Return whether a line with a number is an item of a list: the line above or below it is one, too.

    Args:
        text: the whole text.
        start: where the sentence begins.
        marked: where it goes on after the number.
    """
    if start > 0 and text[start - 1] != "\n":
        return False
    above = text.rfind("\n", 0, max(0, start - 1)) + 1
    if above > 0 and not text[above:start].strip():
        above = text.rfind("\n", 0, above - 1) + 1
    is_below = _MARKED_BELOW.match(text, marked) is not None
    return is_below or (start > 0 and _MARKED_LINE.match(text, above, start) is not None)


# Zero-width space, word joiner, byte order mark and soft hyphen carry no meaning anywhere. The joiners U+200C and
# U+200D and the direction marks do: Persian spelling, family emoji and mixed-direction text need them.
_NOISE = re.compile("[\u200b\u2060\ufeff\u00ad\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]+")

_FENCE = re.compile(r"^[ \t]{0,3}(```|~~~)", re.MULTILINE)
_TAG = re.compile(r"<!--|</?[a-zA-Z][^<>]{0,500}>")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[a-zA-Z]{2,10});")
_URL = re.compile(r"\b(?:https?|ftp|file|ssh|s3)://[^\s<>\"]+")
_MARKUP_LINE = re.compile(r"^[\s#>*_=~`|:+-]+$")
_PROMPT = re.compile(r"^\s{0,8}(?:\$|>>>|\.\.\.|PS [A-Z]:|[+-]{3} |@@ |#!|//|/\*)")
_CODE_START = re.compile(
    r"^\s{0,40}(?:def|class|import|from|return|elif|else:|try:|except|async def|await|fn|func|function|const|let|var|"
    r"public|private|static|struct|impl|package|#include|SELECT|INSERT|UPDATE|DELETE|CREATE|FROM|WHERE)\b"
)
# Between words, "&" and "+" are speech, and so is "%" after a number.
_CODE_MARKS = re.compile(r"[{}()\[\];=<>|\\*]|(?<=\S)[&+]|[&+](?=\S)|%(?=\w)|(?<=[A-Za-z])%|::|->|=>")
# People write ages, places and remarks in brackets, and bold words between asterisks. In code, a bracket follows a name or has
# signs of code in it.
_ASIDE = re.compile(
    r"(?<![A-Za-z0-9_)\]])(?:\(([^()\[\]{}<>=;\"`|\\]{1,80})\)|\[((?=\s|[^\[\]]{0,80}[^\W\d_])[^()\[\]{}<>=;\"'`|\\]{1,80})\])"
)
_BOLD = re.compile(r"(?<![A-Za-z0-9*])(\*{1,3})(?=[^\s*])([^*]{1,200})(?<=\S)\1(?![A-Za-z0-9*])")
_TABLE_ROW = re.compile(r"[ \t]*+\|[^\n]*\|[ \t]*+$")
_CODE_END = re.compile(r"[{};,(\[\]]\s{0,20}$|\)[:;]?\s{0,20}$|^\s{2,40}\S.{0,200}:\s{0,20}$")
_LOG_LINE = re.compile(
    r"^\s{0,8}(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[?\d\d:\d\d:\d\d|at [\w.$<>]{1,200} ?\(|File \"|Traceback |"
    r"(?:Uncaught )?(?:[\w.]{1,200}\.)?[A-Z]\w{0,80}(?:Error|Exception)\b: |Caused by: |thread '[^']{1,80}' panicked|panic: |"
    r"fatal: |error(?:\[\w{1,20}\])?: |Execution halted|Error in [\w.]{1,80}\(|goroutine \d)"
)


# The beginning of a long line tells whether it is code.
_LINE_READ = 2_000


def clean(text: str) -> str:
    """Return ``text`` without meaningless invisible characters, with line feeds as line ends and no outer whitespace."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _NOISE.sub("", text).strip()


def mask_non_prose(text: str) -> str:
    """Blank fenced code, code and log lines, tags and markup; the result has the length of ``text``.

    A URL becomes a run of ``0``: it is no speech, but a sentence that names one says something definite.
    """
    text = _mask_fences(text)
    text = _TAG.sub(lambda m: blank(m.group()), text)
    text = _ENTITY.sub(lambda m: blank(m.group()), text)
    text = _URL.sub(lambda m: "0" * len(m.group()), text)
    # The bars of a table's row are no code.
    lines = (line.replace("|", " ") if _TABLE_ROW.match(line) else line for line in text.split("\n"))
    return "\n".join(" " * len(line) if _is_code(line) else line for line in lines)


def has_words(text: str) -> bool:
    """Return whether ``text`` contains a letter."""
    return any(map(str.isalpha, text))


def blank(text: str) -> str:
    """Return a blank for each character of a text except its line ends."""
    return re.sub(r"[^\n]", " ", text)


def without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text with blanks in place of these parts of it, each with its start and end."""
    for start, end in spans:
        text = text[:start] + " " * (end - start) + text[end:]
    return text


def _mask_fences(text: str) -> str:
    """Blank from each opening fence to its closing one, or to the end when it is never closed."""
    pieces: list[str] = []
    position = 0
    opened: int | None = None
    mark = ""
    for fence in _FENCE.finditer(text):
        if opened is None:
            pieces.append(text[position : fence.start()])
            opened, mark = fence.start(), fence.group(1)
        elif fence.group(1) == mark:
            end = text.find("\n", fence.end())
            position = len(text) if end < 0 else end
            pieces.append(blank(text[opened:position]))
            opened = None
    rest = text[position:] if opened is None else blank(text[opened:])
    return "".join([*pieces, rest])


def _is_code(line: str) -> bool:
    """Return whether a line looks like code, a log, or bare markup rather than prose."""
    line = line[:_LINE_READ]
    if not line.strip():
        return False
    if _MARKUP_LINE.match(line) or _PROMPT.match(line) or _LOG_LINE.match(line):
        return True
    ends_like_code = _CODE_END.search(line) is not None
    line = _ASIDE.sub(r"\1\2", _BOLD.sub(r"\2", line))
    marks = len(_CODE_MARKS.findall(line))
    letters = sum(map(str.isalpha, line))
    if marks >= 2 and marks * 6 > letters:
        return True
    return marks >= 1 and bool(_CODE_START.match(line)) and (ends_like_code or marks * 10 > letters)


# A guess at a text's language, good enough to know when English rules must not judge it: by script where the script decides,
# by function words among the languages in Latin script. A wrong guess costs little by design: whatever is not clearly English
# is kept rather than judged.
UNDETERMINED = "und"
"""The language code of a text whose language is not clear."""

# In this order: if two languages have as many words in a text, the first is taken.
_FUNCTION_WORDS = {name: word_set(listing) for name, listing in read_data("function_words.toml").items()}

_SCRIPTS: tuple[tuple[int, int, str], ...] = (
    (0x0370, 0x03FF, "el"),
    (0x0400, 0x052F, "ru"),
    (0x0590, 0x05FF, "he"),
    (0x0600, 0x06FF, "ar"),
    (0x0900, 0x097F, "hi"),
    (0x0E00, 0x0E7F, "th"),
    (0x3040, 0x30FF, "ja"),
    (0x3400, 0x9FFF, "zh"),
    (0xAC00, 0xD7AF, "ko"),
)
_DENSE_SCRIPTS = frozenset({"zh", "ja", "ko"})
_LETTERS_READ = 2000
_WORDS_READ = 400


def guess_language(text: str, words: list[Word] | None = None) -> str:
    """Return an ISO 639-1 code, or `UNDETERMINED`; reads the first two thousand characters at most.

    A script is taken for its most spoken language: Cyrillic is ``ru``, Arabic ``ar``. ``words`` are the words of
    ``text`` when the caller has them already.
    """
    by_script = _script_language(text[:_LETTERS_READ])
    if by_script is not None:
        return by_script
    read = words_of(text[: _LETTERS_READ * 2]) if words is None else words
    sample = [word.lower for word in read[:_WORDS_READ]]
    scores = Counter({name: sum(map(known.__contains__, sample)) for name, known in _FUNCTION_WORDS.items()})
    (best, hits), (_, runner_up) = scores.most_common(2)
    if not hits or (hits == runner_up and best == "en") or (hits == 1 and best != "en"):
        return UNDETERMINED
    return best


def function_words(lang: str) -> frozenset[str]:
    """Return the function words of a language; empty for most languages."""
    return _FUNCTION_WORDS.get(lang, frozenset())


def _script_language(text: str) -> str | None:
    """Return the language of the script that most letters belong to; None for Latin or no letters."""
    if text.isascii():
        return None
    counts: Counter[str] = Counter()
    latin = 0
    for char in text:
        code = ord(char)
        if code < 0x0370:
            latin += char.isalpha()
            continue
        name = next((name for low, high, name in _SCRIPTS if low <= code <= high), None)
        if name is not None:
            # A Han character or a syllable block says about as much as three Latin letters.
            counts[name] += 3 if name in _DENSE_SCRIPTS else 1
    # Japanese is written with Han characters too; kana decide.
    if counts["ja"]:
        counts["ja"] += counts.pop("zh", 0)
    if not counts or max(counts.values()) <= latin:
        return None
    return counts.most_common(1)[0][0]
