"""The entry point of ``python -m relayer`` and of the ``memrelay`` command."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def main() -> None:
    """Run the command line."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # Until a command has started, an interrupt ends the process without a traceback.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        sys.exit(130)
    from relayer.wire.command_line import run_program  # noqa: PLC0415 - imported after the signal handler is set

    run_program(_program)


def _program() -> typer.Typer:
    from relayer.cli import app  # noqa: PLC0415 - slow to import, so imported where an interrupt is silent

    return app


if __name__ == "__main__":
    main()
