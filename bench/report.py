"""What a run prints and writes: tables for people, the same numbers as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["Lab", "Section", "machine", "show", "write"]


@dataclass(frozen=True, slots=True)
class Section:
    """One table. ``data`` holds its numbers unrounded, ``notes`` what a reader must know to use them."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    data: dict[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lab:
    """What every part needs.

    Attributes:
        work: a directory of its own; stores lie in it, so its file system is part of what is measured.
        quick: few requests, to see that everything runs; the numbers mean nothing.
        say: shows what is being done.
        data: the conversations of the quality part.
        against: the commit that this tree is measured beside.
    """

    work: Path
    quick: bool
    say: Callable[[str], None]
    data: Path | None = None
    against: str | None = None
    seed: int = field(default=11)

    def count(self, full: int, quick: int) -> int:
        """Choose by thoroughness."""
        return quick if self.quick else full


def machine(work: Path) -> dict[str, Any]:
    """Say what the numbers depend on."""
    return {
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "file_system": _file_system(work),
    }


def show(section: Section, console: Console) -> None:
    """Print a table and its notes."""
    table = Table(title=section.title, title_justify="left", title_style="bold")
    for at, name in enumerate(section.columns):
        table.add_column(name, justify="right" if at else "left")
    for row in section.rows:
        table.add_row(*row)
    console.print(table)
    for note in section.notes:
        console.print(f"  {note}", style="dim")
    console.print()


def write(path: Path, about: dict[str, Any], sections: Sequence[Section]) -> None:
    """Write all numbers as JSON."""
    content = {"machine": about, "parts": {section.title: section.data for section in sections}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def _file_system(work: Path) -> str:
    """Return the type of the file system that holds ``work``: the longest mount point above it."""
    resolved, best, kind = str(work.resolve()), "", "unknown"
    for line in Path("/proc/mounts").read_text("utf-8").splitlines():
        point, found = line.split(" ")[1:3]
        inside = resolved == point or resolved.startswith(point.rstrip("/") + "/")
        if inside and len(point) > len(best):
            best, kind = point, found
    return kind
