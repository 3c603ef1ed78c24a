"""List the operator's commands of ``memrelay`` with their summaries.

A command is declared by its function in `operator_work`. That module needs the packages of the extra, and takes a second to
import, so it is imported when a command is run or asked for help. `memrelay --help` does not need it.
"""

from __future__ import annotations

import typer

from relayer.commands.options import deferred_command

# The settings that name a store.
STORE_SETTINGS = ("data", "store", "endpoint_url", "region", "config")
_COMMANDS = {
    "verify": "Check the integrity of a store. Exit code 1: objects are damaged or missing.",
    "inspect": "Show sizes, times and counts of a namespace or an object, without its contents.",
    "stats": "Count the objects of a store and its garbage.",
    "repair": "Repair damaged logs and report losses. Stop the relayers before --apply.",
    "compact": "Compact the newest entries of logs into segments; relayers may be running.",
    "collect": "Delete compacted and replaced objects whose grace period is over; relayers may be running.",
    "backup": "Copy new objects to a backup; relayers may be running. Exit code 1: some objects could not be read.",
    "restore": "Restore a backup into an empty store, without memories that were erased since.",
}
_ACCOUNT_COMMANDS = {
    "list": "List the accounts of a store, with their namespaces and bytes.",
    "erase": "Erase all namespaces of an account; relayers may be running.",
}


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for name, summary in _COMMANDS.items():
        more = ("collect_after", "commit_check") if name == "collect" else ()
        deferred_command(app, f"relayer.commands.operator_work:{name}", summary, *STORE_SETTINGS, *more)
    accounts = typer.Typer(no_args_is_help=True, help="List and erase accounts.")
    app.add_typer(accounts, name="account")
    for name, summary in _ACCOUNT_COMMANDS.items():
        where = f"relayer.commands.operator_work:{name}_account"
        deferred_command(accounts, where, summary, *STORE_SETTINGS, name=name)
