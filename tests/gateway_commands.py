"""`memrelay-gateway` as it is typed, inside the test's own process: one that has just started, as far as it can tell."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from gateway_plugin.cli import app
from gateway_plugin.keys import secret_store

# Some tests of the real program, as a process of its own: tests/integration/test_transfer_commands.py.


@dataclass(frozen=True)
class Done:
    """How a command ended, named as `subprocess` names it."""

    returncode: int
    stdout: str
    stderr: str


def machine(place: Path, url: str, secret: str) -> dict[str, str]:
    """Return the environment of a machine whose folders lie in ``place``."""
    return {
        "HOME": str(place), "XDG_CONFIG_HOME": str(place / "config"), "XDG_STATE_HOME": str(place / "state"),
        "MEMRELAY_URL": url, "MEMRELAY_SECRET": secret,
    }  # fmt: skip


def run_gateway(environment: Mapping[str, str], *arguments: object) -> Done:
    """Run a command; of our variables it has those of ``environment`` and no others. What nobody expected is raised."""
    # A relayer on another thread logs to what is standard output then: the command's.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("MEMRELAY_")]:
            patch.delenv(name)
        patch.setattr(secret_store, "_taken", {})
        done = CliRunner().invoke(
            app, [str(one) for one in arguments], env=environment, catch_exceptions=False
        )
    return Done(done.exit_code, done.stdout, done.stderr)
