"""``python -m gateway_plugin`` and the ``memrelay-gateway`` command.

Most commands need most of what there is. One that needs next to nothing is run by itself, and the rest is not loaded.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

_NAME: Final = "memrelay-gateway"
_ALONE: Final = {"version": "gateway_plugin.commands.version"}
"""Commands by the module whose ``add_to`` adds them, that need no other."""


def main() -> None:
    """Run the command line."""
    module = _ALONE.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if module is None:
        from gateway_plugin.cli import app  # noqa: PLC0415 - it loads every command
    else:
        import typer  # noqa: PLC0415 - as above

        app = typer.Typer(
            add_completion=False,
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        # With a callback there are commands below it, even if it is but one.
        app.callback()(lambda: None)
        import_module(module).add_to(app)
    app(prog_name=_NAME)


if __name__ == "__main__":
    main()
