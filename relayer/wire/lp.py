"""Length-prefixed encoding: the canonical form of everything that is signed, derived or sealed as context.

``lp(a, b, ...)`` is, for each field, its length as eight big-endian bytes followed by its content. Content of bytes is
the bytes; of a string, its NFC form in UTF-8; of an integer, eight big-endian bytes; of a list, ``lp`` of its items.
Two different sequences of fields never encode alike, which JSON cannot promise.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from relayer.wire.errors import Malformed

__all__ = ["Field", "Reader", "lp"]

Field = bytes | str | int | Sequence["Field"]

_MAX_INTEGER = 2**64 - 1


def lp(*fields: Field) -> bytes:
    """Encode fields canonically.

    Raises:
        Malformed: an integer is negative or above 2^64 - 1, or a string has no UTF-8 form (lone surrogates).
    """
    parts: list[bytes] = []
    for field in fields:
        content = _content(field)
        parts.append(len(content).to_bytes(8, "big"))
        parts.append(content)
    return b"".join(parts)


def _content(field: Field) -> bytes:
    if isinstance(field, bytes):
        return field
    if isinstance(field, str):
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
    """Reads the fields of one ``lp`` value in order; every irregularity is `Malformed`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def bytes(self, size: int | None = None) -> bytes:
        """Read one field as bytes; ``size``, if given, is the only accepted length."""
        start = self._at + 8
        if start > len(self._data):
            raise Malformed("the value ends inside a length")
        end = start + int.from_bytes(self._data[self._at : start], "big")
        if end > len(self._data):
            raise Malformed("the value ends inside a field")
        if size is not None and end - start != size:
            raise Malformed(f"a field of {end - start} bytes stands where {size} are due")
        self._at = end
        return self._data[start:end]

    def text(self) -> str:
        """Read one field as an NFC string."""
        raw = self.bytes()
        try:
            value = raw.decode()
        except UnicodeDecodeError as error:
            raise Malformed("a string is not UTF-8") from error
        if unicodedata.normalize("NFC", value) != value:
            raise Malformed("a string is not in NFC")
        return value

    def integer(self) -> int:
        """Read one field as an unsigned 64-bit integer."""
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
        """Whether everything was read."""
        return self._at == len(self._data)

    def end(self) -> None:
        """Require that everything was read."""
        if not self.done:
            raise Malformed("bytes follow the last field")
