"""Measure speed as ratios, side by side, and recall quality; `make bench` runs it.

Machines differ and are noisy, so what is compared is measured in turns, in the same run: the ratio is the result, and
its lowest and highest round say how far to trust it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from bench.against import against_commit
from bench.filters import filtered_recall
from bench.http_recall import recall_cost
from bench.memory import resident_memory
from bench.programs import memory_of_programs
from bench.quality import recall_quality
from bench.report import Lab, Section, machine, show, write
from bench.turns import lived_turns
from bench.writes import write_rates

__all__ = ["Part", "main"]


class Part(StrEnum):
    """What can be measured alone."""

    RECALL = "recall"
    FILTERS = "filters"
    PROGRAMS = "programs"
    WRITES = "writes"
    QUALITY = "quality"
    MEMORY = "memory"
    TURNS = "turns"
    AGAINST = "against"


_MEASURES: dict[Part, Callable[[Lab], Awaitable[list[Section]]]] = {
    Part.RECALL: recall_cost,
    Part.FILTERS: filtered_recall,
    Part.PROGRAMS: memory_of_programs,
    Part.WRITES: write_rates,
    Part.QUALITY: recall_quality,
    Part.MEMORY: resident_memory,
    Part.TURNS: lived_turns,
    Part.AGAINST: against_commit,
}


def main(
    data: Annotated[Path | None, typer.Option(help="Conversations for the quality part.")] = None,
    against: Annotated[
        str | None, typer.Option(help="A commit; this tree is measured beside it, in the same rounds.")
    ] = None,
    only: Annotated[list[Part] | None, typer.Option(help="Only this part; may be repeated.")] = None,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="See that everything runs; numbers mean nothing.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write all numbers to this file, too.")] = None,
    work: Annotated[Path | None, typer.Option(help="Directory on the file system to measure.")] = None,
) -> None:
    """Run the benchmarks and print one table for each question."""
    console, progress = Console(width=120), Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="memrelay-bench-", dir=work) as folder:
        about = machine(Path(folder))
        console.print(
            f"{about['cores']} cores, load average {about['load_average']:.1f} at the start, "
            f"Python {about['python']}, {about['system']}, stores on {about['file_system']}\n"
        )
        sections: list[Section] = []
        with progress.status("starting") as status:
            lab = Lab(Path(folder), quick, status.update, data, against)
            for part in only or list(Part):
                found = uvloop.run(_measured(_MEASURES[part], lab))
                for section in found:
                    show(section, console)
                sections += found
    if json is not None:
        write(json, about, sections)
        console.print(f"all numbers: {json}")


async def _measured(measure: Callable[[Lab], Awaitable[list[Section]]], lab: Lab) -> list[Section]:
    return await measure(lab)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
