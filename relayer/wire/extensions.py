"""Load the parts of an installation that register themselves as entry points: fronts, hosts, and commands.

A package that adds a front, or commands of ``memrelay``, declares with names of its own:

    [project.entry-points."memrelay.fronts"]
    memwal = "relayer.fronts.memwal.table:create_front"

    [project.entry-points."memrelay.commands"]
    memwal = "relayer.fronts.memwal.commands:register"

The first is a `relayer.http.fronts.CreateFront`; the second takes the `typer.Typer` application, and must import only what
the base installation has. `gateway_plugin.hosting` describes the groups of the plugin.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any, Final

FRONTS: Final = "memrelay.fronts"
COMMANDS: Final = "memrelay.commands"


def load_extensions(group: str, report: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Load what is registered in a group of entry points.

    ``report`` is called with a sentence for each extension that cannot be loaded; by default, its error is raised.

    Returns:
        The loaded objects by name, sorted. Extensions whose own module is missing are left out: their package was removed.
    """
    loaded = {}
    for entry in sorted(importlib.metadata.entry_points(group=group), key=lambda entry: entry.name):
        try:
            loaded[entry.name] = entry.load()
        except (ImportError, AttributeError) as error:
            missing = error.name if isinstance(error, ModuleNotFoundError) else None
            if missing and f"{entry.module}.".startswith(f"{missing}."):
                continue
            if report is None:
                raise
            report(f"memrelay: the extension {entry.name} is not available: {error}")
    return loaded
