"""Test each integration in an environment that has its framework, and check the types of its module, its example and its page.

The frameworks' requirements contradict each other, so each has an environment of its own, below `.frameworks`, over the packages of the
development environment. Example:

    python tests/unit/integrations/run_each.py langgraph mem0
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
# Packages that the tests need beyond the extra of the same name.
TEST_PACKAGES = {"langchain": ["langchain-tests>=1.1"], "mem0": ["mem0ai>=2,<3"]}
# Our own modules are checked by make check; `--config-file=` because that one ignores the frameworks.
STRICT = ["--strict", "--no-warn-unused-ignores", "--config-file=", "--follow-imports=silent"]


def main(chosen: list[str]) -> int:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = sorted(
        path.name for path in (ROOT / "memrelay/integrations").iterdir() if (path / "__init__.py").is_file()
    )
    failed = []
    for name in chosen or [*names, "mem0"]:
        begun = time.monotonic()
        python = _environment(name, [*extras.get(name, ()), *TEST_PACKAGES.get(name, ())])
        ready = time.monotonic()
        tests = [
            str(HERE),
            "-q",
            "-p",
            "no:cacheprovider",
            # LlamaIndex leaves connections open, which is reported when they are collected, even after the last test.
            "-W",
            "default::pytest.PytestUnraisableExceptionWarning",
            "-k",
            f"{name} or test_page_types or test_the_matrix",
            *os.environ.get("PYTEST_ARGS", "").split(),
        ]
        module = ["-p" if name in names else "-m", f"memrelay.integrations.{name}"]
        cache = f"--cache-dir={python.parents[1] / 'mypy'}"
        done = [_run(python, "pytest", *tests), _run(python, "mypy", cache, *STRICT, *module)]
        seconds = f"{ready - begun:.0f} s to install, {time.monotonic() - ready:.0f} s to test"
        print(f"== {name}: {'failed' if any(done) else 'passed'} ({seconds})", flush=True)
        failed += [name] if any(done) else []
    return 1 if failed else 0


def _environment(name: str, packages: list[str]) -> Path:
    """Return the interpreter of an environment with these packages; it is created if it is not there."""
    home = ROOT / ".frameworks" / name
    python, stamp = home / "bin/python", home / "installed"
    wanted = "\n".join(packages)
    if not stamp.is_file() or stamp.read_text() != wanted:
        venv.create(home, with_pip=True, clear=True)
        inside = next(home.glob("lib/python*/site-packages"))
        # `addsitedir` also follows the .pth files there.
        shared = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        (inside / "development.pth").write_text(shared)
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        subprocess.run(command, check=True)
        stamp.write_text(wanted)
    return python


def _run(python: Path, *module: str) -> int:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([python, "-m", *module], cwd=ROOT, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
