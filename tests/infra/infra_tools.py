"""Programs that check what is in infra/: from the extra `infra`, and Debian's nginx and prometheus packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INFRA = ROOT / "infra"


def tool(name: str) -> str:
    """Return a program's path; without it the test is skipped, except where everything has to be there."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(name, path=places)
    if found is None:
        message = (
            f"{name} is not installed: pip install -e '.[infra]', apt-get install nginx-light prometheus"
        )
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)
    return found


def run(
    *command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=cwd,
        env=env,
    )
