"""What secrets look like in a text: published forms, what names one, and numbers with a check digit; the first that fits wins."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from relayer.wire.published_secrets import PUBLISHED
from relayer.wire.secret_checks import (
    drawn_at_random,
    iban,
    like_a_key,
    like_a_passphrase,
    like_a_password,
    luhn,
    no_placeholder,
)

__all__ = ["RULES", "Rule"]

_Check = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """One form of a secret; the group ``secret``, or the whole match, is what goes.

    A text that in lower case holds none of ``hints`` holds nothing that the pattern matches: most texts are spared most
    rules.
    """

    kind: str
    pattern: re.Pattern[str]
    hints: tuple[str, ...]
    check: _Check | None = None


_EDGE: Final = r"(?<![A-Za-z0-9_-])"
_STOP: Final = r"(?![A-Za-z0-9_-])"

# What names a secret, in the languages people ask in.
_SAID_BEFORE: Final = (
    r"password|passwd|passphrase|passcode|pwd|pw|pass|passwort|kennwort|contrase\u00f1a|mot de passe|senha|wachtwoord|"
    r"\u043f\u0430\u0440\u043e\u043b\u044c|\u5bc6\u7801|\u30d1\u30b9\u30ef\u30fc\u30c9"
)
_KEY_WORDS: Final = (
    r"(?:api|access|secret|private|encryption|signing|master|account|auth|client|service|shared|session|refresh|bearer|"
    r"webhook|deploy|totp|otp|mfa)[ _.-]?(?:key|token|secret|id)"
    r"|secret|token|credential|authtoken|sessionid|apikey|(?<=_)key"
)
_SAID_HINTS: Final = (
    "pass", "pw", "kennwort", "contrase\u00f1a", "mot de", "senha", "wachtwoord", "\u043f\u0430\u0440\u043e\u043b\u044c", "\u5bc6\u7801",
    "\u30d1\u30b9",
)  # fmt: skip
_KEY_HINTS: Final = ("key", "token", "secret", "id", "credential")
_IS: Final = r"""(?:["']?\s*(?:=>|:=|[:=])\s*|\s+(?:is|ist|es|est|\u00e9|lautet|was|to)[:\s]\s*)"""
_VALUE: Final = (
    r"""(?:"(?P<dq>[^"\n]{4,200})"|'(?P<sq>[^'\n]{4,200})'|(?P<bare>[^\s"'`,;<>(){}\[\]]{4,200}))"""
)


def _published(kind: str, form: str, hints: tuple[str, ...]) -> Rule:
    return Rule(kind, re.compile(f"{_EDGE}(?:{form}){_STOP}"), hints)


def _named(
    kind: str, words: str, value: str, check: _Check, hints: tuple[str, ...], *, then: str = _IS
) -> Rule:
    pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{words}){then}{value}", re.IGNORECASE)
    return Rule(kind, pattern, hints, check)


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "private_key",
        re.compile(
            # The body ends at the next two dashes, so that many beginnings without an end cost no more than one.
            r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=:,.\s]|-(?!-)){0,20000}+"
            r"(?:-----END (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----)?"
        ),
        ("-----begin ",),
    ),
    *(_published(*form) for form in PUBLISHED),
    Rule(
        "url_password",
        re.compile(
            r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>]{0,100}:(?P<secret>[^\s/@\"'<>]{3,200})@", re.IGNORECASE
        ),
        ("://",),
        no_placeholder,
    ),
    Rule(
        "azure_key",
        re.compile(r"(?:AccountKey|SharedAccessKey)=(?P<secret>[A-Za-z0-9+/]{20,100}={0,2})", re.IGNORECASE),
        ("=",),
    ),
    Rule(
        "azure_signature",
        re.compile(r"[?&]sig=(?P<secret>[A-Za-z0-9%+/]{30,100}(?:=|%3D)?)", re.IGNORECASE),
        ("=",),
    ),
    Rule(
        "authorization",
        re.compile(r"\b(?:Bearer|Basic|Token)\s+(?P<secret>[A-Za-z0-9._~+/-]{16,2000}={0,2})(?![\w$<{])"),
        ("bearer", "basic", "token"),
        drawn_at_random,
    ),
    Rule(
        "aws_secret",
        re.compile(
            r"aws.{0,20}?(?:secret|key).{0,20}?[=:\s]\s{0,3}[\"']?(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
            re.IGNORECASE,
        ),
        ("aw",),
        drawn_at_random,
    ),
    _named("password", _SAID_BEFORE, _VALUE, like_a_password, _SAID_HINTS),
    _named(
        "passphrase", _SAID_BEFORE, r"""["'](?P<secret>[^"'\n]{8,200})["']""", like_a_passphrase, _SAID_HINTS
    ),
    _named(
        "password",
        r"password|passwort|pass|pw",
        r"(?P<secret>[^\s\"'`,;<>(){}\[\]]{8,200})",
        like_a_password,
        _SAID_HINTS,
        then=r"\s+",
    ),
    _named("assigned_secret", _KEY_WORDS, _VALUE, like_a_key, _KEY_HINTS),
    _named(
        "assigned_secret",
        _KEY_WORDS,
        r"(?P<secret>[A-Za-z0-9+/_=-]{24,200})",
        like_a_key,
        _KEY_HINTS,
        then=r"\s+",
    ),
    Rule(
        "recovery_phrase",
        re.compile(
            r"(?:seed|recovery|mnemonic|backup)[ -](?:phrase|words)\b[^\n]{0,12}?[:\s]\s?(?P<secret>(?:[a-z]{3,8} ){11,23}[a-z]{3,8})\b",
            re.IGNORECASE,
        ),
        ("phra", "word"),
    ),
    Rule(
        "one_time_code",
        re.compile(
            r"\b(?:(?i:one[- ]time (?:code|password)|verification code|2fa code|otp|security code|cvv|cvc)|PIN|pin code)"
            r"(?:\s+(?:is|ist|es))?[:\s]\s?(?P<secret>\d{3,8})\b"
        ),
        ("code", "word", "otp", "cvv", "cvc", "pin"),
    ),
    Rule(
        "card_number",
        re.compile(r"(?<![\w.-])(?P<secret>[3-6]\d{3}(?:[ -]?\d){9,15})(?![\w-])"),
        ("3", "4", "5", "6"),
        luhn,
    ),
    Rule(
        "iban",
        re.compile(r"\b(?P<secret>[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?)\b"),
        ("",),
        iban,
    ),
)
