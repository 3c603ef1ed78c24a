"""The commands for accounts of MemWal's clients, as they are declared; `relayer.commands.account_work` does them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from relayer.commands.console import explained
from relayer.commands.operator import PLACE, done
from relayer.commands.options import settings_command
from relayer.wire.command_line import JsonOption, tell

_Account = Annotated[str, typer.Argument(help="Id of the account, 0x and 64 hex digits.")]
_Key = Annotated[str, typer.Option(help="Public key, 64 hex digits.")]
_Label = Annotated[str, typer.Option(help="What the key is called in lists.")]
_KeyFile = Annotated[
    Path | None,
    typer.Option(help="File with the private key, made if need be. Default: ~/.config/memrelay/memwal.key."),
]
_Owner = Annotated[str | None, typer.Option("--account", help="Id of the account. Default: the key's own.")]
_Url = Annotated[
    str | None, typer.Option(help="URL of the relayer. Default: the relayer of this environment.")
]


def create(
    *,
    key: Annotated[
        str | None, typer.Option(help="Public key, 64 hex digits. Default: that of --key-file.")
    ] = None,
    key_file: _KeyFile = None,
    label: _Label = "",
    as_json: JsonOption = False,
) -> None:
    """Register an account with one key; more are added to it, and taken back, one by one.

    Example: memrelay account create --label laptop
    """


def add_key(account: _Account, *, key: _Key, label: _Label = "", as_json: JsonOption = False) -> None:
    """Let another key sign for an account; relayers that run know it within 15 seconds.

    Example: memrelay account add-key ID --key KEY --label phone
    """


def revoke(
    account: _Account,
    *,
    key: Annotated[str | None, typer.Option(help="Public key. Default: all of them, for good.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Take back a key, or let nobody of an account in; relayers that run know it within 15 seconds.

    Example: memrelay account revoke ID --key KEY
    """


def list_accounts(*, as_json: JsonOption = False) -> None:
    """List registered accounts with their keys and labels.

    Example: memrelay account list
    """


def env(
    *, key_file: _KeyFile = None, account: _Owner = None, url: _Url = None, as_json: JsonOption = False
) -> None:
    """Print the variables that MemWal's clients read, the private key among them: eval "$(memrelay account env)".

    Example: memrelay account env --key-file ~/memwal.key
    """
    from relayer.commands import account_work  # noqa: PLC0415 - needs the extra's packages

    account_work.print_environment(key_file, account, url, partial(tell, as_json=as_json))


def credentials(
    *,
    key_file: _KeyFile = None,
    account: _Owner = None,
    url: _Url = None,
    label: _Label = "memrelay",
    file: Annotated[Path | None, typer.Option(help="Default: ~/.memwal/credentials.json.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Also where the file is there already.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the file of credentials that MemWal's MCP package reads, for its owner alone.

    Example: memrelay account credentials --url https://memory.example.org
    """
    from relayer.commands import account_work  # noqa: PLC0415 - needs the extra's packages

    account_work.write_credentials(
        key_file, account, url, label=label, file=file, replace=replace, say=partial(tell, as_json=as_json)
    )


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    accounts = typer.Typer(no_args_is_help=True, help="Look after accounts of MemWal's clients.")
    app.add_typer(accounts, name="account")
    named = ((create, "create"), (add_key, "add-key"), (revoke, "revoke"), (list_accounts, "list"))
    for declared, name in named:
        settings_command(accounts, *PLACE, name=name)(done(declared, f"account {name}"))
    for command in (env, credentials):
        accounts.command(command.__name__)(explained()(command))
