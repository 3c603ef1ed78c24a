"""Finding secrets in what people say, so that none of them leaves the process or is stored.

A text is searched for the published forms of keys and tokens, for secrets that their surroundings name (``password is
...``, ``API_KEY=...``, a URL's user information), and for numbers with a check digit. Ordinary code and talk *about*
secrets must survive: a value counts only if it looks like one, not like a name, a placeholder or a type.

Gateway and relayer share this: the gateway redacts before anything leaves it, the relayer before anything is stored.
Work is linear in the text. Which texts are found and which pass is measured on ``bench/sets/redaction.jsonl``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from relayer.wire.secret_rules import RULES, Rule

__all__ = ["CLASSES", "OFF_BY_DEFAULT", "Action", "Finding", "Policy", "Redacted", "find_secrets", "redact"]


class Action(StrEnum):
    """What becomes of a text with a secret of a class."""

    REDACT = "redact"
    BLOCK = "block"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class Finding:
    """A secret: its class, and where it stands; never what it says."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets.

    Attributes:
        text: the text, each secret replaced by ``[redacted: <class>]``.
        kinds: what was found and replaced, sorted.
        blocked: the classes for which the text as a whole must not go on; empty for most.
    """

    text: str
    kinds: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()


_HINTED: Final = tuple((hint, at) for at, rule in enumerate(RULES) for hint in rule.hints)

CLASSES: Final = tuple(dict.fromkeys(rule.kind for rule in RULES))
"""Every class, by the name that a policy gives it."""

OFF_BY_DEFAULT: Final = frozenset({"iban"})
"""Classes that are allowed unless a policy says otherwise: an account number is what people ask to have remembered."""

Policy = Mapping[str, Action]
"""What becomes of each class; one that is not named is redacted, or allowed where it is off by default."""


# Letters that a pattern without case takes for an i or an s, and that lower case leaves as they are.
_OTHER_CASES: Final = str.maketrans("\u0130\u0131\u017f", "iis")


def _lowered(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_OTHER_CASES).lower()


def action_for(kind: str, policy: Policy) -> Action:
    """Return what a policy does about a class."""
    return policy.get(kind, Action.ALLOW if kind in OFF_BY_DEFAULT else Action.REDACT)


def find_secrets(text: str, policy: Policy | None = None) -> tuple[Finding, ...]:
    """Return the secrets of a text that a policy does not allow, in order, without overlaps."""
    known = policy or {}
    taken: list[Finding] = []
    covered = bytearray(len(text))
    lowered = _lowered(text)
    for at in sorted({at for hint, at in _HINTED if hint in lowered}):
        rule = RULES[at]
        if action_for(rule.kind, known) is Action.ALLOW:
            continue
        for match in rule.pattern.finditer(text):
            found = _finding(rule, match)
            if found is not None and not any(covered[found.start : found.end]):
                covered[found.start : found.end] = b"\1" * (found.end - found.start)
                taken.append(found)
    return tuple(sorted(taken, key=lambda finding: finding.start))


def redact(text: str, policy: Policy | None = None) -> Redacted:
    """Replace the secrets of a text.

    Args:
        text: what somebody said.
        policy: what to do about each class.
    """
    findings = find_secrets(text, policy)
    if not findings:
        return Redacted(text)
    parts, at = [], 0
    for finding in findings:
        parts += [text[at : finding.start], f"[redacted: {finding.kind}]"]
        at = finding.end
    kinds = tuple(sorted({finding.kind for finding in findings}))
    blocked = tuple(kind for kind in kinds if action_for(kind, policy or {}) is Action.BLOCK)
    return Redacted("".join([*parts, text[at:]]), kinds, blocked)


def _finding(rule: Rule, match: re.Match[str]) -> Finding | None:
    group = next((name for name in ("secret", "dq", "sq", "bare") if match.groupdict().get(name)), None)
    start, end = match.span(group) if group is not None else match.span()
    value = match.string[start:end]
    if rule.check is not None and not rule.check(value):
        return None
    return Finding(rule.kind, start, end)
