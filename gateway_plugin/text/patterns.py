"""Patterns written by operators, which can never hold up a turn.

Python's matcher backtracks, so one careless pattern can take hours on a short text. A pattern is therefore accepted
only when an upper bound of its work, counted from its syntax, stays small for the longest text it is shown:
the product of what each repetition, option and alternative can multiply, times the starting points of a search.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

MAX_PATTERN_CHARS: Final = 200
MAX_PATTERNS: Final = 32
MAX_SUBJECT_CHARS: Final = 1000
"""A pattern sees this much of the head of a text."""

_MAX_WORK: Final = 2_000_000
_COUNTED: Final = re.compile(r"\{(\d{0,4})(,?)(\d{0,4})\}")
# Case is ignored anyway, how often a pattern is tried is ours to say, and texts are Unicode: most flags change nothing.
_LITERAL: Final = re.compile(r"/(?P<inner>(?:[^/\\\n]|\\.)+)/(?P<flags>[dgimsuvy]*)")
_ANCHOR: Final = re.compile(r"(?:\^|\\A)(?![*+?{])")
_GROUP_OPENINGS: Final = ("(?:", "(?P<")


class PatternRefused(ValueError):
    """Raised when a pattern is too long, malformed, or could take too long; the text says which and what to do."""


@dataclass(slots=True)
class _Level:
    """One open group: what its parts multiply so far, and whether repeating it would be dangerous."""

    work: int = 1
    branches: int = 1
    plain: bool = True
    last_plain: bool = True


@dataclass(slots=True)
class _Scan:
    """A walk over a pattern that bounds the matcher's work."""

    source: str
    at: int = 0
    levels: list[_Level] = field(default_factory=lambda: [_Level()])

    def run(self) -> int:
        while self.at < len(self.source):
            char, top = self.source[self.at], self.levels[-1]
            if char == "(":
                self._open()
            elif char == ")":
                work = self._close()
                self.at += 1
                outer = self.levels[-1]
                outer.work *= work
                outer.last_plain = outer.last_plain and work == 1
            elif char == "|":
                top.branches += 1
                top.plain = False
                self.at += 1
            elif char in "*+?" or _COUNTED.match(self.source, self.at):
                self._repeat(top)
            else:
                self._atom(top)
        # With several alternatives, or a mark that makes the anchor optional, a search starts everywhere.
        anchored = self.levels[0].branches == 1 and _ANCHOR.match(self.source)
        return self._close() * (1 if anchored else MAX_SUBJECT_CHARS)

    def _open(self) -> None:
        if self.source.startswith("(?", self.at):
            opening = next((o for o in _GROUP_OPENINGS if self.source.startswith(o, self.at)), None)
            if opening is None:
                raise PatternRefused("look-around, flags and conditions are not supported; use plain groups")
            self.at += len(opening)
            if opening == "(?P<":
                self.at = self.source.index(">", self.at) + 1
        else:
            self.at += 1
        self.levels.append(_Level())

    def _close(self) -> int:
        level = self.levels.pop()
        work = level.work * level.branches
        if self.levels:
            self.levels[-1].last_plain = level.plain
        return work

    def _repeat(self, top: _Level) -> None:
        counted = _COUNTED.match(self.source, self.at)
        if counted is not None:
            low, comma, high = counted.groups()
            most = int(high or (low if not comma else MAX_SUBJECT_CHARS) or 1)
            self.at = counted.end()
        else:
            most = 2 if self.source[self.at] == "?" else MAX_SUBJECT_CHARS
            self.at += 1
        if most > 2 and not top.last_plain:
            raise PatternRefused(
                "a repeated group holds a repetition or an alternative; write it without nesting"
            )
        top.work *= max(most, 1)
        top.plain = False
        # A mark after a repetition (lazy, possessive) changes its order, not its bound.
        if self.source[self.at : self.at + 1] in {"?", "+"}:
            self.at += 1

    def _atom(self, top: _Level) -> None:
        char = self.source[self.at]
        if char == "\\":
            if self.source[self.at + 1 : self.at + 2].isdigit():
                raise PatternRefused("back references are not supported; repeat the text instead")
            self.at += 2
        elif char == "[":
            # A bracket that comes first in a class is a member of it.
            start = self.at + 1 + (self.source.startswith("^", self.at + 1))
            end = re.compile(r"\]?(?:\\.|[^\]\\])*\]", re.DOTALL).match(self.source, start)
            self.at = end.end() if end else len(self.source)
        else:
            self.at += 1
        top.last_plain = True


def compile_pattern(source: str) -> re.Pattern[str]:
    """Compile an operator's pattern, ignoring case; a literal of JavaScript such as ``/^x/i`` means its content.

    Raises:
        PatternRefused: it is longer than 200 characters, does not compile, its work has no small bound, or it is between
            slashes that may or may not be part of it.

    Example:
        >>> matches(compile_pattern("deploy.*prod"), "Deployed to PROD today")
        True
    """
    flags = re.NOFLAG
    literal = _LITERAL.fullmatch(source)
    if literal is not None:
        source = literal["inner"].replace(r"\/", "/")
        if "m" in literal["flags"]:
            raise PatternRefused(
                "the flag m of a JavaScript literal has no meaning here; write (?:^|\\n) for a line's beginning"
            )
        if not literal["flags"] and not source.startswith("^") and not source.endswith("$"):
            raise PatternRefused(
                f"a JavaScript literal, or a text between slashes? write {source} for the first, [/]{source}[/] for the second"
            )
        flags = re.DOTALL if "s" in literal["flags"] else re.NOFLAG
    if len(source) > MAX_PATTERN_CHARS:
        raise PatternRefused(f"a pattern may have {MAX_PATTERN_CHARS} characters, this one has {len(source)}")
    try:
        compiled = re.compile(source, re.IGNORECASE | flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternRefused("not a regular expression that Python understands") from error
    if _Scan(source).run() > _MAX_WORK:
        raise PatternRefused(
            "too many repetitions or alternatives; leave out .* at either end, start with ^, or use fewer of * + ? {} |"
        )
    return compiled


def matches(pattern: re.Pattern[str], text: str) -> bool:
    """Tell whether a compiled pattern occurs in the first 1000 characters of a text.

    Example:
        >>> matches(compile_pattern("^heartbeat$"), "heartbeat check")
        False
    """
    return pattern.search(text[:MAX_SUBJECT_CHARS]) is not None
