"""What the commands do that need more than the base install; `relayer.cli` imports this when it is asked for."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from relayer import bootstrap
from relayer.config import load_settings
from relayer.errors import ConfigurationError
from relayer.observability import configure
from relayer.relayer_key import find_relayer_key, read_sheet, recovery_sheet

if sys.platform == "win32":
    _run = asyncio.run
else:
    from uvloop import run as _run

__all__ = ["check_sheet", "print_sheet", "serve"]


def serve(flags: Mapping[str, object], say: Callable[[str], None]) -> None:
    """Run a relayer until it is told to stop; raises `relayer.errors.RelayerError` when it cannot start."""
    settings = load_settings(flags, os.environ)
    configure(settings.log_format, settings.log_level)
    _run(bootstrap.serve(settings, say))


def print_sheet(data: Path | None, say: Callable[[str], None]) -> None:
    """Print the recovery sheet of the relayer key; raises `ConfigurationError` when there is none."""
    key = _key(data)
    say("memrelay relayer key: keep it where the store is not. Compare with --verify.")
    say(recovery_sheet(key))


def check_sheet(data: Path | None, sheet: str, say: Callable[[str], None]) -> None:
    """Compare a sheet with the relayer key; raises `ConfigurationError` naming what does not fit."""
    if read_sheet(sheet) != _key(data):
        raise ConfigurationError("the sheet is in order, but it is another relayer's")
    say("the sheet holds this relayer's key")


def _key(data: Path | None) -> bytes:
    key = find_relayer_key(load_settings({"data": data}, os.environ))
    if key is None:
        raise ConfigurationError("there is no relayer key yet: memrelay serve makes one at its first start")
    return key
