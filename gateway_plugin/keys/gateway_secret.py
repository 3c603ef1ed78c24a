"""Loading, creating and recovering the gateway's secret.

`load_keys` takes the secret from the first of these sources that has one: the host's configuration;
``MEMRELAY_AGENT_SECRET`` with ``MEMRELAY_AGENT_CERTIFICATE``, for a host that holds the keys of one agent only;
``MEMRELAY_SECRET``; the file named by ``MEMRELAY_SECRET_FILE``; and the file ``secret`` in the plugin's directory, which
is created if it is missing and never overwritten. `recover_secret` puts a secret from its recovery sheet into place.

Secrets are removed from the environment when they are read, so that commands run by an agent do not inherit them. (The
kernel still shows the initial environment of a process to the same user; isolating agents from that is up to the host.)
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Final

from gateway_plugin.errors import IdentityError
from gateway_plugin.keys.identity import AgentHolder, KeyHolder, RootHolder
from gateway_plugin.keys.private_files import config_directory, create_private, read_private, state_directory
from relayer.wire.codec import InvalidSecret
from relayer.wire.sealing import SECRET_SIZE, RootKeys, parse_secret

SECRET_VARIABLES: Final = ("MEMRELAY_AGENT_SECRET", "MEMRELAY_SECRET")
_CERTIFICATE_VARIABLE: Final = "MEMRELAY_AGENT_CERTIFICATE"
_FILE_VARIABLE: Final = "MEMRELAY_SECRET_FILE"

# Secrets that were removed from the environment: a second plugin in the same process must find them, too.
_taken: dict[str, str] = {}
_taking = threading.Lock()


def load_keys(
    environ: MutableMapping[str, str],
    *,
    given: str | None = None,
    create: bool = True,
    notify: Callable[[str], None],
) -> KeyHolder:
    """Load the gateway's secret, or create one, and return the keys that belong to it.

    Args:
        environ: the process's environment; secrets are removed from it.
        given: the secret from the host's configuration, with ``${NAME}`` already replaced; None if it has none.
        create: whether to create a secret if there is none.
        notify: called with messages for a person when a secret was created.

    Raises:
        IdentityError: the secret is malformed, unreadable, or readable by other users, or a variable that should hold it
            is empty, or there is no secret and none is created. The error never shows a value.
    """
    if given is None:
        _refuse_empty(environ)
    agent_secret, root_secret = (_take(environ, name) for name in SECRET_VARIABLES)
    try:
        if given is not None:
            return RootHolder(RootKeys(parse_secret(given, source="the configured key")))
        if agent_secret is not None:
            certificate = environ.get(_CERTIFICATE_VARIABLE, "")
            if not certificate:
                raise IdentityError(
                    f"MEMRELAY_AGENT_SECRET needs {_CERTIFICATE_VARIABLE} as well; "
                    "`memrelay-gateway keys export --agent NAME` prints both"
                )
            return AgentHolder.parse(parse_secret(agent_secret, source="MEMRELAY_AGENT_SECRET"), certificate)
        if root_secret is not None:
            return RootHolder(RootKeys(parse_secret(root_secret, source="MEMRELAY_SECRET")))
        return RootHolder(RootKeys(_from_file(environ, notify, create=create)))
    except InvalidSecret as error:
        raise IdentityError(str(error)) from error


def _refuse_empty(environ: MutableMapping[str, str]) -> None:
    """Raise `IdentityError` if one of the variables is empty: a secret from another source is not the intended one."""
    for name in (*SECRET_VARIABLES, _CERTIFICATE_VARIABLE, _FILE_VARIABLE):
        if name in environ and not environ[name].strip():
            raise IdentityError(f"{name} is empty: give it a value, or remove the variable")


def secret_path(environ: MutableMapping[str, str]) -> Path:
    """Return the path of the file that holds the secret if the environment does not.

    Example:
        >>> str(secret_path({"XDG_CONFIG_HOME": "/home/ana/.config"}))
        '/home/ana/.config/memrelay/secret'
    """
    named = environ.get(_FILE_VARIABLE, "")
    return Path(named).expanduser() if named else config_directory(environ) / "secret"


def taken_variable() -> str:
    """Return the name of the variable from which `load_keys` took the secret of this process; "" if it took none."""
    with _taking:
        return next((name for name in SECRET_VARIABLES if name in _taken), "")


def _take(environ: MutableMapping[str, str], name: str) -> str | None:
    with _taking:
        value = environ.pop(name, "").strip()
        if value:
            _taken[name] = value
        return _taken.get(name)


def _from_file(environ: MutableMapping[str, str], notify: Callable[[str], None], *, create: bool) -> bytes:
    path = secret_path(environ)
    try:
        return _parse(path)
    except FileNotFoundError as error:
        if environ.get(_FILE_VARIABLE):
            raise IdentityError(f"MEMRELAY_SECRET_FILE names {path}, which does not exist") from error
        if not create:
            raise IdentityError(
                "this gateway has no secret yet, and none is created while memory is switched off: unset MEMRELAY_DISABLE"
            ) from error
        known = _known_before(environ)
        if create_private(path, secrets.token_hex(SECRET_SIZE).encode() + b"\n"):
            notify(
                f"memrelay created a new secret for this gateway in {path}; without it, the memories cannot be read. Print a copy for a safe place: memrelay-gateway keys recovery"
            )
            notify(
                f"memrelay: {known} THE NEW SECRET CANNOT OPEN MEMORIES OF AN EARLIER ONE. To use those, restore the earlier secret from its recovery sheet: memrelay-gateway keys recover --replace"
                if known
                else "memrelay: if this gateway had memories before, on another machine or disk, the new secret cannot open them. To use those, restore their secret from its recovery sheet: memrelay-gateway keys recover --replace"
            )
        # Read the file instead of using the new secret: another process may have created the file first.
        return _parse(path)


def _known_before(environ: MutableMapping[str, str]) -> str:
    """Return a sentence with the evidence that this machine had another secret before; "" if there is none."""
    with contextlib.suppress(IdentityError, OSError):
        # The name of an outbox is derived from the keys that seal it, so an outbox without a secret file is from another
        # secret.
        for path in sorted(state_directory(environ).glob("outbox-*.db")):
            return f"this machine had another secret before ({path} is left of it)."
    return ""


def _parse(path: Path) -> bytes:
    try:
        text = read_private(path).decode("ascii")
    except UnicodeDecodeError as error:
        raise IdentityError(f"{path} must hold 32 bytes as 64 hex digits or base64") from error
    return parse_secret(text, source=str(path))


def recover_secret(
    environ: MutableMapping[str, str], secret: bytes, *, replace: bool
) -> tuple[Path, Path | None]:
    """Write a secret to the file from which `load_keys` reads it. An existing secret is never lost.

    Args:
        environ: the environment variables.
        secret: 32 bytes.
        replace: whether to replace another secret in that file. The old file is renamed: the first characters of its
            account's id are appended to its name.

    Returns:
        The path of the file, and the new path of the file that it replaced; None if there was no other secret.

    Raises:
        IdentityError: another secret is in the file, or a variable takes precedence over the file, or a variable is
            empty, or the file cannot be written.
    """
    _refuse_empty(environ)
    wins = next((name for name in SECRET_VARIABLES if name in _taken or environ.get(name)), None)
    if wins is not None:
        raise IdentityError(
            f"{wins} is set and takes precedence over any file: put the secret of the sheet there, or unset the variable"
        )
    path = secret_path(environ)
    kept = _moved_away(path, secret, replace=replace)
    create_private(path, secret.hex().encode() + b"\n")
    if _parse(path) != secret:
        raise IdentityError(f"{path} was created by another process in the meantime: try again")
    return path, kept


def _moved_away(path: Path, secret: bytes, *, replace: bool) -> Path | None:
    try:
        there = _parse(path)
    except FileNotFoundError:
        return None
    except InvalidSecret as error:
        raise IdentityError(str(error)) from error
    if there == secret:
        return None
    account = RootKeys(there).account
    if not replace:
        raise IdentityError(
            f"{path} contains a different secret, of account {account}: with --replace it is moved to a file next to it, and this secret is stored"
        )
    kept = path.with_name(f"{path.name}.{account[:18]}")
    try:
        path.replace(kept)
    except OSError as error:
        raise IdentityError(f"{path} cannot be moved to {kept}: {error.strerror}") from error
    return kept
