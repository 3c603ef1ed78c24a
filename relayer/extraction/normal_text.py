"""The normal form that decides whether two texts are the same memory.

Exact duplicates are found by a MAC over this form, and the MACs are stored: if a rule here changes, a text that it affects no
longer matches its own earlier record. The tests therefore freeze the form by example.

The form follows NFKC_Casefold (Unicode 3.13, D147): compatibility forms and letter case are normalised, and invisible characters
are removed. Characters that are unassigned in an interpreter's Unicode tables may normalise differently in a newer one; this
can cost an additional record, never a lost one.
"""

from __future__ import annotations

import unicodedata
from itertools import accumulate

from relayer.wire.fields import stream_safe

# A normal form has at most as many characters as a text of the maximum size in the API. Only texts of unusual characters can
# exceed it: NFKC makes up to eighteen characters of one.
_LONGEST_FORM = 65_536
_MOST_GROWTH = 18
_PIECE = 512

_VARIATION_SELECTORS = frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
_ASKING = "?？؟"  # noqa: RUF001 - the full-width form is the point
_TRAILERS = f" .!,;:…。、，！；：․।۔{_ASKING}"  # noqa: RUF001 - the full-width forms are the point


def normal_text(text: str) -> str:
    """Return the form in which equal memories are equal strings.

    Case, compatibility variants, runs of whitespace, invisible characters and trailing punctuation make no difference;
    a trailing question mark does, because a question is not the statement. Applying it twice changes nothing. Time is
    linear in the length. A text whose compatibility form is longer than 65,536 characters is its own normal form.

    Example:
        >>> normal_text("I  moved to ULM!") == normal_text("i moved to ulm!")
        True
    """
    visible = _visible(text)
    if visible.isascii():
        folded = visible.casefold()
    else:
        if len(visible) * _MOST_GROWTH > _LONGEST_FORM:
            # The compatibility form is measured in pieces, up to the length of the longest normal form.
            pieces = (visible[at : at + _PIECE] for at in range(0, len(visible), _PIECE))
            lengths = accumulate(len(unicodedata.normalize("NFKC", piece)) for piece in pieces)
            if any(length > _LONGEST_FORM for length in lengths):
                return text
        folded = visible
        for _ in range(3):  # three rounds settle every assigned character
            folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", folded).casefold())
    words = " ".join(_visible(folded).split())
    said = words.rstrip(_TRAILERS)
    asks = any(mark in _ASKING for mark in words[len(said) :])
    return said + ("?" if asks else "") if said else words


def _visible(text: str) -> str:
    """Drop format characters, variation selectors, control characters, and marks beyond the stream-safe bound."""
    if text.isascii() and text.isprintable():
        return text
    invisible = {ord(char): None for char in set(text) if _is_invisible(char)}
    return stream_safe(text.translate(invisible) if invisible else text)


def _is_invisible(char: str) -> bool:
    if char in _VARIATION_SELECTORS:
        return True
    category = unicodedata.category(char)
    return category == "Cf" or (category == "Cc" and not char.isspace())
