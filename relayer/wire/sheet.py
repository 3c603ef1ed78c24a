"""Paper backups of secrets: 32 bytes as 24 words of BIP 39, the last of which contains a checksum."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from mnemonic import Mnemonic

from relayer.wire.codec import InvalidSecret

LINES: Final = 6
_WORDS_OF_LINE: Final = 4
_LINE: Final = re.compile(r"\s*([1-6])[.:)]?\s+(\S.*)")


_MOST_BYTES: Final = 65_536


def read_sheet_file(file: Path) -> str:
    """Return the text of a file that should contain a sheet, at most 64 KiB. Pipes and devices are refused, not waited for.

    Raises:
        InvalidSecret: the file cannot contain a sheet.
        OSError: the file cannot be opened.
    """
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidSecret(f"{file} is no file: give the one that holds the sheet")
        content = opened.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise InvalidSecret("this is no sheet: it has more than 64 KiB")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidSecret("this is no sheet: not UTF-8") from None


@dataclass(frozen=True, slots=True)
class SheetKind:
    """A kind of sheet: its name, and the people who may see it."""

    name: str
    warning: str

    @property
    def title(self) -> str:
        """Return the first line of a sheet."""
        return f"memrelay recovery sheet: {self.name}"

    def render(self, secret: bytes, facts: Sequence[tuple[str, str]] = ()) -> str:
        """Return the sheet of a 32-byte secret. ``facts`` are names and values that are printed above the words."""
        words = _bip39().to_mnemonic(secret).split()
        return "\n".join(
            [
                self.title,
                self.warning,
                "",
                *(f"{name:<7} {value}" for name, value in facts),
                *([""] if facts else []),
                *(f"{at // 4 + 1}   {' '.join(words[at : at + 4])}" for at in range(0, len(words), 4)),
            ]
        )

    def read(self, text: str) -> bytes:
        """Return the secret of a sheet as it was printed or copied. Text around the lines of words is ignored.

        Raises:
            InvalidSecret: a line is missing or wrong. The message names the line and never shows a word.
        """
        lines = text.splitlines()
        other = RELAYER_SHEET if self == GATEWAY_SHEET else GATEWAY_SHEET
        if other.title.lower() in (line.strip().lower() for line in lines):
            raise InvalidSecret(f"this is a sheet of {other.name}, not of {self.name}")
        found = {match[1]: match[2] for match in map(_LINE.fullmatch, lines) if match}
        words: list[str] = []
        for number in range(1, LINES + 1):
            if str(number) not in found:
                raise InvalidSecret(
                    f"line {number} of the sheet is missing: each of the six begins with its number"
                )
            words += read_line(number, found[str(number)])
        return secret_of(words)


def read_line(number: int, text: str) -> list[str]:
    """Return the words of one line, given without its line number. The first four letters of a word are enough.

    Raises:
        InvalidSecret: as `SheetKind.read`.
    """
    words = [_bip39().expand_word(word) for word in text.lower().split()]
    if len(words) != _WORDS_OF_LINE:
        raise InvalidSecret(f"line {number} of the sheet has {len(words)} words, not {_WORDS_OF_LINE}")
    for place, word in enumerate(words, 1):
        if word not in _bip39().wordlist:
            raise InvalidSecret(f"word {place} of line {number} of the sheet is not a word of BIP 39")
    return words


def secret_of(words: Sequence[str]) -> bytes:
    """Return the secret that the words of all lines encode. Raises `InvalidSecret` if the checksum does not match."""
    try:
        return bytes(_bip39().to_entropy(list(words)))
    except ValueError:
        raise InvalidSecret(
            "the sheet's checksum does not match: compare each word with the paper, and their order"
        ) from None


@cache
def _bip39() -> Mnemonic:
    return Mnemonic("english")


GATEWAY_SHEET: Final = SheetKind(
    "a gateway's secret",
    "Anyone who holds this sheet can read every memory of the account. Print it, lock it away, do not photograph it.",
)
RELAYER_SHEET: Final = SheetKind(
    "a relayer key",
    "Without this key its store cannot be read. Print it, and keep it where the store is not.",
)
