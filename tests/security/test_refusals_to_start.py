"""A relayer that would be dangerous does not start."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from demo.relayer_process import RelayerProcess


def serve(data: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MEMRELAY_")}
    return subprocess.run(
        [sys.executable, "-m", "relayer", "serve", "--port", "0", "--data", str(data)],
        capture_output=True,
        text=True,
        env=clean | environment,
        timeout=60,
        check=False,
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_another_relayer_key_does_not_start_over_existing_data(tmp_path):
    with RelayerProcess(tmp_path) as relayer:
        pass
    before = contents(relayer.data)
    other = secrets.token_bytes(32).hex()
    refused = serve(relayer.data, MEMRELAY_RELAYER_KEY=other)
    assert refused.returncode == 2, refused.stderr
    assert "belongs to another relayer key" in refused.stderr
    assert other not in refused.stderr + refused.stdout
    assert contents(relayer.data) == before


def test_a_lost_relayer_key_is_not_replaced_by_a_new_one(tmp_path):
    with RelayerProcess(tmp_path) as relayer:
        pass
    (relayer.data / "relayer.key").unlink()
    before = contents(relayer.data)
    refused = serve(relayer.data)
    assert refused.returncode == 2
    assert "relayer.key" in refused.stderr
    assert contents(relayer.data) == before


@pytest.mark.parametrize("name", ["MEMRELAY_SECRET", "MEMRELAY_AGENT_SECRET"])
def test_a_gateway_s_secret_in_the_environment_is_refused_before_anything_is_written(tmp_path, name):
    secret = secrets.token_bytes(32).hex()
    refused = serve(tmp_path / "data", **{name: secret})
    assert refused.returncode == 2
    assert name in refused.stderr
    assert secret not in refused.stderr + refused.stdout
    assert not (tmp_path / "data").exists()
