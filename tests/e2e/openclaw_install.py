"""Node.js and OpenClaw in a folder of their own, fetched once: ``python tests/e2e/openclaw_install.py [--older]``.

The folder is ``$MEMRELAY_E2E_CACHE``, else ``~/.cache/memrelay-e2e``. Needs any npm; the Node.js that runs OpenClaw is
fetched too, because few machines have one that is new enough. ``--older`` fetches the older hosts that the plugin works in
as well, half a gigabyte each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

NODE = "node@24"
VERSION = "2026.9.6"
OLDER = ("2026.3.11", "2026.6.6", "2026.7.1", "2026.9.1")
"""The versions that the plugin was tried with beside `VERSION`, the oldest first; it asks for that one or a newer one."""

# A library of a chat that no test uses, which the oldest asks of a git server instead of a registry.
_LEFT_OUT = "libsignal"


@dataclass(frozen=True)
class Installed:
    """Where the programs are."""

    folder: Path
    version: str = VERSION

    @property
    def node(self) -> Path:
        return self.folder / "node24/node_modules/node/bin/node"

    @property
    def openclaw(self) -> Path:
        return self.prefix / "node_modules/openclaw/openclaw.mjs"

    @property
    def prefix(self) -> Path:
        return self.folder / ("oc" if self.version == VERSION else f"hosts/{self.version}")

    @property
    def compiled(self) -> Path:
        """What the host keeps of its own code once it was compiled."""
        return self.folder / "node-compile-cache"

    @property
    def complete(self) -> bool:
        return self.node.exists() and self.openclaw.exists()


def installed(version: str = VERSION) -> Installed:
    named = os.environ.get("MEMRELAY_E2E_CACHE")
    return Installed(Path(named) if named else Path.home() / ".cache" / "memrelay-e2e", version)


def install(version: str = VERSION) -> Installed:
    """Fetch what is missing."""
    found = installed(version)
    _fetch(found.node, found.folder / "node24", NODE)
    path = f"{found.node.parent}{os.pathsep}{os.environ['PATH']}"
    _fetch(found.openclaw, found.prefix, f"openclaw@{version}", PATH=path)
    return found


def _fetch(wanted: Path, prefix: Path, package: str, **environment: str) -> None:
    if wanted.exists():
        return
    nothing = prefix / "nothing"
    nothing.mkdir(parents=True, exist_ok=True)
    (nothing / "package.json").write_text(json.dumps({"name": _LEFT_OUT, "version": "2.0.1"}))
    overrides = {_LEFT_OUT: "file:./nothing"}
    (prefix / "package.json").write_text(json.dumps({"private": True, "overrides": overrides}))
    begun = time.monotonic()
    command = ["npm", "install", "--prefix", str(prefix), "--no-audit", "--no-fund", package]
    subprocess.run(command, check=True, env=os.environ | environment, cwd=prefix)
    print(f"{package} installed in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    for one in (VERSION, *(OLDER if "--older" in sys.argv else ())):
        print(f"OpenClaw {one} is in {install(one).prefix}")
