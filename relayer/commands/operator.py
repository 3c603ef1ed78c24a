"""List the operator's commands of ``memrelay`` with their summaries.

A command is declared by its function in `operator_work`, those of ``memrelay account`` in `account_work`. These modules need the
packages of the extra, and take a second to import, so they are imported when a command is run or asked for help.
`memrelay --help` does not need them.
"""

from __future__ import annotations

import typer

from relayer.commands.options import deferred_command

# The settings that name a store.
STORE_SETTINGS = ("data", "store", "endpoint_url", "region", "config")
# The settings on which it depends when an object may be deleted.
_GRACE_SETTINGS = ("collect_after", "commit_check")
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
    "list_accounts": "List the accounts of a store: what they store, their own limits, and whether they are revoked.",
    "limits": "Set an account's own limits, or show them; relayers apply them within 15 seconds.",
    "revoke": "Refuse all requests of an account until it is undone; running relayers do so within 15 seconds.",
    "export": "Write to a file what this store can show of an account without the keys of its agents.",
    "erase": "Revoke an account and erase all of its namespaces, permanently. Run it again after an interruption.",
}
# Functions that derive the id under which a front stores an account from the id that its clients know, as
# ``package.module:function``. Fronts add theirs when they register their commands.
DERIVED_ACCOUNT_IDS: list[str] = []


def account_commands(app: typer.Typer) -> typer.Typer:
    """Return the group of commands ``memrelay account`` of an application. A front may add commands to it, or replace some."""
    for group in app.registered_groups:
        if group.name == "account" and group.typer_instance is not None:
            return group.typer_instance
    accounts = typer.Typer(no_args_is_help=True, help="Look after the accounts of a store.")
    app.add_typer(accounts, name="account")
    return accounts


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for name, summary in _COMMANDS.items():
        more = _GRACE_SETTINGS if name == "collect" else ()
        deferred_command(app, f"relayer.commands.operator_work:{name}", summary, STORE_SETTINGS + more)
    accounts = account_commands(app)
    for function, summary in _ACCOUNT_COMMANDS.items():
        where, name = f"relayer.commands.account_work:{function}", function.removesuffix("_accounts")
        more = _GRACE_SETTINGS if function == "erase" else ()
        deferred_command(accounts, where, summary, STORE_SETTINGS + more, name=name)
