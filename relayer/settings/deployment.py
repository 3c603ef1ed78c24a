"""What ``memrelay init`` leaves behind: a relayer key, and a file of settings that every way of running it reads.

systemd (``EnvironmentFile=``), containers (``--env-file``) and shells (``set -a; . FILE``) agree on lines
``NAME=value`` without quotes only as long as no value needs any; others are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from relayer.errors import ConfigurationError
from relayer.settings.config import PREFIX, RelayerSettings
from relayer.settings.key import generated_key_file, make_key_file

ENVIRONMENT_FILE = "relayer.env"
_PLAIN = re.compile(r"[A-Za-z0-9_@%+:,./=\[\]-]+")
_CREDENTIALS = (
    "# Credentials of the bucket; leave these out where the machine has a role.\n"
    "#AWS_ACCESS_KEY_ID=\n"
    "#AWS_SECRET_ACCESS_KEY=\n"
)


def initialise(
    folder: Path,
    flags: Mapping[str, object],
    check: Callable[[Mapping[str, object]], RelayerSettings],
    say: Callable[[str], None],
) -> None:
    """Make key and settings in a folder and say what to do next. A key that is there stays.

    Args:
        folder: made if need be; without a bucket it is the data directory.
        flags: settings by name; None means the default.
        check: parses settings.
        say: prints one line.

    Raises:
        ConfigurationError: a setting is wrong, cannot be written without quotes, or the file is there already.
    """
    folder = folder.expanduser().absolute()
    key_file, file = generated_key_file(folder), folder / ENVIRONMENT_FILE
    given = {name: str(value) for name, value in flags.items() if value is not None}
    place = {"relayer_key_file": str(key_file)} if "store" in given else {"data": str(folder)}
    settings = check({**flags, **place})
    lines = [f"{PREFIX}{name.upper()}={_plain(name, value)}\n" for name, value in {**place, **given}.items()]
    made = make_key_file(key_file)
    _write_new(file, "".join(lines) + (_CREDENTIALS if settings.store is not None else ""))
    say(f"key       {key_file} ({'made' if made else 'was there'}); nobody can make another: keep a copy")
    say(f"settings  {file}")
    say("")
    say(f"next      set -a; . {file}; set +a")
    say("          memrelay keys recovery        print the key as a sheet for a safe place")
    if settings.store is not None:
        say("          memrelay store probe          try whether the bucket can hold the log")
    say(
        "          memrelay serve                run a relayer; every replica takes the same key and settings"
    )


def _plain(name: str, value: str) -> str:
    if not _PLAIN.fullmatch(value):
        raise ConfigurationError(
            f"{PREFIX}{name.upper()}: its value would need quotes, on which systemd, containers and shells differ; use "
            "letters, digits and _@%+:,./=[]- only"
        )
    return value


def _write_new(file: Path, text: str) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise ConfigurationError(f"{file} is there already: edit it, or choose another folder") from error
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written ({error.strerror})") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)
