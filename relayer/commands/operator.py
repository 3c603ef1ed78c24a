"""List the operator's commands of ``memrelay`` with their summaries.

A command is declared by its function in `operator_work` or `account_work`. These modules need the packages of the extra, and
take a second to import, so they are imported when a command is run or asked for help. `memrelay --help` needs neither.
"""

from __future__ import annotations

import typer

from relayer.commands.options import deferred_command

# The settings that name a store.
_PLACE = ("data", "store", "endpoint_url", "region", "config")
_COMMANDS = {
    "verify": "Look whether a store is what was written. Exit code 1: something is damaged or lost.",
    "inspect": "Say what a namespace or an object is: sizes, times and counts, and nothing of what was said.",
    "stats": "Count what a store holds, and how much of it is garbage.",
    "repair": "Make damaged logs readable again, and say what is lost. Stop the relayers before --apply.",
    "compact": "Turn the newest entries of logs into segments now; relayers may run.",
    "collect": "Delete what was compacted or replaced, as far as its time has come; relayers may run.",
    "backup": "Copy what is new to a backup; relayers may run. Exit code 1: something could not be read.",
    "restore": "Bring an empty store to what a backup holds, less what was erased since.",
}
_ACCOUNT_COMMANDS = {
    "create": "Register an account with one key; more are added to it, and taken back, one by one.",
    "add_key": "Let another key sign for an account; relayers that run know it within 15 seconds.",
    "revoke": "Revoke a key, or block a whole account; running relayers enforce it within 15 seconds.",
    "list_accounts": "List registered accounts with their keys and labels.",
    "env": 'Print the variables that MemWal\'s clients read, the private key among them: eval "$(memrelay account env)".',
    "credentials": "Write the file of credentials that MemWal's MCP package reads, for its owner alone.",
}


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for name, summary in _COMMANDS.items():
        more = ("collect_after", "commit_check") if name == "collect" else ()
        deferred_command(app, f"relayer.commands.operator_work:{name}", summary, *_PLACE, *more)
    accounts = typer.Typer(no_args_is_help=True, help="Look after accounts of MemWal's clients.")
    app.add_typer(accounts, name="account")
    for function, summary in _ACCOUNT_COMMANDS.items():
        place = () if function in {"env", "credentials"} else _PLACE
        name = "list" if function == "list_accounts" else function.replace("_", "-")
        deferred_command(accounts, f"relayer.commands.account_work:{function}", summary, *place, name=name)
