"""Load the parts of the relayer that register themselves as entry points: fronts, and commands of ``memrelay``.

A package that adds a front declares, with names of its own:

    [project.entry-points."memrelay.fronts"]
    memwal = "relayer.fronts.memwal.table:create_front"

    [project.entry-points."memrelay.commands"]
    memwal = "relayer.fronts.memwal.commands:register"

The first is a `relayer.http.fronts.CreateFront`; the second takes the `typer.Typer` application, and must import only what
the base installation has.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any, Final

FRONTS: Final = "memrelay.fronts"
COMMANDS: Final = "memrelay.commands"


def load_extensions(group: str) -> dict[str, Any]:
    """Return what is registered in a group of entry points, by name. Entries whose own module is missing are left out."""
    loaded = {}
    for entry in importlib.metadata.entry_points(group=group):
        try:
            loaded[entry.name] = entry.load()
        except ModuleNotFoundError as error:
            if not f"{entry.module}.".startswith(f"{error.name}."):
                raise
    return loaded
