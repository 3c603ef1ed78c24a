"""`memrelay` and `memrelay-gateway` as they are typed, inside the test's own process: one that has just started, as far as
they can tell. Some tests of the real programs: tests/integration/test_transfer_commands.py and test_operator_commands.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gateway_plugin.cli import app as gateway_app
from gateway_plugin.keys import gateway_secret
from relayer.cli import app as relayer_app


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
    """Run a command of `memrelay-gateway`; see `_run`."""
    return _run(gateway_app, environment, arguments)


def run_relayer(environment: Mapping[str, str], *arguments: object) -> Done:
    """Run a command of `memrelay` that ends by itself; see `_run`."""
    return _run(relayer_app, environment, arguments)


def _run(app: typer.Typer, environment: Mapping[str, str], arguments: Sequence[object]) -> Done:
    """Run a command; of our variables it has those of ``environment`` and no others. What nobody expected is raised."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("MEMRELAY_")]:
            patch.delenv(name)
        patch.setattr(gateway_secret, "_taken", {})
        done = CliRunner().invoke(
            app,
            [str(one) for one in arguments],
            env={"MEMRELAY_CONFIG": os.devnull, **environment},
            catch_exceptions=False,
        )
    return Done(done.exit_code, done.stdout, done.stderr)
