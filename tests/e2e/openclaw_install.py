"""Node.js and OpenClaw in a folder of their own, fetched once: ``python tests/e2e/openclaw_install.py``.

The folder is ``$MEMRELAY_E2E_CACHE``, else ``~/.cache/memrelay-e2e``. Needs any npm; the Node.js that runs OpenClaw is
fetched too, because few machines have one that is new enough.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

NODE = "node@24"
OPENCLAW = "openclaw@2026.9.6"


@dataclass(frozen=True)
class Installed:
    """Where the programs are."""

    folder: Path

    @property
    def node(self) -> Path:
        return self.folder / "node24/node_modules/node/bin/node"

    @property
    def openclaw(self) -> Path:
        return self.folder / "oc/node_modules/openclaw/openclaw.mjs"

    @property
    def complete(self) -> bool:
        return self.node.exists() and self.openclaw.exists()


def installed() -> Installed:
    named = os.environ.get("MEMRELAY_E2E_CACHE")
    return Installed(Path(named) if named else Path.home() / ".cache" / "memrelay-e2e")


def install() -> Installed:
    """Fetch what is missing."""
    found = installed()
    _fetch(found.node, found.folder / "node24", NODE)
    path = f"{found.node.parent}{os.pathsep}{os.environ['PATH']}"
    _fetch(found.openclaw, found.folder / "oc", OPENCLAW, PATH=path)
    return found


def _fetch(wanted: Path, prefix: Path, package: str, **environment: str) -> None:
    if wanted.exists():
        return
    prefix.mkdir(parents=True, exist_ok=True)
    (prefix / "package.json").write_text('{"private":true}\n')
    begun = time.monotonic()
    command = ["npm", "install", "--prefix", str(prefix), "--no-audit", "--no-fund", package]
    subprocess.run(command, check=True, env=os.environ | environment, cwd=prefix)
    print(f"{package} installed in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    print(f"OpenClaw is in {install().folder}")
