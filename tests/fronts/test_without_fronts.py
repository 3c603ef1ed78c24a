"""A relayer whose fronts were deleted: it serves its own clients, and says what is missing if a front is asked for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from processes import CLEAN, ran, wait_for

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree without `relayer/fronts/memwal`."""
    place = tmp_path_factory.mktemp("tree")
    left_out = shutil.ignore_patterns("__pycache__", "memwal")
    shutil.copytree(ROOT / "relayer", place / "relayer", ignore=left_out)
    for name in ("gateway_plugin", "memrelay", "tests", "pyproject.toml"):
        (place / name).symlink_to(ROOT / name)
    return place


def _environment(tree: Path) -> dict[str, str]:
    return CLEAN | {"PYTHONPATH": str(tree), "HOME": str(tree)}


def _run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return ran([sys.executable, *arguments], cwd=tree, env=_environment(tree))


@contextmanager
def _served(tree: Path, data: Path) -> Iterator[str]:
    log, ready = data / "log", data / "ready"
    options = ["--port", "0", "--data", str(data / "store"), "--ready-file", str(ready)]
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "relayer", "serve", *options],
            cwd=tree,
            env=_environment(tree),
            stdout=output,
            stderr=output,
            text=True,
        )
        try:
            yield wait_for(ready, process, log)["url"]
        finally:
            process.terminate()
            assert process.wait(30) == 0


def test_a_relayer_serves_its_own_clients(tree: Path, tmp_path: Path) -> None:
    with _served(tree, tmp_path) as url:
        with urlopen(f"{url}/health", timeout=10) as answer:
            assert json.load(answer)["status"] == "ok"
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{url}/api/remember", timeout=10)


@pytest.mark.parametrize("option", [["--compat", "memwal"], ["--compat-legacy"]])
def test_an_option_of_the_front_says_that_it_is_not_installed(
    tree: Path, tmp_path: Path, option: list[str]
) -> None:
    ended = _run(tree, "-m", "relayer", "serve", "--port", "0", "--data", str(tmp_path), *option)
    assert ended.returncode == 2, ended.stderr
    assert "--compat memwal: the front for MemWal's clients is not installed" in ended.stderr


def test_the_commands_of_the_front_are_gone_and_no_others(tree: Path) -> None:
    listed = _run(tree, "-m", "relayer", "--help")
    assert listed.returncode == 0, listed.stderr
    assert "verify" in listed.stdout
    assert _run(tree, "-m", "relayer", "account", "create").returncode == 2
    kept = _run(tree, "-m", "relayer", "account", "--help")
    assert kept.returncode == 0, kept.stderr
    assert "erase" in kept.stdout
    assert "add-key" not in kept.stdout


def test_tests_of_the_rest_pass(tree: Path) -> None:
    rest = [
        "tests/unit/http/test_open_routes.py",
        "tests/unit/http/test_routing.py",
        "tests/unit/test_config.py",
    ]
    ended = _run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *rest)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    where = "import relayer; print(relayer.__file__)"
    assert _run(tree, "-c", where).stdout.startswith(os.fspath(tree))
