"""Add the commands for accounts of MemWal's clients to ``memrelay account``.

The commands' functions are in `relayer.fronts.memwal.accounts`. Its `revoke` replaces the operator's own: it revokes single keys, too.
"""

from __future__ import annotations

from typing import Final

import typer

from relayer.commands.deferred import DERIVED_ACCOUNT_IDS, STORE_SETTINGS, account_commands, deferred_command

COMMANDS: Final = {
    "create": "Register an account with one key; more are added to it, and taken back, one by one.",
    "add_key": "Let another key sign for an account; relayers that run know it within 15 seconds.",
    "revoke": "Revoke a whole account, or one key of a MemWal client; running relayers refuse it within 15 seconds.",
    "env": 'Print the variables that MemWal\'s clients read, the private key among them: eval "$(memrelay account env)".',
    "credentials": "Write the file of credentials that MemWal's MCP package reads, for its owner alone.",
}
_DERIVED: Final = "relayer.fronts.memwal.contract:inner_account"


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    accounts = account_commands(app)
    if _DERIVED not in DERIVED_ACCOUNT_IDS:
        DERIVED_ACCOUNT_IDS.append(_DERIVED)
    for function, summary in COMMANDS.items():
        place = () if function in {"env", "credentials"} else STORE_SETTINGS
        where = f"relayer.fronts.memwal.accounts:{function}"
        deferred_command(accounts, where, summary, place, name=function.replace("_", "-"))
