"""What a test of level e2e drove is recorded from its run: a marker, a name or a fixture of others earns nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SUITE = """
import subprocess, sys
import pytest
from gateway_plugin import MemoryPlugin
from typer.testing import CliRunner
from gateway_plugin.cli import app

pytestmark = pytest.mark.row("CP-01", level="e2e")

def start(): return subprocess.run([sys.executable, "-c", ""], check=True)
@pytest.fixture(scope="module")
def running(): start()
@pytest.fixture
def begun(): start()

def test_process(): start()
def test_fixture(begun): pass
def test_command(): assert CliRunner().invoke(app, ["version"]).exit_code == 0
def test_plugin(): MemoryPlugin(environ={"MEMRELAY_DISABLE": "1"}).before_turn("Where is it?")
@pytest.mark.parametrize("n", [1, 2])
def test_each(n): start()

def test_stub(): assert MemoryPlugin
def test_wide(running): pass
@pytest.mark.skip
def test_skipped(): start()
def test_skips(): start(); pytest.skip("not here")
@pytest.mark.xfail
def test_expected(): start(); assert False
@pytest.mark.xfail
def test_unexpected(): start()
def test_failing(): start(); assert False
@pytest.mark.parametrize("n", [1, 2])
def test_one_fails(n): start(); assert n == 1
"""
SEEN = {"test_process": ["process"], "test_fixture": ["process"], "test_command": ["command"],
        "test_plugin": ["plugin"], "test_each": ["process"]}  # fmt: skip


def recorded(folder: Path, suite: str, *options: str) -> dict[str, list[str]]:
    """Run a suite; return what the record says of it, by the names of its tests."""
    here = "import pathlib, tiers\ntiers.HERE = pathlib.Path(__file__).parent\n"
    (folder / "conftest.py").write_text(f'{here}pytest_plugins = ["tiers", "row_levels"]\n')
    (folder / "test_suite.py").write_text(suite)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--record", "record.json", *options],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(TESTS)}, capture_output=True, timeout=100, check=False,
    )  # fmt: skip
    told = json.loads((folder / "record.json").read_text())
    return {test.rpartition("::")[2]: one["drove"] for test, one in told.items()}


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two"])
def test_only_what_ran_and_passed_and_drove_something_is_recorded(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    assert recorded(tmp_path, SUITE, *options) == SEEN


def test_a_later_run_adds_what_it_saw_and_takes_back_what_failed(tmp_path: Path) -> None:
    recorded(tmp_path, SUITE)
    assert recorded(tmp_path, SUITE, "-k", "test_stub") == SEEN
    broken = SUITE.replace("def test_process(): start()", "def test_process(): start(); assert False")
    assert recorded(tmp_path, broken) == {
        test: drove for test, drove in SEEN.items() if test != "test_process"
    }
