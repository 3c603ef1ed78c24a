"""A test cannot say that it shows a feature end to end without driving anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
HEAD = """
import subprocess, sys
import pytest
from relayer.testing.local_relayer import local_relayer as border
from gateway_plugin.turn.gates import HostTurn

@pytest.fixture
def plugin(): from gateway_plugin import MemoryPlugin; return MemoryPlugin
@pytest.fixture
async def relayer():
    async with border() as it: yield it
def started(): return subprocess.run([sys.executable, "-c", ""], check=True)
def turn(): return HostTurn(prompt="x")

@pytest.mark.row("CP-01", level="e2e")
"""


def refused(folder: Path, test: str, name: str = "test_suite.py") -> str:
    """Return what pytest says when it collects ``test``; nothing when it takes it."""
    (folder / "conftest.py").write_text('pytest_plugins = ["tiers", "row_levels"]\n')
    (folder / name).write_text(HEAD + test)
    # Helpers are told from libraries by where they lie.
    code = "import sys, tiers, pathlib, pytest; tiers.HERE = pathlib.Path.cwd(); sys.exit(pytest.main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "-q", "--collect-only", "-p", "no:cacheprovider", "--strict-markers"],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(TESTS)}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode in {0, 4}, done.stdout + done.stderr
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize(
    "test", ["def test_a(): turn()", "def test_a(): pass"], ids=["a function", "nothing"]
)
def test_who_starts_nothing_is_refused_by_name(tmp_path: Path, test: str) -> None:
    told = refused(tmp_path, test)
    assert "test_suite.py::test_a" in told
    assert "start no host, command, relayer or plugin" in told


@pytest.mark.parametrize(
    "test",
    ["def test_a(plugin): pass", "async def test_a(relayer): pass", "def test_a(): started()"],
    ids=["the plugin", "a relayer under another name", "a process"],
)
def test_who_drives_something_is_taken(tmp_path: Path, test: str) -> None:
    assert refused(tmp_path, test) == ""


def test_a_test_of_the_documents_is_lived_by_reading(tmp_path: Path) -> None:
    assert refused(tmp_path, "def test_a(): pass", "test_documents.py") == ""
