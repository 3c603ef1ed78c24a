"""``python -m relayer`` and the ``memrelay`` command."""

from __future__ import annotations

from relayer.cli import app

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
