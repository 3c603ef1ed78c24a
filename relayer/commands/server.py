"""The commands of ``memrelay`` that run a relayer and look after its key and its store; imported when one of them is run.

`relayer.cli` lists them with their summaries. The settings that a command takes are among its keyword arguments, None for a
setting that is not given. A wrong setting is a `ConfigurationError`.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from relayer import serving, stores
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
from relayer.wire.codec import InvalidSecret
from relayer.wire.command_line import FAILED, UNREACHABLE, JsonOption, tell
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
_NewFile = Annotated[Path, typer.Argument(help="File to make, readable by its owner alone.")]


def serve(**flags: object) -> None:
    """Run a relayer. Every option is also an environment variable: MEMRELAY_HOST and so on.

    Example: memrelay serve --port 8787 --cache-bytes 512M

    Example: memrelay serve --store s3://memories/team --host 0.0.0.0 --public-url https://memory.example.org --accounts open
    """
    settings = load_settings(flags, os.environ)
    if settings.ready_file is not None:
        check_ready_file(settings.ready_file)
    configure(settings.log_format, settings.log_level)
    workers = min(cores(), MOST_WORKERS) if settings.workers == "auto" else settings.workers
    if workers > 1:
        raise typer.Exit(asyncio.run(launch(settings, flags, workers, typer.echo)))
    _run(serving.serve(settings, typer.echo))


def probe_store(*, as_json: JsonOption = False, **flags: object) -> None:
    """Try whether a store keeps what the log rests on. Exit code 1: it does not; 2: settings; 3: no answer.

    Example: memrelay store probe --store s3://memories/team
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
        code, row = FAILED, {"broken": str(error)}
        say("BROKEN", str(error))
    except StoreUnavailable as error:
        if as_json:
            raise
        code = UNREACHABLE
        say("silent", str(error))
    store = next((text for word, text in found if word == "store"), None)
    kept = [text for word, text in found if word == "kept"]
    tell({"store": store, "can_hold_the_log": code == 0, "kept": kept, **row}, as_json=as_json)
    raise typer.Exit(code)


def init(
    folder: Annotated[Path, typer.Argument(help="Folder for the key and the settings.")],
    *,
    as_json: JsonOption = False,
    **flags: object,
) -> None:
    """Make a relayer key and a file of settings for services, containers and shells; says what to do next.

    Example: memrelay init ~/memrelay --store s3://memories/team
    """
    # An existing key is kept. systemd (EnvironmentFile=), containers (--env-file) and shells (set -a; . FILE) agree on lines
    # NAME=value only as long as no value needs quotes, so values that need quotes are refused.
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
    tell(
        {"key_file": str(key_file), "key_made": made, "settings_file": str(file)},
        f"key       {key_file} ({'made' if made else 'was there'}); it cannot be recovered: keep a copy",
        f"settings  {file}",
        "",
        f"next      set -a; . {file}; set +a",
        "          memrelay keys recovery        print the key as a recovery sheet",
        *(probe if settings.store is not None else ()),
        "          memrelay serve                run a relayer; all replicas use the same key and settings",
        as_json=as_json,
    )


def _plain(name: str, value: str) -> str:
    if not _PLAIN.fullmatch(value):
        raise ConfigurationError(
            f"{PREFIX}{name.upper()}: the value would need quotes, which systemd, containers and shells read differently; use letters, digits and _@%+:,./=[]- only"
        )
    return value


def make_key(file: _NewFile, *, as_json: JsonOption = False) -> None:
    """Make a relayer key for a relayer over a bucket.

    Example: memrelay keys make relayer.key
    """
    if not make_key_file(file.expanduser()):
        raise ConfigurationError(f"{file} already exists: relayer keys are never overwritten")
    tell(
        {"file": str(file)},
        f"created a relayer key in {file}; use it with MEMRELAY_RELAYER_KEY_FILE={file}",
        "Without the key the store cannot be read: keep a copy (memrelay keys recovery)",
        as_json=as_json,
    )


def rotate_key(
    *,
    new_key_file: Annotated[
        Path | None,
        typer.Option(
            envvar="MEMRELAY_NEW_RELAYER_KEY_FILE", help="File of memrelay keys make with the new key."
        ),
    ] = None,
    as_json: JsonOption = False,
    **flags: object,
) -> None:
    """Replace the relayer key of a store by a new one. Its relayers go on, and need the new key at their next start.

    Example: memrelay keys rotate --new-key-file new.key
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
    told = {"rotated": changed, "new_key_file": str(new_key_file), "older_versions": older}
    tell(told, *lines, as_json=as_json)


def recovery(
    *,
    verify: Annotated[bool, typer.Option("--verify", help="Compare a sheet from standard input.")] = False,
    as_json: JsonOption = False,
    **flags: object,
) -> None:
    """Print the relayer key as a sheet with checksums, or compare a sheet with the key.

    Example: memrelay keys recovery

    Example: memrelay keys recovery --verify < sheet.txt
    """
    if not verify:
        sheet = RELAYER_SHEET.render(_key(flags))
        tell({"sheet": sheet}, sheet, as_json=as_json)
        return
    if _read_sheet(sys.stdin.read()) != _key(flags):
        raise ConfigurationError("the sheet is valid, but belongs to another relayer")
    tell({"in_order": True}, "the sheet holds this relayer's key", as_json=as_json)


def _read_sheet(sheet: str) -> bytes:
    try:
        return RELAYER_SHEET.read(sheet)
    except InvalidSecret as error:
        raise ConfigurationError(str(error)) from error


def recover(
    file: _NewFile,
    *,
    sheet: Annotated[str, typer.Option(metavar="FILE", help="The sheet; - is standard input.")] = "-",
    as_json: JsonOption = False,
) -> None:
    """Make the file of a relayer key from its sheet; the line that is wrong is named.

    Example: memrelay keys recover relayer.key --sheet sheet.txt
    """
    try:
        text = sys.stdin.read() if sheet == "-" else read_sheet_file(Path(sheet).expanduser())
    except OSError as error:
        raise ConfigurationError(f"--sheet: {sheet} cannot be read ({error.strerror})") from error
    except InvalidSecret as error:
        raise ConfigurationError(f"--sheet: {error}") from error
    file = file.expanduser()
    key = _read_sheet(text)
    if not make_key_file(file, key) and read_key(file) != key:
        raise ConfigurationError(
            f"{file} already exists with another key: relayer keys are never overwritten"
        )
    said = f"the relayer key of the sheet is in {file}; use it with MEMRELAY_RELAYER_KEY_FILE={file}"
    tell({"file": str(file)}, said, as_json=as_json)


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
