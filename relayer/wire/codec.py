"""Canonical encodings: length-prefixed fields, base64url and ULIDs, and the errors of the shared layer.

``lp(a, b, ...)`` encodes each field as its length, in eight big-endian bytes, followed by its content. Everything that is
signed, derived from, or used as the context of a seal has this form. The content of bytes is the bytes; of a string, its
NFC form in UTF-8; of an integer, eight big-endian bytes; of a list, ``lp`` of its items. Two different sequences of fields
never have the same encoding, which JSON cannot guarantee.
"""

from __future__ import annotations

import binascii
import re
import unicodedata
from collections.abc import Sequence


class WireError(Exception):
    """Root of the shared layer's errors."""


class Malformed(WireError):
    """Raised when bytes do not follow their format."""


class InvalidName(WireError):
    """Raised when a name has no normal form, or is not in it."""


class InvalidSecret(WireError):
    """Raised when a secret is not 32 bytes in hex or base64. The message never shows the value."""


class UnsealError(WireError):
    """Raised when a sealed object does not open. It gives no cause, so that it tells an attacker nothing."""

    def __init__(self) -> None:
        super().__init__("this object does not open with this key in this place")


class NotAccepted(WireError):
    """Raised when a certificate, sealed key or signature breaks a rule.

    Attributes:
        rule: stable name of the broken rule, for logs and tests. Responses to clients that are not authenticated do not
            contain it unless it follows from the request alone.
    """

    def __init__(self, rule: str) -> None:
        super().__init__(f"not accepted: {rule}")
        self.rule = rule


Field = bytes | str | int | Sequence["Field"]

_MAX_INTEGER = 2**64 - 1


# Lengths below this are looked up in a table. Most fields are short, and every request and every seal has some.
_SMALL = 256
_SIZES = tuple(size.to_bytes(8, "big") for size in range(_SMALL))


def lp(*fields: Field) -> bytes:
    """Encode fields canonically.

    Raises:
        Malformed: an integer is negative or above 2^64 - 1, or a string has no UTF-8 form (lone surrogates).

    Example:
        >>> lp("ab", 7).hex(" ", 8)
        '0000 0000000000026162 0000000000000008 0000000000000007'
    """
    parts: list[bytes] = []
    for field in fields:
        # Most fields are bytes or ASCII text, and are encoded without a call: every write encodes some eighty of them.
        if type(field) is bytes:
            content = field
        elif type(field) is str and field.isascii():
            content = field.encode()
        elif type(field) is int and 0 <= field <= _MAX_INTEGER:
            content = field.to_bytes(8, "big")
        else:
            content = _content(field)
        size = len(content)
        parts += (_SIZES[size] if size < _SMALL else size.to_bytes(8, "big"), content)
    return b"".join(parts)


def _content(field: Field) -> bytes:
    if isinstance(field, bytes):
        return field
    if isinstance(field, str):
        if field.isascii():
            return field.encode()
        try:
            return unicodedata.normalize("NFC", field).encode()
        except UnicodeEncodeError as error:
            raise Malformed("a string contains a lone surrogate") from error
    if isinstance(field, int):
        if not 0 <= field <= _MAX_INTEGER:
            raise Malformed("an integer is outside 0 .. 2^64 - 1")
        return field.to_bytes(8, "big")
    return lp(*field)


class Reader:
    """Reads the fields of one ``lp`` value in order. Any deviation from the encoding raises `Malformed`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def bytes(self, size: int | None = None) -> bytes:
        """Read one field as bytes; ``size``, if given, is the only accepted length.

        Example:
            >>> Reader(lp(b"key")).bytes(size=3)
            b'key'
        """
        start = self._at + 8
        if start > len(self._data):
            raise Malformed("the value ends inside a length")
        end = start + int.from_bytes(self._data[self._at : start], "big")
        if end > len(self._data):
            raise Malformed("the value ends inside a field")
        if size is not None and end - start != size:
            raise Malformed(f"a field of {end - start} bytes was found where {size} are required")
        self._at = end
        return self._data[start:end]

    def text(self) -> str:
        """Read one field as an NFC string.

        Example:
            >>> Reader(lp("name")).text()
            'name'
        """
        raw = self.bytes()
        try:
            value = raw.decode()
        except UnicodeDecodeError as error:
            raise Malformed("a string is not UTF-8") from error
        if unicodedata.normalize("NFC", value) != value:
            raise Malformed("a string is not in NFC")
        return value

    def integer(self) -> int:
        """Read one field as an unsigned 64-bit integer.

        Example:
            >>> Reader(lp(42)).integer()
            42
        """
        return int.from_bytes(self.bytes(8), "big")

    def texts(self) -> tuple[str, ...]:
        """Read one field as a list of strings."""
        inner = Reader(self.bytes())
        values = []
        while not inner.done:
            values.append(inner.text())
        return tuple(values)

    @property
    def done(self) -> bool:
        """Return whether everything was read."""
        return self._at == len(self._data)

    def end(self) -> None:
        """Raise `Malformed` unless everything was read."""
        if not self.done:
            raise Malformed("bytes follow the last field")


_ALPHABET = re.compile(r"[A-Za-z0-9_-]*\Z")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_PLAIN = bytes.maketrans(b"-_", b"+/")


def encode(data: bytes) -> str:
    r"""Encode bytes as base64url without padding.

    Example:
        >>> encode(b"\xff\xfe\xfd")
        '__79'
    """
    return binascii.b2a_base64(data, newline=False).translate(_URL_SAFE).rstrip(b"=").decode("ascii")


def decode(text: str) -> bytes:
    r"""Decode base64url without padding.

    Raises:
        Malformed: the text has other characters, padding, or unused bits that are not zero.

    Example:
        >>> decode("__79")
        b'\xff\xfe\xfd'
    """
    try:
        data = binascii.a2b_base64(text.encode("ascii").translate(_PLAIN) + b"=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise _not_canonical(text, "not base64url") from error
    # This comparison alone decides whether the text is canonical. It is cheap, because every request has several to decode.
    if encode(data) != text:
        raise _not_canonical(text, "not the canonical base64url of its value")
    return data


def _not_canonical(text: str, otherwise: str) -> Malformed:
    return Malformed(otherwise if _ALPHABET.match(text) else "not base64url without padding")


_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [high + low for high in _CROCKFORD for low in _CROCKFORD]
# Python reads base 32 in the alphabet 0-9a-v. Characters outside of Crockford's alphabet become "!", which it refuses.
_DIGITS = dict.fromkeys(range(128), "!") | str.maketrans(_CROCKFORD, "0123456789abcdefghijklmnopqrstuv")
_LENGTH = 26
_MAX_TIME = 2**48 - 1


def make(now_ms: int, random: bytes) -> bytes:
    """Create a ULID, 16 bytes.

    Args:
        now_ms: the time in ms since the epoch; limited to 0..2**48 - 1.
        random: ten random bytes.

    Raises:
        Malformed: ``random`` does not have ten bytes.

    Example:
        >>> render(make(0, bytes(10)))
        '00000000000000000000000000'
    """
    if len(random) != 10:
        raise Malformed("a ULID needs ten random bytes")
    return min(max(now_ms, 0), _MAX_TIME).to_bytes(6, "big") + random


def render(ulid: bytes) -> str:
    """Format the 16 bytes of a ULID as 26 characters.

    Example:
        >>> render(bytes(16))
        '00000000000000000000000000'
    """
    number = int.from_bytes(ulid, "big")
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in range(120, -1, -10)])


def parse(text: str) -> bytes:
    """Parse a ULID of 26 lower-case characters.

    Raises:
        Malformed: the length or the alphabet is wrong, or the value is above 128 bits.

    Example:
        >>> parse("00000000000000000000000001")[-1]
        1
    """
    if len(text) != _LENGTH:
        raise Malformed("an id has 26 characters")
    try:
        # Python would also read digits of other scripts, so only ASCII is parsed.
        number = int(text.translate(_DIGITS), 32) if text.isascii() else -1
    except ValueError:
        number = -1
    if number < 0:
        raise Malformed("an id has only the characters 0-9 and a-z without i, l, o, u")
    if number >> 128:
        raise Malformed("an id is at most 128 bits")
    return number.to_bytes(16, "big")


def time_of(ulid: bytes) -> int:
    """Return the time in ms that the ULID carries.

    Example:
        >>> time_of(make(1_700_000_000_000, bytes(10)))
        1700000000000
    """
    return int.from_bytes(ulid[:6], "big")
