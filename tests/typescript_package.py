"""The TypeScript client as npm builds it, for tests that run it in Node.js, in other runtimes and in a browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "clients" / "typescript"
_VERSIONS = {"deno": "2.9.6", "bun": "1.4.5"}


def run(command: list[str], *, folder: Path = PACKAGE, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command without memrelay's variables, apart from those in ``more``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMRELAY_")}
    return subprocess.run(
        command,
        cwd=folder,
        env={**environment, **more},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def build() -> None:
    """Install its packages and compile it; skips the test if that is not possible here."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Node.js is missing, and with it the TypeScript client")
    if not (PACKAGE / "node_modules" / "ai").exists():
        installed = run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        if installed.returncode:
            pytest.skip(f"its packages cannot be installed here: {installed.stderr.strip()[-200:]}")
    compiled = run([npm, "run", "build"])
    assert compiled.returncode == 0, compiled.stdout


def runtime(name: str) -> str:
    """Return the path of Node.js, Deno or Bun; npm brings the last two. Skips the test if it cannot be installed here."""
    found = shutil.which(name)
    if found is not None:
        return found
    package = f"{name}@{_VERSIONS[name]}"
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memrelay-tests" / package
    program = place / "node_modules" / ".bin" / name
    if not program.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as draft:
            installed = run(["npm", "install", "--no-audit", "--no-fund", "--prefix", draft, package])
            if installed.returncode:
                pytest.skip(f"{package} cannot be installed here: {installed.stderr.strip()[-200:]}")
            shutil.copytree(draft, place, symlinks=True, dirs_exist_ok=True)
    return str(program)
