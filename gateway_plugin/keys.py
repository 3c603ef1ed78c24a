"""Where the gateway's secret comes from.

First found wins: what the host's configuration gave, ``MEMRELAY_AGENT_SECRET`` with ``MEMRELAY_AGENT_CERTIFICATE``
(a host that holds one agent only), ``MEMRELAY_SECRET``, the file that ``MEMRELAY_SECRET_FILE`` names, and last
``secret`` in the plugin's directory, which is made when it is missing and never overwritten.

What was read from the environment is taken out of it, so that a command run by an agent does not inherit it. (The
kernel still shows a process's first environment to the same user; a sandbox is the host's business.)
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Final

from gateway_plugin.errors import IdentityError
from gateway_plugin.identity import AgentHolder, KeyHolder, RootHolder
from gateway_plugin.private_files import config_directory, create_private, read_private
from relayer.wire.codec import lp
from relayer.wire.errors import InvalidSecret
from relayer.wire.sealing import SECRET_SIZE, RootKeys, parse_secret

SECRET_VARIABLES: Final = ("MEMRELAY_AGENT_SECRET", "MEMRELAY_SECRET")
_CERTIFICATE_VARIABLE: Final = "MEMRELAY_AGENT_CERTIFICATE"
_FILE_VARIABLE: Final = "MEMRELAY_SECRET_FILE"

# A second plugin of the same process must find what the first one took out of the environment.
_taken: dict[str, str] = {}
_taking = threading.Lock()


def load_keys(
    environ: MutableMapping[str, str], *, given: str | None = None, notify: Callable[[str], None]
) -> KeyHolder:
    """Find the secret, or make one.

    Args:
        environ: the process's environment; secrets are removed from it.
        given: the secret from the host's configuration, with ``${NAME}`` already replaced.
        notify: is told, in one sentence for people, when a secret was made.

    Raises:
        IdentityError: the secret is malformed, unreadable, or readable by others; never shows a value.
    """
    agent_secret, root_secret = (_take(environ, name) for name in SECRET_VARIABLES)
    try:
        if given is not None:
            return RootHolder(RootKeys(parse_secret(given, source="the configured key")))
        if agent_secret is not None:
            return _one_agent(agent_secret, environ.get(_CERTIFICATE_VARIABLE, ""))
        if root_secret is not None:
            return RootHolder(RootKeys(parse_secret(root_secret, source="MEMRELAY_SECRET")))
        return RootHolder(RootKeys(_from_file(environ, notify)))
    except InvalidSecret as error:
        raise IdentityError(str(error)) from error


def secret_path(environ: MutableMapping[str, str]) -> Path:
    """Return the file that holds the secret when the environment does not."""
    named = environ.get(_FILE_VARIABLE, "")
    return Path(named).expanduser() if named else config_directory(environ) / "secret"


def taken_variable() -> str:
    """Return the variable whose secret `load_keys` uses in this process; "" where it uses none."""
    with _taking:
        return next((name for name in SECRET_VARIABLES if name in _taken), "")


def _take(environ: MutableMapping[str, str], name: str) -> str | None:
    with _taking:
        value = environ.pop(name, "").strip()
        if value:
            _taken[name] = value
        return _taken.get(name)


def _one_agent(secret: str, certificate: str) -> KeyHolder:
    if not certificate:
        raise IdentityError(
            f"MEMRELAY_AGENT_SECRET needs {_CERTIFICATE_VARIABLE} beside it; "
            "`memrelay-gateway keys export --agent NAME` prints both"
        )
    return AgentHolder.parse(parse_secret(secret, source="MEMRELAY_AGENT_SECRET"), certificate)


def _from_file(environ: MutableMapping[str, str], notify: Callable[[str], None]) -> bytes:
    path = secret_path(environ)
    if environ.get(_FILE_VARIABLE):
        try:
            return _parse(path)
        except FileNotFoundError as error:
            raise IdentityError(f"MEMRELAY_SECRET_FILE names {path}, which does not exist") from error
    try:
        return _parse(path)
    except FileNotFoundError:
        if create_private(path, secrets.token_hex(32).encode() + b"\n"):
            notify(
                f"memrelay made a secret for this gateway in {path}; without it, its memories cannot be read. "
                "Keep a copy: memrelay-gateway keys recovery"
            )
        # Read back, not used as made: another process may have been first.
        return _parse(path)


def _parse(path: Path) -> bytes:
    try:
        text = read_private(path).decode("ascii")
    except UnicodeDecodeError as error:
        raise IdentityError(f"{path} must hold 32 bytes as 64 hex digits or base64") from error
    return parse_secret(text, source=str(path))


_LINES: Final = 4
_LINE_BYTES: Final = SECRET_SIZE // _LINES
_LABEL: Final = "memrelay/v1/recovery"
_LINE: Final = re.compile(
    r"^\s*([1-4])[.:)]?\s+((?:[0-9a-fA-F]{4}\s*){4})\s+([0-9a-fA-F]{4})\s*$", re.MULTILINE
)
_TOTAL: Final = re.compile(r"^\s*check[.:]?\s+([0-9a-fA-F]{8})\s*$", re.MULTILINE | re.IGNORECASE)


def render_sheet(root: RootKeys) -> str:
    """Render the sheet; whoever reads it can read every memory of the account."""
    lines = []
    for number in range(1, _LINES + 1):
        part = root.root[(number - 1) * _LINE_BYTES : number * _LINE_BYTES]
        lines.append(f"{number}   {_grouped(part.hex())}   {_check(number, part)}")
    return "\n".join(
        [
            "memrelay recovery sheet",
            "Whoever holds this sheet can read every memory of the account. Print it, lock it away, do not photograph it.",
            "",
            f"account {root.account}",
            "",
            *lines,
            "",
            f"check {_total(root.root)}",
            "",
        ]
    )


def parse_sheet(text: str) -> bytes:
    """Return the secret that a sheet holds.

    Raises:
        IdentityError: a line is missing or does not fit its check; says which, and shows none.
    """
    found = {
        int(number): (bytes.fromhex(re.sub(r"\s", "", body)), check.lower())
        for number, body, check in _LINE.findall(text)
    }
    for number in range(1, _LINES + 1):
        if number not in found:
            raise IdentityError(f"line {number} of the sheet is missing, or not in form")
        part, check = found[number]
        if not hmac.compare_digest(_check(number, part), check):
            raise IdentityError(f"line {number} of the sheet does not fit its check")
    secret = b"".join(found[number][0] for number in sorted(found))
    total = _TOTAL.search(text)
    if total is None or not hmac.compare_digest(_total(secret), total[1].lower()):
        raise IdentityError("the sheet's last check is missing, or does not fit")
    return secret


def _grouped(digits: str) -> str:
    return " ".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def _check(number: int, part: bytes) -> str:
    return hashlib.sha256(lp(_LABEL, number, part)).hexdigest()[:4]


def _total(secret: bytes) -> str:
    return hashlib.sha256(lp(_LABEL, secret)).hexdigest()[:8]
