"""The example of each integration runs as its documentation says, without a key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_frameworks import FRAMEWORKS, is_installed

from memrelay.integrations.demonstration import ASKED
from relayer.testing.local_relayer import LocalRelayer


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_example_runs(name: str, relayer: LocalRelayer, tmp_path: Path) -> None:
    if not is_installed(FRAMEWORKS[name]):
        pytest.skip(f"{name} is not installed; make test-integrations installs it")
    environ = {
        **os.environ,
        "HOME": str(tmp_path),
        "MEMRELAY_URL": relayer.url,
        "CREWAI_TRACING_ENABLED": "false",
    }
    environ.pop("MEMRELAY_SECRET", None)
    command = [sys.executable, "-m", f"memrelay.integrations.{name}.example"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{ASKED} -> It is called heron." in done.stdout
