"""The entry point of ``python -m gateway_plugin`` and of the ``memrelay-gateway`` command.

Most commands need most modules of the package, so `gateway_plugin.cli` imports them all. A command listed in `_ALONE` needs
almost none: it is run by an application of its own, and the other commands are not loaded.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import typer

_ALONE: Final = {"version": "gateway_plugin.commands.version"}
"""Commands that need no other, each with the module whose ``add_to`` adds it to an application."""


def main() -> None:
    """Run the command line."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # While no work has started, an interrupt ends the process without a traceback.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        sys.exit(130)
    from relayer.wire.command_line import run_program  # noqa: PLC0415 - after the signal is set

    run_program(_program)


def _program() -> typer.Typer:
    module = _ALONE.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if module is None:
        from gateway_plugin.cli import app  # noqa: PLC0415 - it loads every command

        return app
    from gateway_plugin import __version__  # noqa: PLC0415 - loaded where an interrupt is silent
    from relayer.wire.command_line import application  # noqa: PLC0415 - as above

    alone = application("memrelay-gateway", lambda: __version__)
    import_module(module).add_to(alone)
    return alone


if __name__ == "__main__":
    main()
