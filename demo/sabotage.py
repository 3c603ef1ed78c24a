"""Breaking one promise for real, so that the demonstration can be seen to notice."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path


class Sabotage(StrEnum):
    """What to break; each value is the name of the checks that must fail then."""

    RELATED = "related"
    """Forget what the first related probe asks for."""
    SILENT = "silent"
    """Ask for memories of any relevance."""
    ISOLATED = "isolated"
    """Ask the cross probes with the other agent's keys."""
    DURABLE = "durable"
    """Delete the last object of every log while the relayer is down."""
    SEALED = "sealed"
    """Write what was said into the data directory."""


def lose_last_entries(data: Path) -> None:
    """Delete the newest object of every log below a data directory."""
    newest: dict[Path, Path] = {}
    for entry in sorted(data.rglob("wal/*")):
        newest[entry.parent] = entry
    for entry in newest.values():
        entry.unlink()


def write_plainly(data: Path, texts: Iterable[str]) -> None:
    """Write texts into a data directory as nothing of the product ever would."""
    (data / "objects" / "plain").write_text("\n".join(texts), "utf-8")
