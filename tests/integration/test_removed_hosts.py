"""Every adapter of a host can be removed: the rest of the plugin works without it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from processes import ran

ROOT = Path(__file__).resolve().parents[2]
HOSTS = sorted(path.parent.name for path in (ROOT / "gateway_plugin" / "hosts").glob("*/__init__.py"))
# The gates, and whole turns over a relayer in memory, from prompt to outbox.
REST = ("tests/unit/gateway/turn", "tests/unit/gateway/test_plugin.py")


@pytest.mark.parametrize("host", HOSTS)
def test_without_a_host_its_commands_are_gone_and_everything_else_works(host: str, tmp_path: Path) -> None:
    for name in ("gateway_plugin", "memrelay", "relayer", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.rmtree(tmp_path / "gateway_plugin" / "hosts" / host)

    def run(*arguments: str) -> str:
        done = ran(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "200"},
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "not available" not in done.stderr
        return done.stdout

    assert str(tmp_path) in run("-c", "import gateway_plugin; print(gateway_plugin.__file__)")
    listed = run("-m", "gateway_plugin", "--help")
    assert "remember" in listed
    for other in HOSTS:
        assert (f"│ {other} " in listed) is (other != host)
    assert "MemoryPlugin" in run("-m", "gateway_plugin", "init", "--host", "python")
    assert " passed" in run("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *REST)
