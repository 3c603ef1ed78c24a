"""Whether a value looks like a secret, and not like a word, a name, a placeholder or code."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Final

__all__ = [
    "drawn_at_random",
    "iban",
    "like_a_key",
    "like_a_passphrase",
    "like_a_password",
    "luhn",
    "no_placeholder",
]

_HIGH_ENTROPY: Final = 3.0
_LONG: Final = 20
_PLACEHOLDER: Final = re.compile(
    r"(?:\$|%|<|\{|\*{2}|\.{3}|your|my[-_]|example|placeholder|changeme|xxx|redacted|none$|null$|true$|false$|os\.|process\.|"
    r"env|req|self\.|config|get|input|str$|string$|int$|bytes$|optional|required|secrets?\.|settings)",
    re.IGNORECASE,
)
_CODE: Final = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+|\w+\(|[A-Za-z_]+\[")


def like_a_password(value: str) -> bool:
    """Whether a value that something calls a password looks like one, and not like a word, a name or code."""
    value = value.rstrip(".!?,;:") if value[-1:] in ".?,;:" else value
    if len(value) < 6 or _PLACEHOLDER.match(value) or _CODE.match(value):
        return False
    return any(char.isdigit() for char in value) and any(not char.isdigit() for char in value)


def like_a_key(value: str) -> bool:
    """Whether a value that something calls a key looks drawn at random."""
    value = value.rstrip(".!?,;:")
    if len(value) < 16 or _PLACEHOLDER.match(value) or _CODE.match(value) or "/" in value[:2]:
        return False
    return _kinds_of_characters(value) >= 2 and _entropy(value) >= _HIGH_ENTROPY


def drawn_at_random(value: str) -> bool:
    """Whether a value that stands where a token stands looks drawn at random."""
    return len(value) >= _LONG and not _PLACEHOLDER.match(value) and _entropy(value) >= _HIGH_ENTROPY


def like_a_passphrase(value: str) -> bool:
    """Whether a value in quotes that something calls a password may be one made of words."""
    return len(value) >= 8 and not _PLACEHOLDER.match(value) and not _CODE.match(value)


def no_placeholder(value: str) -> bool:
    """Whether a value is more than a hint where one goes."""
    return not _PLACEHOLDER.match(value)


def luhn(text: str) -> bool:
    """Whether digits pass Luhn's check (ISO/IEC 7812-1), as card numbers do."""
    digits = [int(char) for char in text if char.isdigit()]
    if not 13 <= len(digits) <= 19 or len(set(digits)) < 2:
        return False
    doubled = [
        digit if index % 2 == 0 else sum(divmod(2 * digit, 10))
        for index, digit in enumerate(reversed(digits))
    ]
    return sum(doubled) % 10 == 0


def iban(text: str) -> bool:
    """Whether a text passes the IBAN's check (ISO 13616)."""
    compact = "".join(text.split()).upper()
    if not 15 <= len(compact) <= 34:
        return False
    turned = compact[4:] + compact[:4]
    return int("".join(str(int(char, 36)) for char in turned)) % 97 == 1


def _entropy(text: str) -> float:
    """Return Shannon's entropy in bits a character."""
    counts = Counter(text)
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts.values())


def _kinds_of_characters(value: str) -> int:
    kinds = (str.islower, str.isupper, str.isdigit, lambda char: not char.isalnum())
    return sum(any(kind(char) for char in value) for kind in kinds)
