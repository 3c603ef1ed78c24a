"""ULIDs: 48 bits of time in ms and 80 random bits, as 16 bytes inside and 26 lower-case characters outside.

The layout and the alphabet are those of the public ULID specification (Crockford's base 32); lower case because
object keys are. Time and randomness come from the caller.
"""

from __future__ import annotations

from relayer.wire.errors import Malformed

__all__ = ["make", "parse", "render", "time_of"]

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
# Python reads base 32 in the alphabet 0-9a-v; what is no character of ours becomes one that it refuses.
_DIGITS = dict.fromkeys(range(128), "!") | str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
_LENGTH = 26
_MAX_TIME = 2**48 - 1


def make(now_ms: int, random: bytes) -> bytes:
    """Make a ULID from a time in ms and ten random bytes."""
    if len(random) != 10:
        raise Malformed("a ULID needs ten random bytes")
    return min(max(now_ms, 0), _MAX_TIME).to_bytes(6, "big") + random


def render(ulid: bytes) -> str:
    """Render 16 bytes as 26 characters."""
    number = int.from_bytes(ulid, "big")
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in range(120, -1, -10)])


def parse(text: str) -> bytes:
    """Parse 26 lower-case characters.

    Raises:
        Malformed: wrong length, alphabet, or a value above 128 bits.
    """
    if len(text) != _LENGTH:
        raise Malformed("an id has 26 characters")
    try:
        # Other scripts have digits that Python would read, too.
        number = int(text.translate(_DIGITS), 32) if text.isascii() else -1
    except ValueError:
        number = -1
    if number < 0:
        raise Malformed("an id has only the characters 0-9 and a-z without i, l, o, u")
    if number >> 128:
        raise Malformed("an id is at most 128 bits")
    return number.to_bytes(16, "big")


def time_of(ulid: bytes) -> int:
    """Return the time in ms that the ULID carries."""
    return int.from_bytes(ulid[:6], "big")
