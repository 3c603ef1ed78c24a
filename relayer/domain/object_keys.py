"""Which keys an object may have: the smallest alphabet that every store keeps apart and unchanged.

Some S3 servers store ``a//b`` as ``a/b`` and some file systems fold case, so neither can occur.
"""

from __future__ import annotations

import re

__all__ = ["check_key", "check_prefix", "check_range"]

_KEY = re.compile(r"[a-z0-9_-]+(?:/[a-z0-9_-]+)*")
_PREFIX = re.compile(r"(?:[a-z0-9_-]+/)*[a-z0-9_-]*")
_LONGEST_SEGMENT = 255  # NAME_MAX of the common file systems
_LONGEST_KEY = 1024  # S3's limit, in bytes


def check_key(key: str) -> str:
    """Return ``key`` if it is ``[a-z0-9_-]`` segments joined by single slashes; raises `ValueError` if not."""
    if not _KEY.fullmatch(key) or len(key) > _LONGEST_KEY:
        raise ValueError(f"not an object key: {key[:80]!r}")
    if any(len(segment) > _LONGEST_SEGMENT for segment in key.split("/")):
        raise ValueError(
            f"an object key's segment is longer than {_LONGEST_SEGMENT} characters: {key[:80]!r}"
        )
    return key


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` if some key can start with it, the empty one included; raises `ValueError` if not."""
    if not _PREFIX.fullmatch(prefix) or len(prefix) > _LONGEST_KEY:
        raise ValueError(f"not a prefix of object keys: {prefix[:80]!r}")
    return prefix


def check_range(byte_range: tuple[int, int] | None) -> None:
    """Raise `ValueError` unless ``byte_range`` is None or ``[start, end)`` with at least one byte in it."""
    if byte_range is not None and not 0 <= byte_range[0] < byte_range[1]:
        raise ValueError(f"not a byte range: {byte_range}")
