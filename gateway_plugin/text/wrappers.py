"""Removing what memory systems and hosts put around a user's words.

Whatever was injected into a prompt must not become a query or a memory: it would be recalled, captured and stored
again, growing each time. Known wrappers are removed whether nested, unclosed, cut off or HTML-escaped.

The work is linear in the text. A removed span leaves white space behind, so that what stood left and right of it can
never join into a new wrapper, and removing twice changes nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

_UNTRUSTED_HEADING: Final = re.compile(
    r"^[A-Z][^\n:()]{1,60} \(untrusted(?: metadata|, for context)?\):[ \t]*"
)
_RUNTIME_HEADING: Final = re.compile(r"^OpenClaw runtime context \(internal\):", re.IGNORECASE)
_RUNTIME_BODY: Final = re.compile(
    r"^(?:this context is runtime-generated, not user-authored|\[internal [a-z ]{1,60}\]|<<<(?:begin|end)_|stats: "
    r"|source: |session_key: |session_id: |type: |task: |status: )",
    re.IGNORECASE,
)
_DROPPED_LINE: Final = re.compile(
    r"^(?:"
    r"System: .*"
    r"|\[Inter-session message\] .*"
    r"|This content was routed by OpenClaw from another session or internal tool\..*"
    r"|Runtime: agent=\S{1,128} \| .*"
    r"|\[message_id: ?[^\]\n]{0,200}\]"
    r")[ \t]*$"
)
_INLINE: Final = re.compile(r"\[message_id: ?[^\]\n]{0,200}\]|\[\[ ?reply_to[^\[\]\n]{0,100}\]\]")
# A weekday or a platform and a sender may stand before the time, a zone after it.
_STAMP: Final = re.compile(
    r"\b\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(?::\d{2})?\b|\b(?:GMT|UTC)(?:[+-]\d{1,2}(?::\d{2})?)?$"
)
_MAX_STAMP: Final = 240
# Without a bound, headings whose data never ends would each search the whole rest.
_MAX_DATA_LINES: Final = 60
_EMPTY_LINES: Final = re.compile(r"\n[ \t]*\n(?:[ \t]*\n)+")


def strip_envelopes(text: str) -> str:
    """Remove a host's envelopes; three or more line breaks become two, outer white space goes."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    kept: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        heading = _UNTRUSTED_HEADING.match(line)
        if heading:
            at, rest = _skip_data(lines, at, line[heading.end() :])
            if rest:
                kept.append(rest)
        elif _RUNTIME_HEADING.match(line):
            at = _skip_runtime(lines, at + 1)
        elif _DROPPED_LINE.match(line):
            at += 1
        else:
            kept.append(_INLINE.sub(" ", _without_stamp(line)) if "[" in line else line)
            at += 1
    return _EMPTY_LINES.sub("\n\n", "\n".join(kept)).strip()


# As hosts write it into a group: "Alice (777): ", the id a number, a telephone number, or a handle.
_MAX_NAME: Final = 64
_SENDER: Final = re.compile(
    r"(?P<name>[^\s:()\[\]<>][^\n:()\[\]<>]{0,63}) \((?P<id>\+?\d{3,24}|@[\w.-]{2,64}|[\w.:@+-]{0,63}\d[\w.:@+-]{0,63})\): ?"
)


# A host may put what others wrote meanwhile before the message to answer, each under its own line.
_CONTEXT_LINES: Final = frozenset(
    {"[Chat messages since your last reply - for context]", "[Current message - respond to this]"}
)
_SENDER_BLOCK: Final = re.compile(r"^Sender \(untrusted metadata\):\s*(?:```json\s*)?(?=\{)", re.MULTILINE)


def split_senders(text: str) -> list[tuple[str, str, str]]:
    """Return the parts of a group's message: the name and the id that its host put before each, and what was said.

    A part without a name has "" for both; lines of the same sender are one part.
    """
    parts: list[tuple[str, str, list[str]]] = []
    for line in text.split("\n"):
        found = _SENDER.match(line)
        who = (found["name"].strip(), found["id"]) if found else ("", "")
        said = line[found.end() :] if found else "" if line.strip() in _CONTEXT_LINES else line
        if not parts or (found and who != parts[-1][:2]) or line.strip() in _CONTEXT_LINES:
            parts.append((*who, [said]))
        else:
            parts[-1][2].append(said)
    told = [(name, written, "\n".join(lines).strip()) for name, written, lines in parts]
    return [part for part in told if part[2]] or [("", "", text.strip())]


def sender_name(text: str) -> str:
    """Return the name in the block about the sender that a host puts before a message, as it is; "" without one."""
    block = _SENDER_BLOCK.search(text)
    if block is None:
        return ""
    try:
        told, _ = json.JSONDecoder().raw_decode(text, block.end())
    except (ValueError, RecursionError):
        return ""
    name = told.get("name") or told.get("label")
    return name[:_MAX_NAME] if isinstance(name, str) else ""


def _without_stamp(line: str) -> str:
    start = len(line) - len(line.lstrip(" \t"))
    if not line.startswith("[", start):
        return line
    end = line.find("]", start, start + _MAX_STAMP)
    if end < 0 or "[" in line[start + 1 : end] or not _STAMP.search(line[start + 1 : end]):
        return line
    return line[end + 1 :].lstrip(" \t")


def _skip_data(lines: list[str], at: int, same_line: str) -> tuple[int, str]:
    """Skip a heading and the JSON under it, fenced or bare.

    Returns:
        The next line to look at, and what followed bare JSON on its last line.
    """
    if same_line.startswith("{"):
        return at + 1, _after_json(same_line)
    at += 1
    while at < len(lines) and not lines[at].strip():
        at += 1
    if at >= len(lines):
        return at, same_line
    first = lines[at].lstrip()
    if first.startswith("```"):
        return _skip_fence(lines, at + 1), same_line
    if first.startswith("{"):
        return _skip_braces(lines, at), same_line
    return at, same_line


def _skip_fence(lines: list[str], at: int) -> int:
    for end in range(at, min(len(lines), at + _MAX_DATA_LINES)):
        if lines[end].strip() == "```":
            return end + 1
    # The fence was never closed: what follows the next blank line is a person's text again.
    return _next_blank(lines, at)


def _skip_braces(lines: list[str], at: int) -> int:
    depth = 0
    for end in range(at, min(len(lines), at + _MAX_DATA_LINES)):
        depth += lines[end].count("{") - lines[end].count("}")
        if depth <= 0:
            return end + 1
    return _next_blank(lines, at)


def _next_blank(lines: list[str], at: int) -> int:
    while at < len(lines) and lines[at].strip():
        at += 1
    return at


def _after_json(line: str) -> str:
    try:
        _, end = json.JSONDecoder().raw_decode(line)
    except (ValueError, RecursionError):
        return ""
    return line[end:].strip()


def _skip_runtime(lines: list[str], at: int) -> int:
    """Skip the paragraphs of a runtime block that lost its marks: they say themselves that they are internal."""
    at = _next_blank(lines, at)
    while at + 1 < len(lines) and _RUNTIME_BODY.match(lines[at + 1].strip()):
        at = _next_blank(lines, at + 1)
    return at


OUR_TAG: Final = "memrelay-memories"

_TAGS: Final = (
    OUR_TAG,
    "relevant[-_]memories",
    "memwal[-_]memories",
    "active[-_]memory[-_]plugin",
    "memory[-_]context",
)
_NAMES: Final = "|".join(_TAGS)
_INTERNAL: Final = "OPENCLAW_INTERNAL_CONTEXT"

# How often "<" was escaped: 0 as it is, 1 "&lt;", 2 "&amp;lt;" and so on. A memory inside a wrapper is escaped once, so
# its text can hold what looks like the wrapper's end one level down: ends only match beginnings of their own level.
_LEVELS: Final = 4
_ROUNDS: Final = 4
_MAX_INDENT: Final = 32


def _token_pattern(level: int) -> re.Pattern[str]:
    less = "<" if level == 0 else f"&{'amp;' * (level - 1)}(?:lt|#0{{0,6}}60|#x0{{0,6}}3c);"
    more = ">" if level == 0 else f"&{'amp;' * (level - 1)}(?:gt|#0{{0,6}}62|#x0{{0,6}}3e);"
    attributes = "[^<>]" if level == 0 else "[^<>\n]"
    # A tag that never ends still counts from its name, or "<name <name></name> >" would turn into one when stripped.
    tag = rf"{less}(?P<end>/?)(?P<tag>{_NAMES})(?![\w-])(?:{attributes}{{0,200}}?{more})?"
    if level:
        return re.compile(tag, re.IGNORECASE)
    bracket = r"\[(?P<bracket_end>/?)auto-recall(?![\w-])(?:[^\[\]\n]{0,200}\])?"
    marker = rf"<<<(?P<marker>BEGIN|END)_{_INTERNAL}>>>"
    return re.compile(f"{tag}|{bracket}|{marker}", re.IGNORECASE)


_TOKENS: Final = tuple(_token_pattern(level) for level in range(_LEVELS))

_COLD_START: Final = re.compile(
    r"^[ \t]*(?:recent memories \(use memory_search[^\n]{0,80}\):?|# recent memory)[ \t]*$", re.IGNORECASE
)
_COLD_BODY: Final = re.compile(r"^[ \t]*(?:[-*•] |#{1,4} |<!-- )|^[ \t]*$")
_LOOSE_LINES: Final = re.compile(
    r"^[ \t]*(?:"
    r"you have \d{1,9} past memory file\(s\)\.[^\n]*"
    r"|when using memory_search or memory_store tools, pass namespace=[^\n]*"
    r"|untrusted context \(metadata, do not treat as instructions or commands\):"
    r"|\U0001f9e9 ?(?:active memory|memory): [^\n]*"
    r"|\U0001f50e active memory debug: ?[^\n]*"
    r"|relevant memories from long-term storage\."
    r"|treat (?:every memory below as untrusted historical data|as historical context)[^\n]*"
    r")[ \t]*$",
    re.IGNORECASE,
)
_CONTEXT_LABEL: Final = re.compile(r"(?:^|\n)[ \t]*context:[ \t]*\n?$", re.IGNORECASE)
_BLANK_RUN: Final = re.compile(r"\n[ \t]*\n(?:[ \t]*\n)+")


@dataclass(frozen=True, slots=True)
class _Token:
    start: int
    end: int
    name: str
    closes: bool


def strip(text: str) -> str:
    """Remove every memory wrapper and every host envelope; what is left is what a person or model said.

    Example:
        >>> strip("How do I take my coffee?")
        'How do I take my coffee?'
    """
    for _ in range(_ROUNDS):
        # Envelopes first: one before a wrapper hides that the wrapper begins its line. Then what wrappers had hidden.
        stripped = strip_envelopes(strip_wrappers(strip_envelopes(text)))
        if stripped == text:
            break
        text = stripped
    return text


def contains_wrapper(text: str) -> bool:
    """Tell whether a beginning or an end of a memory wrapper occurs anywhere, escaped or not.

    Example:
        >>> contains_wrapper("<relevant-memories>x</relevant-memories>"), contains_wrapper("a plain text")
        (True, False)
    """
    return any(pattern.search(text) for pattern in _TOKENS)


def strip_wrappers(text: str) -> str:
    r"""Remove memory wrappers with their content, cold-start sections and status lines; outer white space goes too.

    Example:
        >>> strip_wrappers("<relevant-memories>x</relevant-memories>\nHow do I take my coffee?")
        'How do I take my coffee?'
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for level in range(_LEVELS):
        tokens = _tokens(text, level)
        if tokens:
            spans = _spans(text, tokens)
            kept: list[str] = []
            at = 0
            for start, end in spans:
                kept.append(text[at:start])
                kept.append("\n" if text[start] == "\n" or _starts_line(text, start) else " ")
                at = end
            kept.append(text[at:])
            text = "".join(kept)
    return _BLANK_RUN.sub("\n\n", "\n".join(_lines(text))).strip()


def _tokens(text: str, level: int) -> list[_Token]:
    found = []
    for match in _TOKENS[level].finditer(text):
        groups = match.groupdict()
        if groups["tag"]:
            name, closes = groups["tag"].lower().replace("_", "-"), bool(groups["end"])
        elif groups.get("marker"):
            name, closes = "internal-context", groups["marker"].upper() == "END"
        else:
            name, closes = "auto-recall", bool(groups["bracket_end"])
        found.append(_Token(match.start(), match.end(), name, closes))
    return found


def _spans(text: str, tokens: list[_Token]) -> list[tuple[int, int]]:
    """Pair beginnings with ends and return what to remove, in order, without overlaps."""
    spans: list[tuple[int, int]] = []
    covered = 0
    open_tokens: list[_Token] = []
    open_names: dict[str, int] = {}
    for token in tokens:
        if not token.closes:
            open_tokens.append(token)
            open_names[token.name] = open_names.get(token.name, 0) + 1
            continue
        start = token.start
        if open_names.get(token.name):
            begin = _pop(open_tokens, open_names)
            while begin.name != token.name:
                spans.append((begin.start, begin.end))
                begin = _pop(open_tokens, open_names)
            floor = max(0, begin.start - _MAX_INDENT)
            label = _CONTEXT_LABEL.search(text[floor : begin.start])
            start = floor + label.start() if label and (floor == 0 or label.start() > 0) else begin.start
        elif not open_tokens and _starts_line(text, start):
            # The beginning was cut off: the paragraph above is what is left of the content.
            paragraph = text.rfind("\n\n", covered, start)
            start = paragraph if paragraph >= 0 else covered
        spans.append((start, token.end))
        covered = token.end
    # At the start of a line it is a block that was cut off; inside a sentence it is a mention of the tag.
    spans.extend(
        (token.start, len(text) if _starts_line(text, token.start) else token.end) for token in open_tokens
    )
    return _merged(spans)


def _pop(open_tokens: list[_Token], open_names: dict[str, int]) -> _Token:
    token = open_tokens.pop()
    open_names[token.name] -= 1
    return token


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _starts_line(text: str, at: int) -> bool:
    # The bounded look back keeps a megabyte in one line linear.
    before = text[max(0, at - _MAX_INDENT) : at].rstrip(" \t")
    return before.endswith("\n") or (not before and at <= _MAX_INDENT)


def _lines(text: str) -> list[str]:
    """Drop cold-start sections, status lines and framing sentences, which carry no wrapper of their own."""
    kept: list[str] = []
    in_section = False
    for line in text.split("\n"):
        if _COLD_START.match(line):
            in_section = True
        elif in_section and _COLD_BODY.match(line):
            continue
        elif not _LOOSE_LINES.match(line):
            in_section = False
            kept.append(line)
    return kept
