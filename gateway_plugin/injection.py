"""Text that tries to command the model instead of informing it.

Recalled text stands in a prompt, so a memory is a way in for whoever could write one. The detector reads a normalised
text (escapes decoded once, look-alike letters folded, invisible characters removed) and names *classes*. Shapes that
ordinary speech does not have block a text; weaker ones make it suspect: stored, but never injected on its own. Talk
about software is full of "override", "act as" and "run the command", so single words never count.

Every pattern has bounded gaps: the work is linear in the text, of which the first 64 Ki characters are read.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
import unicodedata
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from gateway_plugin.text.injection_rules import BLOCKING, SUSPICIOUS, InjectionClass
from gateway_plugin.text.measures import remove_invisible
from gateway_plugin.text.wrappers import contains_wrapper

__all__ = ["MAX_SCANNED_CHARS", "InjectionClass", "Verdict", "normalise", "scan"]

MAX_SCANNED_CHARS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found: classes that block a text, and classes that only make it suspect."""

    blocking: frozenset[InjectionClass] = frozenset()
    suspicious: frozenset[InjectionClass] = frozenset()

    @property
    def blocked(self) -> bool:
        """Whether the text must be neither stored nor injected."""
        return bool(self.blocking)

    @property
    def suspect(self) -> bool:
        """Whether the text may be stored but not injected on its own."""
        return bool(self.suspicious) and not self.blocking

    @property
    def classes(self) -> frozenset[InjectionClass]:
        """Everything that was found."""
        return self.blocking | self.suspicious


_LOOKALIKES: Final = str.maketrans(
    "аеорсхуіјѕһԁԛԝкмтвнгёїαεοριυνκτχηβıɡɩʟοϲ",
    "aeopcxyijshdqwkmtbhreiaeopiuvktxnbigiloc".replace(" ", ""),
)
_SPACED: Final = re.compile(r"(?<!\w)(?:\w[ .*_-]){4,60}\w(?!\w)")
_SPACE: Final = re.compile(r"[^\S\n]+")
_TAG_CHARS: Final = re.compile("(?<![\U0001f3f4\U000e0020-\U000e007e])[\U000e0020-\U000e007e]{4,}")
_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{24,4096}={0,2}")
_HEX: Final = re.compile(r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}){16,2048}(?![0-9A-Fa-f])")
_MAX_PAYLOADS: Final = 16

_BLOCKING_RULES: Final = tuple((kind, re.compile(source)) for kind, source in BLOCKING)
_SUSPICIOUS_RULES: Final = tuple((kind, re.compile(source)) for kind, source in SUSPICIOUS)


def scan(text: str) -> Verdict:
    """Name what a text tries, over its plain, its folded and its decoded forms."""
    text = text[:MAX_SCANNED_CHARS]
    blocking, suspicious = _match(text)
    hidden = "".join(chr(ord(char) - 0xE0000) for run in _TAG_CHARS.findall(text) for char in run)
    if hidden:
        # Letters that nobody sees have no honest use outside flags.
        blocking.add(InjectionClass.ENCODED)
    if any(any(_match(payload)) for payload in _payloads(text)):
        blocking.add(InjectionClass.ENCODED)
    return Verdict(frozenset(blocking), frozenset(suspicious - blocking))


def normalise(text: str) -> str:
    """Return the form that patterns read.

    HTML entities and percent escapes are decoded once, compatibility forms unified (NFKC), invisible characters and
    accents removed, Cyrillic and Greek look-alikes folded to Latin, letters written apart joined, case folded, spaces
    unified. Line breaks stay.
    """
    return _folded(_plain(text))


def _plain(text: str) -> str:
    decoded = html.unescape(text)
    if "%" in decoded:
        decoded = unquote(decoded, errors="replace")
    plain = remove_invisible(unicodedata.normalize("NFKC", decoded)).casefold()
    return _SPACE.sub(" ", plain.replace("\u2019", "'"))


def _folded(plain: str) -> str:
    if not plain.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFD", plain) if not unicodedata.combining(c))
        plain = unicodedata.normalize("NFC", plain.translate(_LOOKALIKES))
    return _joined(plain)


def _joined(text: str) -> str:
    return _SPACED.sub(lambda match: re.sub(r"[ .*_-]", "", match[0]), text)


def _match(text: str) -> tuple[set[InjectionClass], set[InjectionClass]]:
    plain = _plain(text)
    # Joined before spaces are unified: of letters written apart, two spaces are the end of a word.
    folded = _folded(_plain(_joined(remove_invisible(text))))
    # Some rules look at the start of a line, others must not be escaped by breaking one.
    forms = {plain, folded, _SPACE.sub(" ", folded.replace("\n", " "))}
    blocking = {kind for kind, rule in _BLOCKING_RULES if any(rule.search(form) for form in forms)}
    suspicious = {kind for kind, rule in _SUSPICIOUS_RULES if any(rule.search(form) for form in forms)}
    if any(contains_wrapper(form) for form in forms):
        blocking.add(InjectionClass.WRAPPER)
    return blocking, suspicious - blocking


def _payloads(text: str) -> list[str]:
    """Decode what looks like base64 or hexadecimal and turns out to be readable text."""
    found = [bytes.fromhex(run).decode("utf-8", "replace") for run in _HEX.findall(text)[:_MAX_PAYLOADS]]
    for match in _BASE64.findall(text)[:_MAX_PAYLOADS]:
        body = match.rstrip("=").translate(str.maketrans("-_", "+/"))
        try:
            found.append(base64.b64decode(body + "=" * (-len(body) % 4)).decode("utf-8", "replace"))
        except binascii.Error:
            continue
    return [payload for payload in found if payload.isprintable() or "\n" in payload]
