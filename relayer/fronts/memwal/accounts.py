"""The commands for accounts of MemWal's clients, ``memrelay account``.

An account is registered in the store, in an object of its own, which is sealed like all others. Relayers use a cached copy for
at most 15 seconds. A private key stays in a file of its owner; the store contains only public keys.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from nacl.signing import SigningKey

from relayer.access.accounts import DelegateKey, Registration
from relayer.commands.account_work import (
    accounts_at,
    checked_account,
    registration_lines,
    registration_row,
    set_revoked,
)
from relayer.commands.operator_work import Site, store_command
from relayer.errors import ConfigurationError
from relayer.fronts.memwal.contract import address_of, inner_account
from relayer.fronts.memwal.public import PACKAGE_ID
from relayer.health import own_url
from relayer.operator.reports import CommandReport
from relayer.settings.keys import make_key_file
from relayer.wire.codec import InvalidSecret
from relayer.wire.command_line import JsonOption, tell
from relayer.wire.fields import render_time
from relayer.wire.sealing import parse_secret

_HEX = re.compile(r"(?:0x)?([0-9a-f]{64})\Z")
_LONGEST_LABEL = 100
_MOST_KEYS = 100
_Account = Annotated[str, typer.Argument(help="Id of the account, 0x and 64 hex digits.")]
_Key = Annotated[str, typer.Option(help="Public key, 64 hex digits.")]
_LabelOption = Annotated[str, typer.Option(help="What the key is called in lists.")]
_KeyFile = Annotated[
    Path | None,
    typer.Option(help="File with the private key, made if need be. Default: ~/.config/memrelay/memwal.key."),
]
_Owner = Annotated[str | None, typer.Option("--account", help="Id of the account. Default: the key's own.")]
_Url = Annotated[
    str | None, typer.Option(help="URL of the relayer. Default: the relayer of this environment.")
]


def _public(text: str) -> bytes:
    found = _HEX.match(text.strip().lower())
    if found is None:
        raise ConfigurationError("--key: a public key has 64 hex digits")
    return bytes.fromhex(found[1])


def _label(label: str) -> str:
    if len(label) > _LONGEST_LABEL or not label.isprintable():
        raise ConfigurationError(f"--label: at most {_LONGEST_LABEL} printable characters")
    return label


@store_command("registering")
async def create(
    site: Site,
    *,
    key: Annotated[
        str | None, typer.Option(help="Public key, 64 hex digits. Default: that of --key-file.")
    ] = None,
    key_file: _KeyFile = None,
    label: _LabelOption = "",
) -> CommandReport:
    """Register an account with one key; more are added to it, and taken back, one by one.

    Example: memrelay account create --label laptop
    """
    signing = None if key is not None else _signing_key(key_file)
    public = bytes(signing.verify_key) if signing is not None else _public(key or "")
    shown = "0x" + secrets.token_hex(32)
    one = DelegateKey(public, _label(label), site.ports.clock.now_ms())
    registered = await accounts_at(site.ports).register(
        inner_account(shown), lambda _: Registration(shown, (one,))
    )
    lines = registration_lines(registered)
    if signing is not None:
        lines.append(("next", f'eval "$(memrelay account env --account {shown})"'))
    return CommandReport(lines, registration_row(registered))


@store_command("registering")
async def add_key(site: Site, account: _Account, *, key: _Key, label: _LabelOption = "") -> CommandReport:
    """Let another key sign for an account; relayers that run know it within 15 seconds.

    Example: memrelay account add-key ID --key KEY --label phone
    """
    shown, public = checked_account(account), _public(key)
    one = DelegateKey(public, _label(label), site.ports.clock.now_ms())

    def change(known: Registration | None) -> Registration:
        if known is None:
            if shown != address_of(public):
                raise ConfigurationError(f"{account} is not registered: memrelay account create makes one")
            known = Registration(shown)
        others = tuple(each for each in known.keys if each.key != public)
        if len(others) >= _MOST_KEYS:
            raise ConfigurationError(f"{account} has {_MOST_KEYS} keys already: revoke one first")
        return msgspec.structs.replace(known, keys=(*others, one))

    accounts, inner = accounts_at(site.ports), inner_account(shown)
    registered = await accounts.register(inner, change)
    is_revoked = accounts.rules_of(inner).is_revoked
    return CommandReport(
        registration_lines(registered, is_revoked=is_revoked),
        registration_row(registered, is_revoked=is_revoked),
    )


@store_command("revoking")
async def revoke(
    site: Site,
    account: _Account,
    *,
    key: Annotated[
        str | None, typer.Option(help="Public key of a MemWal client. Default: the whole account.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Lift the revocation of a whole account.")] = False,
) -> CommandReport:
    """Revoke a whole account, or one key of a MemWal client; running relayers refuse it within 15 seconds.

    Example: memrelay account revoke ID

    Example: memrelay account revoke ID --undo

    Example: memrelay account revoke ID --key KEY
    """
    shown = checked_account(account)
    if key is None:
        return await set_revoked(site, shown, undo=undo)
    if undo:
        raise ConfigurationError("--undo: lifts the revocation of a whole account; add a key with add-key")
    public = _public(key)

    def change(known: Registration | None) -> Registration:
        known = known or Registration(shown)
        if known.keys and all(each.key != public for each in known.keys):
            raise ConfigurationError(f"--key: not a key of {account}; memrelay account list shows them")
        return msgspec.structs.replace(known, keys=tuple(each for each in known.keys if each.key != public))

    registered = await accounts_at(site.ports).register(inner_account(shown), change)
    return CommandReport(registration_lines(registered), registration_row(registered))


def _signing_key(file: Path | None) -> SigningKey:
    """Return the private key in a file, which is created if it is missing. Raises `ConfigurationError` if it is unreadable."""
    folder = os.environ.get("XDG_CONFIG_HOME")
    place = file or (Path(folder) if folder else Path.home() / ".config") / "memrelay" / "memwal.key"
    place = place.expanduser()
    make_key_file(place)
    try:
        if place.stat().st_mode & 0o077:
            raise ConfigurationError(f"--key-file: other users can read it: chmod 600 {place}")
        return SigningKey(parse_secret(place.read_text("ascii"), source=f"--key-file {place}"))
    except (OSError, UnicodeDecodeError, InvalidSecret) as error:
        raise ConfigurationError(f"--key-file: {place} holds no private key of 64 hex digits") from error


def env(
    *, key_file: _KeyFile = None, account: _Owner = None, url: _Url = None, as_json: JsonOption = False
) -> None:
    """Print the variables that MemWal's clients read, the private key among them: eval "$(memrelay account env)".

    Example: memrelay account env --key-file ~/memwal.key
    """
    key = _signing_key(key_file)
    owner = checked_account(account) if account is not None else address_of(bytes(key.verify_key))
    given = {
        "MEMWAL_PRIVATE_KEY": bytes(key).hex(),
        "MEMWAL_ACCOUNT_ID": owner,
        "MEMWAL_SERVER_URL": url or own_url(os.environ),
    }
    tell(given, *(f"export {name}={value}" for name, value in given.items()), as_json=as_json)


def credentials(
    *,
    key_file: _KeyFile = None,
    account: _Owner = None,
    url: _Url = None,
    label: _LabelOption = "memrelay",
    file: Annotated[Path | None, typer.Option(help="Default: ~/.memwal/credentials.json.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Also where the file is there already.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the file of credentials that MemWal's MCP package reads, for its owner alone.

    Example: memrelay account credentials --url https://memory.example.org
    """
    key = _signing_key(key_file)
    address = address_of(bytes(key.verify_key))
    given = {
        "version": 1,
        "delegatePrivateKey": bytes(key).hex(),
        "delegatePublicKeyHex": bytes(key.verify_key).hex(),
        "delegateAddress": address,
        "walletAddress": address,
        "accountId": checked_account(account) if account is not None else address,
        "packageId": PACKAGE_ID,
        "relayerUrl": (url or own_url(os.environ)).rstrip("/"),
        "label": _label(label),
        "createdAt": render_time(int(time.time() * 1000)),
    }
    place = (file or Path.home() / ".memwal" / "credentials.json").expanduser()
    if place.exists() and not replace:
        raise ConfigurationError(f"{place} is there already: keep it, or say --replace")
    draft = place.with_name(f"{place.name}.{secrets.token_hex(8)}")
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            json.dump(given, opened, indent=2)
        draft.replace(place)
    except OSError as error:
        raise ConfigurationError(f"{place} cannot be written ({error.strerror})") from error
    told = {"account": given["accountId"], "relayer": given["relayerUrl"], "file": str(place)}
    tell(told, f"credentials of {given['accountId']} for {given['relayerUrl']} in {place}", as_json=as_json)
