"""The plugin as a package that ``openclaw plugins install`` takes, and where it lies for ``--link``."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Final

from gateway_plugin import __version__
from gateway_plugin.hosts.openclaw.manifest import FOLDER, PLUGIN_ID, SIDECAR_ID, sidecar_manifest

__all__ = ["package_files", "plugin_folder", "write_package"]

_CODE: Final = ("index.js", "bridge.js", "tools.json", "package.json", "openclaw.plugin.json")
_SKILLS: Final = ("skills/memory-recall/SKILL.md",)


def plugin_folder() -> Path:
    """Return the folder that ``openclaw plugins install --link`` takes."""
    return FOLDER


def package_files(*, sidecar: bool = False) -> dict[str, bytes]:
    """Return the package's files by their names: the plugin's, or those of its side-car."""
    files = {name: (FOLDER / name).read_bytes() for name in (*_CODE, *(() if sidecar else _SKILLS))}
    if sidecar:
        package = json.loads(files["package.json"]) | {"name": "memrelay-openclaw-sidecar"}
        files["package.json"] = _json(package)
        files["openclaw.plugin.json"] = _json(sidecar_manifest())
    return files


def write_package(folder: Path, *, sidecar: bool = False) -> Path:
    """Write the package and return its file; the same version gives the same bytes.

    Raises:
        OSError: the file cannot be written.
    """
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in sorted(package_files(sidecar=sidecar).items()):
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    file = folder / f"{SIDECAR_ID if sidecar else PLUGIN_ID}-{__version__}.tgz"
    file.write_bytes(gzip.compress(raw.getvalue(), mtime=0))
    return file


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
