"""The names of months, weekdays and other times in fifteen languages, which search and extraction read."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def time_names() -> Mapping[str, dict[str, Any]]:
    """Return the names by language; ``data/times.toml`` says what each is.

    Example:
        >>> time_names()["de"]["weekdays"][0]
        'montag'
    """
    return tomllib.loads((files("relayer.lib") / "data" / "times.toml").read_text("utf-8"))
