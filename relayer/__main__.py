"""``python -m relayer`` and the ``memrelay`` command."""

from __future__ import annotations

import os
import sys

from relayer.cli import app

_STANDARD_ERROR = 2


def main() -> None:
    """Run the command line."""
    _open_standard_streams()
    app()


def _open_standard_streams() -> None:
    """Give a process that was started without standard streams something in their place.

    The next things that it opens, a store's files among them, would be taken for its input and output.
    """
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= _STANDARD_ERROR:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


if __name__ == "__main__":
    main()
