"""The values that settings take: words that are chosen from, and text that is checked, each with what to write instead.

A value that does not do is refused with a problem and a fix, ``problem; fix``, and is never repeated: it could be a secret.
"""

from __future__ import annotations

import difflib
import re
from enum import StrEnum
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from gateway_plugin.errors import IdentityError
from gateway_plugin.session_keys import DEFAULT_NAME, named
from gateway_plugin.text.patterns import MAX_PATTERNS, compile_pattern
from relayer.wire.loopback import is_loopback
from relayer.wire.redaction import CLASSES, Action

__all__ = [
    "AccountId",
    "CaptureStrategy",
    "Format",
    "Name",
    "Names",
    "NamespaceName",
    "NamespaceScope",
    "Pattern",
    "Patterns",
    "Position",
    "PromptStyle",
    "QueryMode",
    "RecallMode",
    "Redaction",
    "RelativePath",
    "Renamed",
    "Secret",
    "Url",
]

_MAX_URL_CHARS: Final = 2048


class RecallMode(StrEnum):
    """Who chooses what is injected: the search alone, or a model that reads the conversation."""

    DIRECT = "direct"
    ACTIVE = "active"


class Position(StrEnum):
    """Where memories enter the prompt."""

    PREPEND = "prepend"
    APPEND = "append"
    SYSTEM_APPEND = "system-append"


class Format(StrEnum):
    """Whose text format the injected block has."""

    MEMRELAY = "memrelay"
    MEMORY_CORE_PLUS = "memory-core-plus"
    AUTO_RECALL = "auto-recall"
    MEMWAL = "memwal"
    ACTIVE_MEMORY = "active-memory"


class QueryMode(StrEnum):
    """How much conversation active mode reads (AM-12)."""

    MESSAGE = "message"
    RECENT = "recent"
    FULL = "full"


class PromptStyle(StrEnum):
    """How eager active mode's model is (AM-14)."""

    BALANCED = "balanced"
    STRICT = "strict"
    CONTEXTUAL = "contextual"
    RECALL_HEAVY = "recall-heavy"
    PRECISION_HEAVY = "precision-heavy"
    PREFERENCE_ONLY = "preference-only"


class CaptureStrategy(StrEnum):
    """What ends a turn for capture: the host's own event, or silence after the last output (MS-04)."""

    AGENT_END = "agent_end"
    DEBOUNCE = "debounce"


class NamespaceScope(StrEnum):
    """What separates one set of memories from another."""

    AGENT = "agent"
    AGENT_SENDER = "agent+sender"
    AGENT_WORKSPACE = "agent+workspace"


def _pattern(source: str) -> str:
    compile_pattern(source)
    return source


def _namespace(name: str) -> str:
    if any(char in "\"'`\\" or not char.isprintable() for char in name):
        raise ValueError("holds a quote, a backslash or a line break; use letters, digits, - and _")
    return name.strip()


def _url(url: str) -> str:
    if len(url) > _MAX_URL_CHARS or any(char.isspace() or not char.isprintable() for char in url):
        raise ValueError("is no URL; write https://host or http://127.0.0.1:8787")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ValueError("is no URL; write https://host or http://127.0.0.1:8787") from error
    if parts.scheme not in {"https", "http"} or not parts.hostname:
        raise ValueError("is no URL; write https://host or http://127.0.0.1:8787")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("carries credentials, a query or a fragment; write the address alone")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError(
            "would travel unencrypted; use https, or http for this machine's loopback address only"
        )
    return url.rstrip("/")


def _key(key: SecretStr) -> SecretStr:
    if not re.fullmatch(r"(?:0x)?[0-9a-fA-F]{64}|[A-Za-z0-9+/_-]{43}=?", key.get_secret_value()):
        raise ValueError(
            "is no key of 32 bytes; give 64 hexadecimal digits or base64, best as ${MEMRELAY_SECRET}"
        )
    return key


def _account(account: str) -> str:
    if not re.fullmatch(r"0x[0-9a-fA-F]{10,128}", account):
        raise ValueError("is no account id; it starts with 0x and has at least 10 hexadecimal digits")
    return account


def _relative(path: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}(?:/[A-Za-z0-9_.-]{1,64}){0,7}", path) or ".." in path.split(
        "/"
    ):
        raise ValueError("is no plain relative path; use letters, digits, - _ . and /")
    return path


def _redaction(policy: dict[str, Action]) -> dict[str, Action]:
    for kind in policy:
        if kind not in CLASSES:
            near = difflib.get_close_matches(kind, CLASSES, 1, 0.4)
            raise ValueError(
                f"names no class of secrets; {f'is {near[0]} meant?' if near else 'see docs/security.md'}"
            )
    return policy


def _renamed(pairs: dict[str, str]) -> dict[str, str]:
    try:
        # Keys know the default agent as `default`: so does `keys rotate`, which prints this setting.
        whose = {
            DEFAULT_NAME if old.strip().lower() == DEFAULT_NAME else named(old, shown=True): named(
                new, shown=True
            )
            for old, new in pairs.items()
        }
    except IdentityError as error:
        raise ValueError("names an agent that has no name of its own; write { old: new }") from error
    if len({*whose.values()}) < len(pairs) or DEFAULT_NAME in whose.values():
        raise ValueError("gives two agents one name; write another new name for each")
    return whose


Pattern = Annotated[str, AfterValidator(_pattern)]
Patterns = Annotated[tuple[Pattern, ...], Field(max_length=MAX_PATTERNS)]
Name = Annotated[str, Field(min_length=1, max_length=128)]
Names = Annotated[tuple[Name, ...], Field(max_length=1000)]
RelativePath = Annotated[str, AfterValidator(_relative)]
NamespaceName = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_namespace)]
Url = Annotated[str, AfterValidator(_url)]
Secret = Annotated[SecretStr, AfterValidator(_key)]
AccountId = Annotated[str, AfterValidator(_account)]
Redaction = Annotated[dict[str, Action], AfterValidator(_redaction)]
Renamed = Annotated[dict[str, str], AfterValidator(_renamed)]
