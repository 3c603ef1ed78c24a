"""Where sentences begin and end, in any script that marks their ends."""

from __future__ import annotations

import re

__all__ = ["is_question", "split_sentences"]

# A run of terminators may start only where no terminator precedes it, and never gives characters back: every character
# is looked at a bounded number of times, whatever the text.
_BOUNDARY = re.compile(
    r"(?<![.!?…؟۔।])[.!?…؟۔।]++[\"'”’»)\]*_]*+(?=\s|$)"  # noqa: RUF001 - typographic quotes are the point
    r"|(?<![。！？])[。！？]++[」』”’）]*+"  # noqa: RUF001 - full-width marks are the point
    r"|\n"
)
_CLOSERS = "\"'”’»)]*_ 」』）"  # noqa: RUF001 - typographic quotes are the point
_ASKING = ("?", "？", "؟")  # noqa: RUF001 - the full-width form is the point
_ABBREVIATIONS = frozenset(
    {"e.g", "i.e", "etc", "vs", "mr", "mrs", "ms", "dr", "prof", "st", "no", "approx", "cf", "fig"}
)
_BULLET = re.compile(r"\s*(?:[-*•>#]+|\d{1,3}[.)])\s+")


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
    """Whether the sentence ends by asking."""
    return sentence.rstrip(_CLOSERS + "!").endswith(_ASKING)


def _goes_on(text: str, start: int, dot: int) -> bool:
    """Whether the dot belongs to an abbreviation or to the number of a list item."""
    if dot - start <= 12 and text[start:dot].strip().isdecimal():
        return True
    word = text[max(start, dot - 8) : dot].rsplit(maxsplit=1)[-1:] or [""]
    return word[0].strip("(\"'").lower() in _ABBREVIATIONS


def _append(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    if bullet := _BULLET.match(text, start, end):
        start = bullet.end()
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if start < end and any(char.isalnum() for char in text[start:end]):
        spans.append((start, end))
