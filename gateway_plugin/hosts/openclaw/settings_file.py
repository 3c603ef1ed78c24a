"""Writing the plugin's block into ``openclaw.json``: on a person's word, beside a copy of the file as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway_plugin.errors import SettingsError, SettingsIssue
from gateway_plugin.private_files import create_private, replace_private

__all__ = ["Written", "write_block"]


@dataclass(frozen=True, slots=True)
class Written:
    """What became of the file: ``backup`` holds it as it was, None when there was none or nothing had to change."""

    path: Path
    changed: bool
    backup: Path | None = None


def write_block(path: Path, block: Mapping[str, Any], *, now: int) -> Written:
    """Merge a block into the host's configuration; what the file says beside it stays.

    Args:
        path: the file; made when it is missing.
        block: what it must hold.
        now: seconds since the epoch, for the name of the copy.

    Raises:
        SettingsError: the file is no plain JSON: its comments would be lost.
        IdentityError: it cannot be written.
    """
    place = path.resolve()
    try:
        text = place.read_text("utf-8")
        held = json.loads(text)
    except FileNotFoundError:
        replace_private(place, _rendered(block))
        return Written(path, changed=True)
    except (OSError, ValueError) as error:
        raise SettingsError(
            SettingsIssue(
                str(path),
                "is no plain JSON, and rewriting it would lose its comments",
                "paste the block yourself: the same command without --write prints it",
            )
        ) from error
    merged = _merged(held if isinstance(held, dict) else {}, block)
    if merged == held:
        return Written(path, changed=False)
    backup = place.with_name(f"{place.name}.before-memrelay-{now}")
    create_private(backup, text.encode())
    replace_private(place, _rendered(merged))
    return Written(path, changed=True, backup=backup)


def _merged(held: Mapping[str, Any], block: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(held)
    for key, value in block.items():
        inner = merged.get(key)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(inner, value) if both and isinstance(inner, Mapping) else value
    return merged


def _rendered(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
