"""Looks for readable traces of a conversation in bytes that should be noise.

A text is found when any sixteen consecutive bytes of it occur that begin at a multiple of eight, so that a single
stored sentence of 24 bytes is enough; a name is found whole. Both are looked for in any case, as they are, as UTF-16, in
hexadecimal, and in base64 of either alphabet at any alignment. Sealed objects are also searched for single long words,
as an index of terms would hold them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Final

_WINDOW: Final = 16
_STRIDE: Final = 8
# Shorter names and words occur in noise by chance.
_SHORTEST_NAME: Final = 5
_HEX: Final = re.compile(rb"(?:[0-9a-f]{2}){5,}|(?:[0-9A-F]{2}){5,}")
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/_-]{7,}")
_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_WORD: Final = re.compile(rb"[a-z]{8,}")


def views(data: bytes) -> Iterator[bytes]:
    """Yield what bytes may mean: themselves, every second byte (UTF-16), decoded hexadecimal, decoded base64."""
    yield data
    yield data[::2]
    yield data[1::2]
    for run in _HEX.findall(data):
        for start in (0, 1):
            digits = run[start:]
            yield binascii.unhexlify(digits[: len(digits) // 2 * 2])
    for run in _BASE64.findall(data):
        standard = run.translate(_STANDARD)
        for start in range(4):
            rest = standard[start:]
            # One letter left over carries six bits and no byte.
            rest = rest[: len(rest) - (len(rest) % 4 == 1)]
            yield base64.b64decode(rest + b"=" * (-len(rest) % 4))


class TraceSearch:
    """What must not be readable.

    Args:
        names: who and where; those of fewer than five bytes are left out, because noise spells them by chance.
        blobs: bytes to be found whole, such as an encoded vector; at least sixteen each.
    """

    def __init__(self, texts: Iterable[str], names: Iterable[str] = (), blobs: Iterable[bytes] = ()) -> None:
        self._windows: set[bytes] = set()
        self._words: set[bytes] = set()
        for text in texts:
            raw = text.encode().lower()
            self._windows.update(
                raw[start : start + _WINDOW] for start in range(0, len(raw) - _WINDOW + 1, _STRIDE)
            )
            self._words.update(_WORD.findall(raw))
        encoded = (name.encode().lower() for name in names)
        self._names = {name for name in encoded if len(name) >= _SHORTEST_NAME}
        self._blobs = frozenset(blobs)

    def found_in(self, data: bytes, *, words: bool = False) -> frozenset[str]:
        """Return which kinds of traces occur in ``data``: ``text``, ``name``, ``blob``, ``word``.

        Look for single words (``words``) only where no honest prose is.
        """
        found: set[str] = set()
        for view in views(data):
            if any(blob in view for blob in self._blobs):
                found.add("blob")
            lowered = view.lower()
            if any(name in lowered for name in self._names):
                found.add("name")
            if words and not self._words.isdisjoint(_WORD.findall(lowered)):
                found.add("word")
            if self._has_window(lowered):
                found.add("text")
        return frozenset(found)

    def _has_window(self, view: bytes) -> bool:
        windows = self._windows
        return any(view[start : start + _WINDOW] in windows for start in range(len(view) - _WINDOW + 1))
