"""Register ``memrelay account``; the commands' functions are in `relayer.fronts.memwal.accounts`."""

from __future__ import annotations

from typing import Final

import typer

from relayer.commands.operator import STORE_SETTINGS
from relayer.commands.options import deferred_command

COMMANDS: Final = {
    "create": "Register an account with one key; more are added to it, and taken back, one by one.",
    "add_key": "Let another key sign for an account; relayers that run know it within 15 seconds.",
    "revoke": "Revoke a key, or block a whole account; running relayers enforce it within 15 seconds.",
    "list_accounts": "List registered accounts with their keys and labels.",
    "env": 'Print the variables that MemWal\'s clients read, the private key among them: eval "$(memrelay account env)".',
    "credentials": "Write the file of credentials that MemWal's MCP package reads, for its owner alone.",
}


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    accounts = typer.Typer(no_args_is_help=True, help="Look after accounts of MemWal's clients.")
    app.add_typer(accounts, name="account")
    for function, summary in COMMANDS.items():
        place = () if function in {"env", "credentials"} else STORE_SETTINGS
        name = "list" if function == "list_accounts" else function.replace("_", "-")
        deferred_command(accounts, f"relayer.fronts.memwal.accounts:{function}", summary, *place, name=name)
