"""The implementation of the commands that need more than the base installation; `relayer.cli` imports it when one is run."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import typer

from relayer import serving, stores
from relayer.commands.console import NOT_WELL, UNAVAILABLE, Tell
from relayer.errors import BrokenPromise, ConfigurationError, StoreUnavailable
from relayer.launcher import launch
from relayer.process import check_ready_file, cores
from relayer.settings.config import MOST_WORKERS, PREFIX, load_settings
from relayer.settings.keys import (
    RelayerKey,
    find_relayer_key,
    generated_key_file,
    make_key_file,
    read_key,
    read_new_key,
)
from relayer.telemetry import configure
from relayer.wire.command_line import tell
from relayer.wire.errors import InvalidSecret
from relayer.wire.sheet import RELAYER_SHEET, read_sheet_file

if sys.platform == "win32":
    _run = asyncio.run
else:
    from uvloop import run as _run


ENVIRONMENT_FILE = "relayer.env"
_PLAIN = re.compile(r"[A-Za-z0-9_@%+:,./=\[\]-]+")
_CREDENTIALS = (
    "# Credentials of the bucket; leave these out where the machine has a role.\n"
    "#AWS_ACCESS_KEY_ID=\n"
    "#AWS_SECRET_ACCESS_KEY=\n"
)


def serve(flags: Mapping[str, object], say: Callable[[str], None]) -> int:
    """Run a relayer until it is told to stop, and return the exit code.

    Raises:
        relayer.errors.RelayerError: the relayer cannot start.
    """
    settings = load_settings(flags, os.environ)
    if settings.ready_file is not None:
        check_ready_file(settings.ready_file)
    configure(settings.log_format, settings.log_level)
    workers = min(cores(), MOST_WORKERS) if settings.workers == "auto" else settings.workers
    if workers == 1:
        _run(serving.serve(settings, say))
        return 0
    return asyncio.run(launch(settings, flags, workers, say))


def probe_store(flags: Mapping[str, object], *, as_json: bool) -> int:
    """Test the guarantees that a store must give, and print the results, line by line or as one document at the end.

    Returns the command's exit code: 0 if the store keeps every guarantee, 1 if it breaks one, 3 if it does not respond.

    Raises:
        ConfigurationError: a setting is wrong.
        StoreMisconfigured: the store cannot be tested until an operator fixes its configuration.
    """
    settings = load_settings(flags, os.environ)
    configure(settings.log_format, settings.log_level)
    found: list[tuple[str, str]] = []

    def say(word: str, text: str) -> None:
        found.append((word, text))
        if not as_json:
            typer.echo(f"{word:8}{text}")

    code, row = 0, {}
    try:
        row = _run(stores.probe_store(settings, say))
    except BrokenPromise as error:
        code, row = NOT_WELL, {"broken": str(error)}
        say("BROKEN", str(error))
    except StoreUnavailable as error:
        if as_json:
            raise
        code = UNAVAILABLE
        say("silent", str(error))
    store = next((text for word, text in found if word == "store"), None)
    kept = [text for word, text in found if word == "kept"]
    tell({"store": store, "can_hold_the_log": code == 0, "kept": kept, **row}, as_json=as_json)
    return code


def init(folder: Path, flags: Mapping[str, object], say: Tell) -> None:
    """Create a relayer key and a file of settings, and print the next steps. An existing key is kept.

    The settings file works for every way of running the relayer. systemd (``EnvironmentFile=``), containers (``--env-file``)
    and shells (``set -a; . FILE``) agree on lines ``NAME=value`` only as long as no value needs quotes, so values that need
    quotes are refused.

    Args:
        folder: directory for the files, created if needed; without a bucket it is also the data directory.
        flags: settings by name; None means the default.
        say: prints the result.

    Raises:
        ConfigurationError: a setting is wrong or cannot be written without quotes, or the settings file exists already.
    """
    folder = folder.expanduser().absolute()
    key_file, file = generated_key_file(folder), folder / ENVIRONMENT_FILE
    given = {name: str(value) for name, value in flags.items() if value is not None}
    place = {"relayer_key_file": str(key_file)} if "store" in given else {"data": str(folder)}
    settings = load_settings({**flags, **place}, os.environ)
    lines = [f"{PREFIX}{name.upper()}={_plain(name, value)}\n" for name, value in {**place, **given}.items()]
    made = make_key_file(key_file)
    text = "".join(lines) + (_CREDENTIALS if settings.store is not None else "")
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise ConfigurationError(f"{file} already exists: edit it, or choose another folder") from error
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written ({error.strerror})") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)
    probe = ("          memrelay store probe          check that the bucket supports conditional writes",)
    say(
        {"key_file": str(key_file), "key_made": made, "settings_file": str(file)},
        f"key       {key_file} ({'made' if made else 'was there'}); it cannot be recovered: keep a copy",
        f"settings  {file}",
        "",
        f"next      set -a; . {file}; set +a",
        "          memrelay keys recovery        print the key as a recovery sheet",
        *(probe if settings.store is not None else ()),
        "          memrelay serve                run a relayer; all replicas use the same key and settings",
    )


def _plain(name: str, value: str) -> str:
    if not _PLAIN.fullmatch(value):
        raise ConfigurationError(
            f"{PREFIX}{name.upper()}: the value would need quotes, which systemd, containers and shells read differently; use letters, digits and _@%+:,./=[]- only"
        )
    return value


def make_key(file: Path, say: Tell) -> None:
    """Create a file with a new relayer key. Raises `ConfigurationError` if the file exists or cannot be written."""
    if not make_key_file(file.expanduser()):
        raise ConfigurationError(f"{file} already exists: relayer keys are never overwritten")
    say(
        {"file": str(file)},
        f"created a relayer key in {file}; use it with MEMRELAY_RELAYER_KEY_FILE={file}",
        "Without the key the store cannot be read: keep a copy (memrelay keys recovery)",
    )


def rotate_key(flags: Mapping[str, object], new_key_file: Path | None, say: Tell) -> None:
    """Replace the relayer key of a store, and print what to do next.

    Args:
        flags: settings by name; None means the default.
        new_key_file: file with the new key.
        say: prints the result.

    Raises:
        ConfigurationError: a setting is wrong, or a key is missing.
        WrongRelayerKey: neither key opens the store.
        StoreError: the store cannot be used.
    """
    settings = load_settings(flags, os.environ)
    configure(settings.log_format, settings.log_level)
    current = _configured_key(flags)
    if new_key_file is None:
        raise ConfigurationError(
            "--new-key-file: give the file of the new key; memrelay keys make FILE creates one"
        )
    changed, older = _run(stores.rotate_key(settings, current, read_new_key(new_key_file.expanduser())))
    done = "the store is opened by the new key now" if changed else "the new key opened the store already"
    lines = [
        f"{done}; the relayers that are running go on",
        f"next      replace the old key by {new_key_file} where relayers and operators' commands read it",
        "          memrelay keys recovery        print the new key as a recovery sheet",
        "          memrelay backup               earlier copies of the store or of backups are opened by the old key",
    ]
    if older is None or older:
        kept = "may keep" if older is None else f"keeps {older}"
        lines.append(
            f"          the bucket {kept} older versions of the object relayer, which the old key opens: delete them"
        )
    say({"rotated": changed, "new_key_file": str(new_key_file), "older_versions": older}, *lines)


def print_sheet(flags: Mapping[str, object], say: Tell) -> None:
    """Print the recovery sheet of the relayer key. Raises `ConfigurationError` if there is no key."""
    sheet = RELAYER_SHEET.render(_key(flags))
    say({"sheet": sheet}, sheet)


def check_sheet(flags: Mapping[str, object], sheet: str, say: Tell) -> None:
    """Compare a sheet with the relayer key. Raises `ConfigurationError` with the difference if they do not match."""
    if _read_sheet(sheet) != _key(flags):
        raise ConfigurationError("the sheet is valid, but belongs to another relayer")
    say({"in_order": True}, "the sheet holds this relayer's key")


def _read_sheet(sheet: str) -> bytes:
    try:
        return RELAYER_SHEET.read(sheet)
    except InvalidSecret as error:
        raise ConfigurationError(str(error)) from error


def text_of_sheet(file: Path) -> str:
    """Return the content of a file. Raises `ConfigurationError` if it cannot be read."""
    try:
        return read_sheet_file(file.expanduser())
    except OSError as error:
        raise ConfigurationError(f"--sheet: {file} cannot be read ({error.strerror})") from error
    except InvalidSecret as error:
        raise ConfigurationError(f"--sheet: {error}") from error


def recover_key(file: Path, sheet: str, say: Tell) -> None:
    """Create the file of the relayer key from its recovery sheet. An existing file is kept.

    Raises:
        ConfigurationError: a line of the sheet is wrong, or a file with another key exists, or the file cannot be written.
    """
    file = file.expanduser()
    key = _read_sheet(sheet)
    if not make_key_file(file, key) and read_key(file) != key:
        raise ConfigurationError(
            f"{file} already exists with another key: relayer keys are never overwritten"
        )
    said = f"the relayer key of the sheet is in {file}; use it with MEMRELAY_RELAYER_KEY_FILE={file}"
    say({"file": str(file)}, said)


def _key(flags: Mapping[str, object]) -> bytes:
    key = _configured_key(flags)
    if not isinstance(key, bytes):
        raise ConfigurationError(
            f"the relayer key is in a key management service ({key}), so it has no sheet"
        )
    return key


def _configured_key(flags: Mapping[str, object]) -> RelayerKey:
    key = find_relayer_key(load_settings(flags, os.environ))
    if key is None:
        raise ConfigurationError("no relayer key yet: memrelay serve creates one at its first start")
    return key
