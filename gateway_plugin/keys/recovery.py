"""The recovery sheet: the root secret on paper, with checks that say which line was copied wrongly.

    1   e21d 9a02 4b77 0c1e   3f5a

Four lines of eight bytes, each with two bytes of a checksum over its number and content, then four bytes over all of it.
The checks catch slips of a pen; they protect nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from gateway_plugin.errors import IdentityError
from relayer.wire.keys import SECRET_SIZE, RootKeys
from relayer.wire.lp import lp

__all__ = ["parse_sheet", "render_sheet"]

_LINES: Final = 4
_LINE_BYTES: Final = SECRET_SIZE // _LINES
_LABEL: Final = "memrelay/v1/recovery"
_LINE: Final = re.compile(
    r"^\s*([1-4])[.:)]?\s+((?:[0-9a-fA-F]{4}\s*){4})\s+([0-9a-fA-F]{4})\s*$", re.MULTILINE
)
_TOTAL: Final = re.compile(r"^\s*check[.:]?\s+([0-9a-fA-F]{8})\s*$", re.MULTILINE | re.IGNORECASE)


def render_sheet(root: RootKeys) -> str:
    """Render the sheet; whoever reads it can read every memory of the account."""
    lines = []
    for number in range(1, _LINES + 1):
        part = root.root[(number - 1) * _LINE_BYTES : number * _LINE_BYTES]
        lines.append(f"{number}   {_grouped(part.hex())}   {_check(number, part)}")
    return "\n".join(
        [
            "memrelay recovery sheet",
            "Whoever holds this sheet can read every memory of the account. Print it, lock it away, do not photograph it.",
            "",
            f"account {root.account}",
            "",
            *lines,
            "",
            f"check {_total(root.root)}",
            "",
        ]
    )


def parse_sheet(text: str) -> bytes:
    """Return the secret that a sheet holds.

    Raises:
        IdentityError: a line is missing or does not fit its check; says which, and shows none.
    """
    found = {
        int(number): (bytes.fromhex(re.sub(r"\s", "", body)), check.lower())
        for number, body, check in _LINE.findall(text)
    }
    for number in range(1, _LINES + 1):
        if number not in found:
            raise IdentityError(f"line {number} of the sheet is missing, or not in form")
        part, check = found[number]
        if not hmac.compare_digest(_check(number, part), check):
            raise IdentityError(f"line {number} of the sheet does not fit its check")
    secret = b"".join(found[number][0] for number in sorted(found))
    total = _TOTAL.search(text)
    if total is None or not hmac.compare_digest(_total(secret), total[1].lower()):
        raise IdentityError("the sheet's last check is missing, or does not fit")
    return secret


def _grouped(digits: str) -> str:
    return " ".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def _check(number: int, part: bytes) -> str:
    return hashlib.sha256(lp(_LABEL, number, part)).hexdigest()[:4]


def _total(secret: bytes) -> str:
    return hashlib.sha256(lp(_LABEL, secret)).hexdigest()[:8]
