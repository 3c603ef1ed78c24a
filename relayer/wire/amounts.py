"""Durations and sizes as people write them, for the commands and settings of relayer and plugin.

A number without a unit keeps the meaning that it had before units were accepted.
"""

from __future__ import annotations

import re
from typing import Final

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_POWERS: Final = "kmgt"
_SPAN: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?|\.[0-9]{1,6}) ?([smhdw]?)")
_SIZE: Final = re.compile(r"([0-9]{1,18}) ?(?:([kmgt])(i?b)?|b)?", re.IGNORECASE)


def parse_seconds(given: str, unit: str = "s") -> float:
    """Return the seconds of a duration such as 30s, 10m, 12h, 7d or 8w.

    Args:
        given: the text; a number without a unit is in ``unit``.
        unit: ``s``, ``m``, ``h``, ``d`` or ``w``.

    Raises:
        ValueError: the text is no duration; the message says how to write one.

    Example:
        >>> parse_seconds("12h")
        43200.0
        >>> parse_seconds("90", unit="m")
        5400.0
    """
    match = _SPAN.fullmatch(given.strip())
    if match is None:
        raise ValueError("give a number and a unit: 30s, 10m, 12h, 7d or 8w")
    return float(match[1]) * _SECONDS[match[2] or unit]


def parse_bytes(given: str) -> int:
    """Return the bytes of a size: 512M and 512MiB are 512 x 1024 x 1024, 512MB is 512,000,000.

    Raises:
        ValueError: the text is no size; the message says how to write one.

    Example:
        >>> parse_bytes("64K"), parse_bytes("64KB")
        (65536, 64000)
    """
    match = _SIZE.fullmatch(given.strip())
    if match is None:
        raise ValueError("give a number of bytes, or a size: 64K, 512M, 2GiB")
    base = 1000 if (match[3] or "").lower() == "b" else 1024
    power = _POWERS.index(match[2].lower()) + 1 if match[2] else 0
    return int(match[1]) * int(base**power)


def show_seconds(seconds: float) -> str:
    """Format a duration as `parse_seconds` reads it, in the largest unit of which it is a whole multiple.

    Example:
        >>> show_seconds(5400)
        '90m'
    """
    if not seconds or seconds != int(seconds):
        return f"{seconds:g}"
    unit, size = next(one for one in reversed(_SECONDS.items()) if int(seconds) % one[1] == 0)
    return f"{int(seconds) // size}{unit}"


def show_bytes(size: int) -> str:
    """Format a size as `parse_bytes` reads it, in the largest unit of which it is a whole multiple.

    Example:
        >>> show_bytes(512 * 1024 * 1024)
        '512M'
    """
    power = max((n for n in range(len(_POWERS) + 1) if size and size % 1024**n == 0), default=0)
    return f"{size // 1024**power}{('', *_POWERS.upper())[power]}"
