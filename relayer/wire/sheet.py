"""A secret on paper: 32 bytes as four numbered lines of hex digits with a check each, and one over all, so that a copy can be trusted.

The gateway's secret and the relayer key are laid out alike, under different labels: a sheet of one is never taken for the other.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relayer.wire.codec import lp
from relayer.wire.errors import InvalidSecret
from relayer.wire.sealing import SECRET_SIZE

LINES: Final = 4
_LINE_BYTES: Final = SECRET_SIZE // LINES
_LINE_DIGITS, _CHECK_DIGITS = 2 * _LINE_BYTES, 4
_LINE: Final = re.compile(r"\s*([1-4])[.:)]?\s+(\S.*)")
# A sheet of the relayer key said "checksum" before both were laid out alike.
_TOTAL: Final = re.compile(r"\s*check(?:sum)?[.:]?\s+([0-9a-f]{8})\s*", re.IGNORECASE)


_MOST_BYTES: Final = 65_536


def read_sheet_file(file: Path) -> str:
    """Return the text of a file that should hold a sheet, of 64 KiB at most; a pipe or a device is not waited for.

    Raises:
        InvalidSecret: it cannot hold a sheet.
        OSError: it cannot be opened.
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
        raise InvalidSecret("this is no sheet: it is not UTF-8") from None


@dataclass(frozen=True, slots=True)
class SheetKind:
    """A kind of sheet: what it is called, who may see it, and the label and parts that its checks are made of."""

    name: str
    warning: str
    label: str
    total_parts: tuple[int, ...]

    def render(self, secret: bytes, facts: Sequence[tuple[str, str]] = ()) -> str:
        """Return the sheet of a secret of 32 bytes; ``facts`` are names and values for whoever finds it."""
        return "\n".join(
            [
                f"memrelay recovery sheet: {self.name}",
                self.warning,
                "",
                *(f"{name:<7} {value}" for name, value in facts),
                *([""] if facts else []),
                *(self._line(number, part) for number, part in enumerate(_parts(secret), 1)),
                "",
                f"check   {self._total(secret)}",
            ]
        )

    def read(self, text: str) -> bytes:
        """Return the secret of a sheet as it was printed or typed in again; what else stands around it does not matter.

        Raises:
            InvalidSecret: names the line that is missing or wrong, and never shows one.
        """
        found = {match[1]: match[2] for match in map(_LINE.fullmatch, text.splitlines()) if match}
        secret = self._joined(found)
        totals = [match[1] for match in map(_TOTAL.fullmatch, text.splitlines()) if match]
        if not totals:
            raise InvalidSecret("the last line of the sheet is missing: check and 8 hex digits")
        if not hmac.compare_digest(self._total(secret), totals[-1].lower()):
            raise InvalidSecret(
                "the sheet's last check does not fit: each line is right by itself, but they are of different sheets"
            )
        return secret

    def read_line(self, number: int, text: str) -> bytes:
        """Return the eight bytes of one line, given without its number; raises `InvalidSecret` as `read`."""
        digits = re.sub(r"\s", "", text).lower()
        if not re.fullmatch("[0-9a-f]*", digits):
            raise InvalidSecret(
                f"line {number} of the sheet holds something else than hex digits: 0 to 9 and a to f, no letter O and no l"
            )
        wanted = _LINE_DIGITS + _CHECK_DIGITS
        if len(digits) != wanted:
            raise InvalidSecret(
                f"line {number} of the sheet has {len(digits)} hex digits, not {wanted}: four groups and a check of {_CHECK_DIGITS}"
            )
        part = bytes.fromhex(digits[:_LINE_DIGITS])
        if not hmac.compare_digest(self._check(number, part), digits[_LINE_DIGITS:]):
            raise InvalidSecret(
                f"line {number} of the sheet does not fit its check: compare it with the paper"
            )
        return part

    def _joined(self, found: Mapping[str, str]) -> bytes:
        missing = [str(number) for number in range(1, LINES + 1) if str(number) not in found]
        if missing:
            raise InvalidSecret(
                f"line {missing[0]} of the sheet is missing: each of the four begins with its number"
            )
        try:
            return b"".join(self.read_line(number, found[str(number)]) for number in range(1, LINES + 1))
        except InvalidSecret:
            other = next(kind for kind in (GATEWAY_SHEET, RELAYER_SHEET) if kind != self)
            if other.fits(found):
                raise InvalidSecret(f"this is a sheet of {other.name}, not of {self.name}") from None
            raise

    def fits(self, found: Mapping[str, str]) -> bool:
        """Whether the first of these lines is one of this kind."""
        try:
            self.read_line(1, found["1"])
        except InvalidSecret:
            return False
        return True

    def _line(self, number: int, part: bytes) -> str:
        return f"{number}   {part.hex(' ', 2)}   {self._check(number, part)}"

    def _check(self, number: int, part: bytes) -> str:
        return hashlib.sha256(lp(self.label, number, part)).hexdigest()[:_CHECK_DIGITS]

    def _total(self, secret: bytes) -> str:
        return hashlib.sha256(lp(self.label, *self.total_parts, secret)).hexdigest()[:8]


def _parts(secret: bytes) -> list[bytes]:
    return [secret[start : start + _LINE_BYTES] for start in range(0, SECRET_SIZE, _LINE_BYTES)]


GATEWAY_SHEET: Final = SheetKind(
    "a gateway's secret",
    "Whoever holds this sheet can read every memory of the account. Print it, lock it away, do not photograph it.",
    "memrelay/v1/recovery",
    (),
)
RELAYER_SHEET: Final = SheetKind(
    "a relayer key",
    "Without this key its store cannot be read. Print it, and keep it where the store is not.",
    "memrelay/v1/relayer/sheet",
    (0,),
)
