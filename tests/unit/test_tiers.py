"""Where a test runs follows from what it reaches; nobody's attention decides it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SUITE = """
import importlib
import subprocess
import sys

import pytest
from hypothesis import given, strategies


def helper():
    return subprocess.run([sys.executable, "-c", ""], check=True)


class Owner:
    def __enter__(self):
        return helper()

    def __exit__(self, *_):
        pass


@pytest.fixture
def owned():
    with Owner() as owner:
        yield owner


def test_by_helper(): helper()
def test_by_fixture(owned): pass
def test_inside(): pass
@given(strategies.integers())
def test_property(number): pass
def test_whole(thorough): pass
def test_schedules(seeds): assert len(seeds) in {16, 300, 2000}
@pytest.mark.tier("prove")
def test_proof(): pass
class TestMethods:
    def start(self): helper()
    def test_by_method(self): self.start()
def test_hidden(): importlib.import_module("sub" + "process").run([sys.executable, "-c", ""])
"""


def ran(folder: Path, *options: str) -> tuple[set[str], set[str], str]:
    """Return which tests passed, which failed, and what was said."""
    (folder / "conftest.py").write_text('pytest_plugins = ["tiers"]\n')
    (folder / "test_suite.py").write_text(SUITE)
    # Helpers are told from libraries by where they lie.
    code = "import sys, tiers, pathlib, pytest; tiers.HERE = pathlib.Path.cwd(); sys.exit(pytest.main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "-rA", "-q", "-p", "no:cacheprovider", *options],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(TESTS)}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    words = [line.split() for line in done.stdout.splitlines() if line.startswith(("PASSED", "FAILED"))]
    told = {
        kind: {word[1].rpartition("::")[2].removeprefix("test_") for word in words if word[0] == kind}
        for kind in ("PASSED", "FAILED")
    }
    return told["PASSED"], told["FAILED"], done.stdout + done.stderr


FAST = {"inside", "property", "whole", "schedules"}


@pytest.mark.parametrize(
    ("tier", "passed"),
    [
        ("fast", FAST),
        ("all", {"by_helper", "by_fixture", "by_method", "property", "whole", "schedules"}),
        ("prove", {"proof", "schedules"}),
    ],
)
def test_a_tier_runs_what_belongs_to_it_and_whole_what_another_shortened(
    tmp_path: Path, tier: str, passed: set[str]
) -> None:
    found, failed, said = ran(tmp_path, "--tier", tier)
    assert found == passed, said
    assert failed == ({"hidden"} if tier == "fast" else set())


def test_a_start_that_nobody_saw_coming_fails_the_test_and_says_what_to_do(tmp_path: Path) -> None:
    passed, failed, said = ran(tmp_path)
    assert passed == FAST | {"by_helper", "by_fixture", "by_method", "proof"}
    assert failed == {"hidden"}
    assert '@pytest.mark.tier("all")' in said
