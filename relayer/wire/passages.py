"""Split a long text into passages that end after a paragraph, a line, a sentence or a word, in any script."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A passage ends after one of these, tried in this order, if it occurs in the last quarter of the passage's size.
_ENDS = tuple(
    re.compile(end)
    for end in (
        r"\n\s*\n",
        r"\n",
        r"[.!?\u2026\u0964\u061f]+[\"'\u201d\u2019)\]]*\s|[\u3002\uff01\uff1f]",
        r"\s",
    )
)


def cut(text: str, size: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each passage of a text, in characters, without gaps.

    Args:
        text: the text to split.
        size: maximum size of a passage, in bytes of UTF-8, at least 4; all but the last are at least three quarters full.

    Example:
        >>> list(cut("One sentence. Another one.", 15))
        [(0, 14), (14, 26)]
    """
    start = 0
    while start < len(text):
        end = passage_end(text, start, size)
        yield start, end
        start = end


def passage_end(text: str, start: int, size: int) -> int:
    """Return the end of the passage that starts at ``start``, in characters; see `cut`.

    Example:
        >>> passage_end("One sentence. Another one.", 0, 15)
        14
    """
    window = text[start : start + size].encode()[:size].decode(errors="ignore")
    if start + len(window) == len(text):
        return len(text)
    least = 3 * len(window) // 4
    for kind in _ENDS:
        *_, last = (0, *(found.end() for found in kind.finditer(window, least)))
        if last:
            return start + last
    return start + len(window)
