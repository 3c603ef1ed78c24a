"""Finding a passage in a text although case, spaces and quotation marks differ, and saying where it stands."""

from __future__ import annotations

import unicodedata

__all__ = ["find_passage", "fold"]

_PLAIN = str.maketrans("‘’‚‛“”„‟–—‐‑", "''''\"\"\"\"----")  # noqa: RUF001 - the typographic forms are the point
_SHORTEST = 2


def find_passage(text: str, passage: str) -> tuple[int, int] | None:
    """Return start and end of the passage in the characters of ``text``; None when it does not occur.

    Words must be whole: "Ann" does not occur in "annual". A passage of one character is none.
    """
    folded, places = _placed(text)
    wanted = fold(passage).strip("\"' .…")
    if len(wanted) < _SHORTEST:
        return None
    start = folded.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        if not _cuts(folded, start) and not _cuts(folded, end):
            return places[start], places[end - 1] + 1
        start = folded.find(wanted, start + 1)
    return None


def fold(text: str) -> str:
    """Return the text without the differences that do not count."""
    return _placed(text)[0].strip()


def _placed(text: str) -> tuple[str, list[int]]:
    """Return the folded text, and for each of its characters where it comes from."""
    folded: list[str] = []
    places: list[int] = []
    for place, char in enumerate(text):
        if char.isspace():
            if folded and folded[-1] != " ":
                folded.append(" ")
                places.append(place)
            continue
        if unicodedata.category(char) in {"Cf", "Cc"}:
            continue
        for part in unicodedata.normalize("NFKC", char).casefold().translate(_PLAIN):
            folded.append(part)
            places.append(place)
    return "".join(folded), places


def _cuts(text: str, at: int) -> bool:
    """Whether a word of a script with spaces goes on across this place."""
    return 0 < at < len(text) and _spaced_letter(text[at - 1]) and _spaced_letter(text[at])


def _spaced_letter(char: str) -> bool:
    return char.isalnum() and not unspaced(char)


def unspaced(char: str) -> bool:
    """Whether the character belongs to a script that is written without spaces: Chinese, Japanese, Thai and such."""
    code = ord(char)
    return 0x0E00 <= code <= 0x0EFF or 0x1000 <= code <= 0x109F or 0x2E80 <= code <= 0x9FFF or code >= 0x20000
