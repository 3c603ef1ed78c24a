"""What of a message is prose, so that rules about speech never judge code or markup.

Masking keeps every offset: a span found in the masked text is a span of the message.
"""

from __future__ import annotations

import re

__all__ = ["clean", "has_words", "mask_non_prose"]

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
_CODE_MARKS = re.compile(r"[{}()\[\];=<>|\\&+*%]|::|->|=>")
_CODE_END = re.compile(r"[{};,(\[\]]\s{0,20}$|\)[:;]?\s{0,20}$|^\s{2,40}\S.{0,200}:\s{0,20}$")
_LOG_LINE = re.compile(
    r"^\s{0,8}(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[?\d\d:\d\d:\d\d|at [\w.$<>]{1,200}\(|File \"|Traceback )"
)


def clean(text: str) -> str:
    """Return ``text`` without meaningless invisible characters, with line feeds as line ends and no outer whitespace."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _NOISE.sub("", text).strip()


def mask_non_prose(text: str) -> str:
    """Blank fenced code, code and log lines, tags and markup; the result has the length of ``text``.

    A URL becomes a run of ``0``: it is no speech, but a sentence that names one says something definite.
    """
    text = _mask_fences(text)
    text = _TAG.sub(_blank, text)
    text = _ENTITY.sub(_blank, text)
    text = _URL.sub(lambda m: "0" * len(m.group()), text)
    return "\n".join(" " * len(line) if _is_code(line) else line for line in text.split("\n"))


def has_words(text: str) -> bool:
    """Whether anything in ``text`` is a letter."""
    return any(map(str.isalpha, text))


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


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
            pieces.append(re.sub(r"[^\n]", " ", text[opened:position]))
            opened = None
    rest = text[position:] if opened is None else re.sub(r"[^\n]", " ", text[opened:])
    return "".join([*pieces, rest])


def _is_code(line: str) -> bool:
    """Whether a line reads as code, a log, or bare markup rather than as speech."""
    if not line.strip():
        return False
    if _MARKUP_LINE.match(line) or _PROMPT.match(line) or _LOG_LINE.match(line):
        return True
    marks = len(_CODE_MARKS.findall(line))
    letters = sum(map(str.isalpha, line))
    if marks >= 2 and marks * 6 > letters:
        return True
    ends_like_code = _CODE_END.search(line) is not None
    return marks >= 1 and bool(_CODE_START.match(line)) and (ends_like_code or marks * 10 > letters)
