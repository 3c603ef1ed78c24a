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
    "verify": "Look whether a store is what was written. Exit code 1: something is damaged or lost.",
    "inspect": "Say what a namespace or an object is: sizes, times and counts, and nothing of what was said.",
    "stats": "Count what a store holds, and how much of it is garbage.",
    "repair": "Make damaged logs readable again, and say what is lost. Stop the relayers before --apply.",
    "compact": "Turn the newest entries of logs into segments now; relayers may run.",
    "collect": "Delete what was compacted or replaced, as far as its time has come; relayers may run.",
    "backup": "Copy what is new to a backup; relayers may run. Exit code 1: something could not be read.",
    "restore": "Bring an empty store to what a backup holds, less what was erased since.",
}


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for name, summary in _COMMANDS.items():
        more = ("collect_after", "commit_check") if name == "collect" else ()
        deferred_command(app, f"relayer.commands.operator_work:{name}", summary, *STORE_SETTINGS, *more)
