"""What the commands do that need more than the base install; `relayer.cli` imports this when it is asked for."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from relayer import serving, stores
from relayer.errors import BrokenPromise, ConfigurationError, StoreUnavailable
from relayer.settings.config import load_settings
from relayer.settings.deployment import initialise
from relayer.settings.key import find_relayer_key, make_key_file, read_sheet, recovery_sheet
from relayer.telemetry import configure

if sys.platform == "win32":
    _run = asyncio.run
else:
    from uvloop import run as _run


BROKEN_PROMISE = 1
UNAVAILABLE = 3


def serve(flags: Mapping[str, object], say: Callable[[str], None]) -> None:
    """Run a relayer until it is told to stop; raises `relayer.errors.RelayerError` when it cannot start."""
    settings = load_settings(flags, os.environ)
    configure(settings.log_format, settings.log_level)
    _run(serving.serve(settings, say))


def probe_store(flags: Mapping[str, object], say: Callable[[str], None]) -> int:
    """Try what a store promises and print what it keeps.

    Returns the command's exit code: 0 when every promise is kept, 1 when one is broken, 3 when nothing can be said
    because the store does not answer.

    Raises:
        ConfigurationError: a setting is wrong.
        StoreMisconfigured: an operator must act before there is anything to try.
    """
    settings = load_settings(flags, os.environ)
    configure(settings.log_format, settings.log_level)
    try:
        _run(stores.probe_store(settings, say))
    except BrokenPromise as error:
        say(f"BROKEN  {error}")
        return BROKEN_PROMISE
    except StoreUnavailable as error:
        say(f"silent  {error}")
        return UNAVAILABLE
    return 0


def init(folder: Path, flags: Mapping[str, object], say: Callable[[str], None]) -> None:
    """Make a key and a file of settings; raises `ConfigurationError` as `relayer.settings.deployment.initialise` does."""
    initialise(folder, flags, lambda settings: load_settings(settings, os.environ), say)


def make_key(file: Path, say: Callable[[str], None]) -> None:
    """Make a file with a new relayer key; raises `ConfigurationError` when there is a file or it cannot be written."""
    if not make_key_file(file.expanduser()):
        raise ConfigurationError(f"{file} is there already: a relayer key is never replaced")
    say(f"made a relayer key in {file}; give it as MEMRELAY_RELAYER_KEY_FILE={file}")
    say("Without it the store cannot be read: keep a copy (memrelay keys recovery)")


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
